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
      const grid = { stroke: colour("--line") };
      const axis = { stroke: ink, grid, ticks: grid };
      const series = found.lines.map((line, index) => ({
        label: line.name,
        stroke: colour(`--c${index % 8}`),
        dash: index >= 8 ? [6, 4] : undefined,
        width: 2,
        paths: uPlot.paths.stepped({ align: 1 }),
      }));
      plot = new uPlot({ ...sizeOf(place), axes: [axis, axis], series: [{}, ...series] }, data, place);
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
