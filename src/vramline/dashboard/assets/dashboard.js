// What a page does by itself: ages, the light that says whether it is live, theme, keys.
(() => {
  "use strict";
  const SILENT_MS = 7000;
  const RETRY_MS = 5000;
  let offset = Number(document.body.dataset.now) * 1000 - Date.now();
  let heard = 0;
  let retried = Date.now();

  const now = () => Date.now() + offset;

  function say(ms) {
    const s = Math.max(0, Math.round(ms / 1000));
    if (s < 100) return `${s} s ago`;
    const m = Math.round(s / 60);
    if (m < 100) return `${m} min ago`;
    const h = Math.round(m / 60);
    return h < 48 ? `${h} h ago` : `${Math.round(h / 24)} d ago`;
  }

  function tellTimes() {
    for (const each of document.querySelectorAll("time[data-at]")) {
      const at = Number(each.dataset.at) * 1000;
      const words = say(now() - at);
      if (each.textContent !== words) each.textContent = words;
      if (!each.title) each.title = new Date(at).toLocaleString();
    }
  }

  function tellPulse() {
    const light = document.getElementById("pulse");
    const live = document.getElementById("live");
    if (!light || !live) return;
    const silent = Date.now() - heard;
    const state = heard && silent < SILENT_MS ? "live" : heard || Date.now() - started > SILENT_MS ? "lost" : "waiting";
    if (light.dataset.state !== state) {
      light.dataset.state = state;
      light.querySelector(".words").textContent = { live: "live", lost: "disconnected", waiting: "connecting" }[state];
      document.documentElement.classList.toggle("is-lost", state === "lost");
    }
    const banner = document.getElementById("lost");
    banner.hidden = state !== "lost";
    if (state === "lost") {
      document.getElementById("lost-at").textContent = heard ? say(silent) : "when it was opened";
      if (!document.hidden && Date.now() - retried > RETRY_MS) {
        retried = Date.now();
        live.dispatchEvent(new CustomEvent("reconnect"));
      }
    }
  }

  const started = Date.now();
  document.addEventListener("clock", (event) => {
    offset = Number(event.detail.data) * 1000 - Date.now();
    heard = Date.now();
    tellPulse();
  });
  document.addEventListener("htmx:sse:after:message", () => { heard = Date.now(); tellTimes(); });
  document.addEventListener("visibilitychange", () => { if (!document.hidden && heard) heard = Date.now(); });
  setInterval(() => { tellTimes(); tellPulse(); }, 1000);
  tellTimes();

  // Filters apply when something is chosen; the button is for those without scripts.
  for (const form of document.querySelectorAll("form.filters")) {
    form.addEventListener("change", () => form.requestSubmit());
    form.addEventListener("submit", () => {
      for (const each of form.elements) if (each.name && (each.value === "" || (each.name === "order" && each.value === "name"))) each.disabled = true;
    });
  }
  window.addEventListener("pageshow", () => {
    for (const each of document.querySelectorAll("form.filters [name]")) each.disabled = false;
  });

  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName ?? "");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      const field = document.querySelector("[data-slash]");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    }
  });

  const button = document.getElementById("theme");
  if (button) {
    const dark = () => document.documentElement.dataset.theme === "dark" ||
      (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    const name = () => { button.textContent = dark() ? "Light" : "Dark"; };
    button.hidden = false;
    name();
    button.addEventListener("click", () => {
      const theme = dark() ? "light" : "dark";
      document.documentElement.dataset.theme = theme;
      try { localStorage.setItem("theme", theme); } catch { /* only for now */ }
      name();
      document.dispatchEvent(new CustomEvent("theme"));
    });
  }
})();
