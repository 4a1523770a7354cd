// The curves of one card: used, held, unmanaged and usable, drawn with uPlot and read again every ten seconds.
(() => {
  "use strict";
  const place = document.getElementById("curves");
  if (!place || typeof uPlot === "undefined") return;
  const AGAIN_MS = 10000;
  let hours = 1;
  let plot = null;

  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function options() {
    const line = (label, color, extra) => ({
      label, stroke: color, width: 2, spanGaps: false, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }),
      value: (_u, v) => v === null || v === undefined ? "?" : `${v.toLocaleString("en")} MiB`, ...extra,
    });
    const axis = { stroke: ink("--soft"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line") } };
    return {
      width: place.clientWidth, height: 260,
      scales: { y: { range: (_u, _min, max) => [0, Math.max(1, max) * 1.04] } },
      axes: [axis, { ...axis, size: 74, values: (_u, ticks) => ticks.map((tick) => tick.toLocaleString("en")) }],
      series: [
        {},
        line("usable", ink("--soft"), { dash: [2, 4], width: 1 }),
        line("held", ink("--held"), { fill: `${ink("--held")}22` }),
        line("used", ink("--ink"), { dash: [8, 4] }),
        line("unmanaged", ink("--un-line"), { dash: [3, 3] }),
      ],
    };
  }

  function draw(columns) {
    const data = [columns.at, columns.usable, columns.held, columns.used, columns.unmanaged];
    if (!columns.at.length) {
      plot?.destroy();
      plot = null;
      place.innerHTML = '<p class="empty">No sample of this time is kept.</p>';
    } else if (plot) {
      plot.setData(data);
    } else {
      place.textContent = "";
      plot = new uPlot(options(), data, place);
    }
  }

  async function read() {
    try {
      const answer = await fetch(`${place.dataset.from}?hours=${hours}`);
      if (answer.ok) draw(await answer.json());
      else if (!plot) place.innerHTML = '<p class="empty">The samples could not be read.</p>';
    } catch { if (!plot) place.innerHTML = '<p class="empty">The samples could not be read.</p>'; }
  }

  for (const button of document.querySelectorAll("[data-hours]")) {
    button.addEventListener("click", () => {
      hours = Number(button.dataset.hours);
      for (const each of document.querySelectorAll("[data-hours]")) each.setAttribute("aria-pressed", String(each === button));
      read();
    });
  }
  document.addEventListener("theme", () => { plot?.destroy(); plot = null; read(); });
  addEventListener("resize", () => plot?.setSize({ width: place.clientWidth, height: 260 }));
  setInterval(() => { if (!document.hidden) read(); }, AGAIN_MS);
  read();
})();
