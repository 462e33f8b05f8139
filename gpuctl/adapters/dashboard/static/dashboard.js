// What htmx does not do by itself: pausing updates, and the chart of allocations.
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

  const chart = document.getElementById("allocation-chart");
  if (!chart) return;
  const colours = () => getComputedStyle(document.documentElement);
  let plot = null;
  const draw = async () => {
    const found = await (await fetch(chart.dataset.source)).json();
    const data = [found.at, ...found.projects.map((project) => project.gpus)];
    if (plot) return plot.setData(data);
    const ink = colours().getPropertyValue("--ink").trim();
    const line = colours().getPropertyValue("--line").trim();
    const axis = { stroke: ink, grid: { stroke: line }, ticks: { stroke: line } };
    const series = found.projects.map((project, index) => ({
      label: project.name,
      stroke: colours().getPropertyValue(`--c${index % 8}`).trim(),
      dash: index >= 8 ? [6, 4] : undefined,
      width: 2,
      paths: uPlot.paths.stepped({ align: 1 }),
    }));
    const size = { width: Math.max(280, chart.clientWidth), height: 360 };
    plot = new uPlot({ ...size, axes: [axis, { ...axis, label: "GPUs" }], series: [{}, ...series] }, data, chart);
    addEventListener("resize", () => plot.setSize({ width: Math.max(280, chart.clientWidth), height: 360 }));
  };
  addEventListener("load", draw);
  document.body.addEventListener("htmx:sseMessage", () => paused || draw());
  setInterval(() => paused || draw(), 30000);
})();
