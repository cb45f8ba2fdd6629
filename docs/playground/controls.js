/* The controls of the page: they show the settings and report what the user changes. */
"use strict";

const element = (id) => document.getElementById(id);

const RANGES = ["points", "noise", "classes", "order", "layers", "width", "tau"];
const SELECTS = ["activation", "compare", "rate", "gradient", "speed"];
const FLAGS = ["heldout", "learn"];
const SHOWN = { noise: (v) => v.toFixed(2), order: (v) => v.toFixed(2), tau: (v) => v.toFixed(2) };

class Controls {
  /** `change(name, value)` is called for every setting that the user changes, `file(file)` for a file. */
  constructor({ change, file }) {
    this._datasets(change);
    for (const name of RANGES) {
      const input = element(name), { least, most, step } = SETTINGS[name];
      Object.assign(input, { min: least, max: most, step });
      input.addEventListener("input", () => change(name, valid(name, input.value)));
    }
    element("layer").addEventListener("input", (event) => change("layer", valid("layer", event.target.value)));
    for (const name of [...SELECTS, "seed"]) {
      element(name).addEventListener("change", (event) => change(name, valid(name, event.target.value)));
    }
    for (const name of FLAGS) element(name).addEventListener("change", (event) => change(name, event.target.checked));
    element("new-seed").addEventListener("click", () => change("seed", Math.floor(10000 * Math.random())));
    element("file").addEventListener("change", (event) => event.target.files[0] && file(event.target.files[0]));
    document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
    if (matchMedia("(max-width: 760px)").matches) {
      document.querySelectorAll(".controls details").forEach((details) => { details.open = false; });
    }
  }

  _datasets(change) {
    this.thumbnails = {};
    for (const [name, { title }] of Object.entries(DATASETS)) {
      const [label, input, canvas] = ["label", "input", "canvas"].map((kind) => document.createElement(kind));
      Object.assign(input, { type: "radio", name: "data", value: name, id: `data-${name}` });
      input.addEventListener("change", () => change("data", name));
      canvas.setAttribute("aria-hidden", "true");
      label.append(input, canvas, title);
      element("datasets").append(label);
      this.thumbnails[name] = canvas;
    }
  }

  drawThumbnails(table) {
    for (const [name, canvas] of Object.entries(this.thumbnails)) {
      if (name === "own" && !table) continue;
      const classes = name === "clouds" ? 5 : Math.min(DATASETS[name].classes[1], 3);
      const points = name === "own" ? table : drawn(name, { n: 135, noise: 0.1, classes, seed: 3 });
      drawThumbnail(canvas, prepared(points, 3));
    }
  }

  /** Show these settings; `data` are the points that they gave. */
  show(settings, { data }) {
    const own = settings.data === "own", [fewest, most] = DATASETS[settings.data].classes;
    for (const name of RANGES) this._range(name, settings[name]);
    for (const name of [...SELECTS, "seed"]) element(name).value = String(settings[name]);
    for (const name of FLAGS) element(name).checked = settings[name];
    element(`data-${settings.data}`).checked = true;
    for (const link of document.querySelectorAll("#experiments a")) {
      link.setAttribute("aria-current", link.hash === `#${hashOf(settings)}`);
    }
    this._range("classes", data.classes);
    element("classes").disabled = own || fewest === most;
    this._range("points", data.train.n);
    element("points").disabled = element("noise").disabled = own;
    element("order").max = settings.learn ? MOST_LEARNT : SETTINGS.order.most;
    const layer = element("layer");
    layer.max = settings.layers;
    layer.value = Math.min(settings.layer, settings.layers);
    this._notes(settings);
  }

  /** Of a table with more than three columns: which two are numbers, which one is the class. */
  offerColumns({ columns, numeric }, chosen, take) {
    element("columns").hidden = columns.length === 3;
    chosen.forEach((column, i) => {
      const select = element(`column-${i}`), options = columns.map((name, c) => new Option(name, c));
      select.replaceChildren(...options.filter((_, c) => i === 2 || numeric[c]));
      select.value = column;
      select.onchange = () => take(chosen.with(i, Number(select.value)));
    });
  }

  _range(name, value) {
    const text = (SHOWN[name] ?? String)(value), input = element(name);
    input.value = value;
    input.setAttribute("aria-valuetext", text);
    document.querySelector(`output[for="${name}"]`).textContent = text;
  }

  _notes(settings) {
    this._showStep(settings.order, settings.tau);
    const printable = canPrint(settings);
    element("gradient").disabled = !printable;
    element("gradient-note").textContent = printable
      ? settings.gradient === "printed" ? "Training follows a vector that is not the gradient." : ""
      : "The paper prints it for tanh and a fixed order.";
  }

  _showStep(order, tau) {
    const c = stepFactor(order, tau).value;
    element("effective").textContent = `A layer adds c = Γ(2−γ) τᵞ = ${c.toFixed(3)} times its activation.`;
  }

  /** Show a learned order as it is now, and the step that follows from it. */
  showOrder({ order, tau }, now) {
    document.querySelector('output[for="order"]').textContent = `${order.toFixed(2)} → ${now.toFixed(3)}`;
    this._showStep(now, tau);
  }
}
