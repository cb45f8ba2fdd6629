/* Everything that shows the networks: pictures, charts, scores and numbers. */
"use strict";

/** A canvas, which `_descriptions` puts into words, below the name of its network where there are several. */
function figureOf(name) {
  const figure = document.createElement("figure"), canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  if (name) {
    const caption = document.createElement("figcaption");
    caption.textContent = name;
    figure.append(caption);
  }
  figure.append(canvas);
  return figure;
}

function row(cells) {
  const line = document.createElement("tr");
  cells.forEach((text, i) => {
    const cell = document.createElement(i ? "td" : "th");
    if (!i) cell.scope = "row";
    cell.textContent = text;
    line.append(cell);
  });
  return line;
}

class Views {
  /** Other networks or data: new canvases. */
  show(arms, grids, data) {
    const canvases = (where) => {
      const figures = arms.map((arm) => figureOf(arms.length > 1 ? arm.name : ""));
      element(where).replaceChildren(...figures);
      return figures.map((figure) => figure.querySelector("canvas"));
    };
    this.boundaries = canvases("boundaries").map((canvas, i) => new BoundaryPicture(canvas, arms[i], grids[i]));
    this.flows = canvases("flows").map((canvas, i) => new FlowPicture(canvas, arms[i]));
    this._legend(data);
  }

  _legend(data) {
    element("legend").replaceChildren(...data.classNames.map((name, c) => {
      const item = document.createElement("li"), sign = document.createElement("canvas");
      sign.setAttribute("aria-hidden", "true");
      sign.dataset.class = c;
      item.append(sign, `class ${name}`);
      return item;
    }));
  }

  drawBoundary(grid, settings) {
    const picture = this.boundaries.find((each) => each.grid === grid);
    picture?.draw({ heldout: settings.heldout, axes: settings.data === "own" });
  }

  /** What is drawn in every frame, and what now and then. */
  draw(playground, { charts, flow }) {
    const { arms, data, settings, controls, position, stale } = playground;
    if (stale) {
      forgetPalette();
      element("theme").textContent = document.documentElement.dataset.theme === "dark" ? "Light" : "Dark";
      controls.drawThumbnails(playground.table);
      element("legend").querySelectorAll("canvas").forEach((canvas) => drawSign(canvas, Number(canvas.dataset.class)));
    }
    if (charts) this.flows.forEach((picture) => picture.follow());
    if (flow) {
      this.flows.forEach((picture) => picture.draw(position));
      this._layerName(position, settings.layers);
    }
    const layer = Math.min(Math.round(position), settings.layers);
    if (charts && (stale || settings.learn || layer !== this.layer)) drawNetwork(element("memory"), arms, layer);
    if (charts) this._charts(arms, data, (this.layer = layer));
  }

  _layerName(position, layers) {
    const whole = Math.round(position), last = whole === layers ? ", last" : "";
    const name = whole ? `layer ${whole}${last}` : "input";
    element("layer-name").textContent = name;
    element("layer").value = whole;
    element("layer").setAttribute("aria-valuetext", name);
  }

  _charts(arms, data, layer) {
    const [arm] = arms, printed = arm.printedGradient();
    for (const each of arms) each.test();
    drawGradients(element("gradients"), arms, printed, layer);
    drawLosses(element("losses"), arms);
    element("memory-note").textContent = memorySentence(arm, layer);
    element("gradients-note").textContent = gradientsSentence(arm, printed);
    element("losses-note").textContent = lossesSentence(arms);
    element("steps").textContent = arm.steps.toLocaleString("en");
    document.querySelector("#scores tbody").replaceChildren(
      ...arms.map((each) => row([each.name, digits(each.loss), digits(each.testLoss), percent(each.accuracy)])),
    );
    this._descriptions(arms, data, layer);
    if (element("numbers").open) this._numbers(arm, printed, layer);
  }

  _descriptions(arms, data, layer) {
    const points = `${data.train.n} training points of ${data.classes} classes`;
    arms.forEach((arm, i) => {
      const right = `${percent(arm.accuracy)} of held-out points are right`;
      const regions = `Decision regions of ${arm.name} over ${points}; ${right}.`;
      this.boundaries[i].canvas.setAttribute("aria-label", regions);
      this.flows[i].canvas.setAttribute("aria-label", `${points} at layer ${layer} of ${arm.name}.`);
    });
    const meaning = "a stronger color means a higher probability. Lines separate the classes.";
    element("boundary-note").textContent = `${points}; ${meaning}`;
    const { width } = arms[0].network, share = percent(this.flows[0].plane.share);
    const best = `The plane that shows most of ${width} coordinates (${share} of their spread)`;
    const plane = width === 2 ? "The states themselves" : best;
    const rest = "each point with its last three steps. In the last layer, straight lines separate the classes.";
    element("flow-note").textContent = `${plane}, ${rest}`;
  }

  _numbers(arm, printed, layer) {
    const n = Math.max(layer, 1), { nLayers, residual, order } = arm.network, { norms } = arm;
    const weights = residual ? memoryWeights(order, n) : [];
    const share = (j) => (j < n && weights.length ? percent(weights[j]) : "–");
    const last = (j) => (printed ? digits(printed.norms[j]) : "–");
    element("numbers-memory").textContent = `Weight of the state before it in layer ${n}`;
    const rows = Array.from({ length: nLayers }, (_, j) => row([String(j + 1), share(j), digits(norms[j]), last(j)]));
    document.querySelector("#numbers tbody").replaceChildren(...rows);
  }

  showFlowing(flowing) {
    element("flow-play").textContent = flowing ? "Stop" : "Run through";
  }

  /** The scores in one sentence. */
  summary(arms) {
    const said = arms.map((arm) => {
      const name = arms.length > 1 ? `${arm.name}: ` : "";
      return `${name}loss ${digits(arm.loss)}, ${percent(arm.accuracy)} of held-out points right`;
    });
    return `Step ${arms[0].steps.toLocaleString("en")}: ${said.join("; ")}.`;
  }
}
