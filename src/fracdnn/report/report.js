(async () => {
  "use strict";
  const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
  const VALUES = new Uint8Array(128).map((_, code) => Math.max(DIGITS.indexOf(String.fromCharCode(code)), 0));

  // The text of a packed script: base 85, four bytes in five letters, then deflate.
  async function unpacked(name) {
    const text = document.getElementById(name).textContent;
    const size = text.length, bytes = new DataView(new ArrayBuffer(4 * Math.ceil(size / 5)));
    for (let i = 0; i < size; i += 5) {
      let word = 0; // the last may be short: as if the largest digit came again
      for (let k = i; k < i + 5; k++) word = 85 * word + (k < size ? VALUES[text.charCodeAt(k)] : 84);
      bytes.setUint32((4 * i) / 5, word);
    }
    const packed = new Blob([bytes.buffer.slice(0, Math.floor((4 * size) / 5))]);
    return new Response(packed.stream().pipeThrough(new DecompressionStream("deflate"))).text();
  }

  if (!window.DecompressionStream) {
    document.getElementById("old-browser").hidden = false;
    return;
  }
  const library = document.createElement("script");
  library.textContent = await unpacked("plotly");
  document.head.append(library);
  const plots = JSON.parse(await unpacked("report-data"));
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const touch = window.matchMedia("(pointer: coarse)").matches;
  const config = {
    responsive: true,
    displaylogo: false,
    // A finger scrolls the page: no zooming, so no buttons for it.
    displayModeBar: touch ? false : "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
  };
  const div = (name) => document.getElementById(name);
  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");

  // What a plot takes from the page's theme, as the paths that Plotly.relayout reads.
  function themed(layout) {
    const css = getComputedStyle(root);
    const color = (name) => css.getPropertyValue(name).trim();
    const changes = {
      paper_bgcolor: color("--panel"),
      plot_bgcolor: "rgba(0,0,0,0)",
      "font.color": color("--text"),
      "hoverlabel.bgcolor": color("--panel"),
      "hoverlabel.bordercolor": color("--muted"),
      "hoverlabel.font.color": color("--text"),
      "modebar.bgcolor": "rgba(0,0,0,0)",
      "modebar.color": color("--muted"),
      "modebar.activecolor": color("--accent"),
    };
    for (const axis of Object.keys(layout).filter((key) => /^[xy]axis/.test(key))) {
      changes[axis + ".gridcolor"] = color("--grid");
      changes[axis + ".linecolor"] = color("--muted");
      changes[axis + ".showline"] = true;
    }
    return changes;
  }

  function nameButton() {
    const button = div("theme");
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", "switch to " + button.textContent.toLowerCase() + " colors");
  }

  // Sets object.a.b for the path "a.b".
  function assign(object, path, value) {
    const keys = path.split(".");
    const last = keys.pop();
    for (const key of keys) object = object[key] ??= {};
    object[last] = value;
  }

  function paint() {
    nameButton();
    for (const [name, plot] of Object.entries(plots)) Plotly.relayout(div(name), themed(plot.layout));
  }

  // The places of all traces at one state: {x: [...], y: [...]}, an array for each trace.
  function places(states, index) {
    const n = states.sizes.reduce((sum, size) => sum + size, 0);
    const found = {};
    ["x", "y"].forEach((axis, k) => {
      let start = (2 * index + k) * n;
      found[axis] = states.sizes.map((size) => Array.from(states.numbers.subarray(start, (start += size))));
    });
    return found;
  }

  function prepare(plot) {
    const bytes = Uint8Array.from(atob(plot.states.values), (letter) => letter.charCodeAt(0));
    plot.states.numbers = new Float32Array(bytes.buffer);
    // As the slider stands: after the last layer.
    for (const [axis, parts] of Object.entries(places(plot.states, plot.states.layers.length - 1))) {
      plot.data.forEach((trace, k) => { trace[axis] = parts[k]; });
    }
  }

  function drive(name, states) {
    const slider = div("state");
    const play = div("play");
    const last = states.layers.length - 1;
    let timer = 0;
    const say = () => {
      const layer = states.layers[slider.valueAsNumber];
      const what = layer === 0 ? "state 0, before layer 1" : "state " + layer + " of " + states.layers[last];
      div("state-name").textContent = what;
      slider.setAttribute("aria-valuetext", what);
    };
    const show = () => {
      say();
      Plotly.restyle(div(name), places(states, slider.valueAsNumber));
    };
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      play.textContent = "Play";
    };
    const advance = () => {
      slider.value = slider.valueAsNumber + 1;
      show();
      if (slider.valueAsNumber === last) stop();
    };
    const begin = () => {
      if (slider.valueAsNumber === last) slider.value = 0;
      show();
      play.textContent = "Pause";
      timer = setInterval(advance, Math.min(600, Math.max(80, 5000 / last)));
    };
    slider.addEventListener("input", () => { stop(); show(); });
    play.addEventListener("click", () => (timer ? stop() : begin()));
    say();
  }

  function switchClass(button) {
    const shown = button.getAttribute("aria-pressed") === "false";
    button.setAttribute("aria-pressed", String(shown));
    for (const graph of button.closest("figure").querySelectorAll(".plot")) {
      const traces = [...graph.data.keys()].filter((k) => graph.data[k].meta === Number(button.dataset.class));
      if (traces.length) Plotly.restyle(graph, { visible: shown }, traces);
    }
  }

  for (const [name, plot] of Object.entries(plots)) {
    if (plot.states) prepare(plot);
    const layout = {
      autosize: true,
      margin: { l: 56, r: 16, t: 28, b: 48 },
      font: { family: getComputedStyle(document.body).fontFamily, size: 13 },
      legend: { orientation: "h", x: 0, y: 1.01, yanchor: "bottom" },
      dragmode: touch ? false : "zoom",
      uirevision: "kept",
      ...plot.layout,
    };
    // In the theme's colors before it is drawn, so that it is drawn once.
    for (const [path, value] of Object.entries(themed(layout))) assign(layout, path, value);
    Plotly.newPlot(div(name), plot.data, layout, config);
    if (plot.states) drive(name, plot.states);
  }
  nameButton();
  dark.addEventListener("change", paint);
  div("theme").hidden = false;
  div("theme").addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    paint();
  });
  document.querySelectorAll(".key button").forEach((button) => {
    button.addEventListener("click", () => switchClass(button));
  });
})();
