// What htmx does not do by itself: pausing updates, and charts.
"use strict";
(() => {
  const button = document.getElementById("pause");
  let paused = false;
  if (document.querySelector("[hx-trigger^='sse:']")) button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    if (!paused) htmx.trigger("#content", "sse:changed");
  });
  // While a filter is being filled in, the page stays as it is.
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    const field = document.activeElement;
    if (paused || (field && field.closest("form.filter"))) event.preventDefault();
  });

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Times are UTC, as in the tables.
  const iso = (seconds) => new Date(seconds * 1000).toISOString();
  const time = (_, seconds) => (seconds === null ? "--" : iso(seconds).slice(0, 16).replace("T", " ") + "Z");
  const times = (_, splits, axis, space, step) =>
    splits.map((at, index) => {
      const day = iso(at).slice(0, 10);
      if (step >= 86400) return day;
      return iso(at).slice(11, 16) + (index === 0 || at % 86400 === 0 ? `\n${day}` : "");
    });
  const sizeOf = (place) => ({ width: Math.max(280, place.clientWidth), height: 300 });
  const draw = (place) => {
    let plot = null;
    return async () => {
      const answer = await fetch(place.dataset.source);
      if (!answer.ok) return;
      const found = await answer.json();
      const data = [found.at, ...found.lines.map((line) => line.values)];
      if (plot && plot.series.length === data.length) return plot.setData(data, plot.scales.x.min === undefined);
      if (plot) plot.destroy();
      const ink = colour("--ink");
      const grid = { stroke: colour("--line"), width: 1 };
      const axis = { stroke: ink, grid, ticks: grid };
      const series = found.lines.map((line, index) => ({
        label: line.name,
        stroke: colour(`--c${index % 8}`),
        dash: index >= 8 ? [6, 4] : undefined,
        width: 2,
        paths: uPlot.paths.stepped({ align: 1 }),
      }));
      const options = {
        ...sizeOf(place),
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
        axes: [{ ...axis, values: times }, axis],
        series: [{ value: time }, ...series],
      };
      plot = new uPlot(options, data, place);
      addEventListener("resize", () => plot.setSize(sizeOf(place)));
    };
  };
  const charts = [...document.querySelectorAll(".chart")].map(draw);
  if (!charts.length) return;
  const drawAll = () => paused || charts.forEach((chart) => chart());
  addEventListener("load", drawAll);
  document.body.addEventListener("htmx:sseMessage", drawAll);
  setInterval(drawAll, 30000);
})();
