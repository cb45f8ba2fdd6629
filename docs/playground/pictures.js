/* The two large pictures of a network: its decision regions, and the data on its way through the layers. */
"use strict";

const radiusFor = (width, n) => Math.max(1.8, Math.min(width / 105, 65 / Math.sqrt(n)));

/** Training points over the regions that the network has found. */
class BoundaryPicture {
  constructor(canvas, arm, grid) {
    Object.assign(this, { canvas, arm, grid });
    this.regions = new Regions(arm.data.classes);
  }

  draw({ heldout, axes }) {
    const drawing = cleared(this.canvas);
    if (!drawing) return;
    const { context, width } = drawing, { data } = this.arm;
    this.regions.update(this.grid.logits, this.grid.side);
    this.regions.draw(context, width);
    const to = (value, sign) => (width / 2) * (1 + (sign * value) / data.range);
    const place = ({ x }) => (s, point) => {
      point[0] = to(x[2 * s], 1);
      point[1] = to(x[2 * s + 1], -1);
    };
    const radius = radiusFor(width, data.train.n);
    if (heldout) drawPoints(drawing, data.test, data.classes, place(data.test), { radius, hollow: true });
    drawPoints(drawing, data.train, data.classes, place(data.train), { radius });
    if (axes) this._axes(context, width, to);
  }

  /** In the units of the table. */
  _axes(context, width, to) {
    const { range, scale, columns } = this.arm.data;
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = palette().text;
    context.textAlign = "center";
    for (const f of [0, 1]) {
      const toUnits = (value) => scale.mean[f] + value * scale.deviation[f];
      for (const tick of ticks(toUnits(-range), toUnits(range), 5)) {
        const value = (tick - scale.mean[f]) / scale.deviation[f];
        if (Math.abs(value) > 0.86 * range) continue;
        if (f === 0) context.fillText(brief(tick), to(value, 1), width - 6);
        else context.fillText(brief(tick), 18, to(value, -1) + 4);
      }
    }
    context.textAlign = "right";
    context.fillText(columns[0].slice(0, 24), width - 6, width - 20);
    context.textAlign = "left";
    context.fillText(columns[1].slice(0, 24), 6, 14);
  }
}

/** The training points as a layer has them, with where they come from. */
class FlowPicture {
  constructor(canvas, arm) {
    Object.assign(this, { canvas, arm });
    const { n } = arm.data.train;
    this.plane = new Plane(arm.network.width);
    this.regions = new Regions(arm.data.classes);
    this.places = [0, 1, 2, 3].map(() => new Float64Array(2 * n));
    this.side = 16;
    this.logits = new Float64Array(this.side ** 2 * arm.data.classes);
  }

  /** Look again where the states are. */
  follow() {
    const { pass, network, data } = this.arm;
    this.plane.follow(pass.states, (network.nLayers + 1) * data.train.n);
    this._classify();
  }

  /** At `position` 0 … N, between two states where it is not whole. */
  draw(position) {
    const drawing = cleared(this.canvas);
    if (!drawing) return;
    const { context, width } = drawing, { pass, network, data } = this.arm, { n } = data.train;
    const size = n * network.width, base = Math.min(Math.floor(position), network.nLayers), part = position - base;
    if (position === network.nLayers) this.regions.draw(context, width);
    // The newest place is in places[0], those of the states before in the others.
    const [here, ...before] = this.places;
    this.plane.project(pass.states, base * size, n, here);
    if (part > 0) {
      this.plane.project(pass.states, (base + 1) * size, n, before[0]);
      for (let i = 0; i < 2 * n; i++) here[i] += part * (before[0][i] - here[i]);
    }
    const known = Math.min(base + (part > 0 ? 1 : 0), before.length);
    for (let back = 0; back < known; back++) {
      this.plane.project(pass.states, (base - back - (part > 0 ? 0 : 1)) * size, n, before[back]);
    }
    const to = (value, sign) => (width / 2) * (1 + (sign * value) / this.plane.range);
    this._trails(context, here, before.slice(0, known), to);
    const place = (s, point) => {
      point[0] = to(here[2 * s], 1);
      point[1] = to(here[2 * s + 1], -1);
    };
    drawPoints(drawing, data.train, data.classes, place, { radius: radiusFor(width, n) });
  }

  _trails(context, here, before, to) {
    const { labels, n } = this.arm.data.train, { classes: fills } = palette();
    context.globalAlpha = 0.28;
    context.lineWidth = 1;
    for (let c = 0; c < this.arm.data.classes; c++) {
      context.beginPath();
      for (let s = 0; s < n; s++) {
        if (labels[s] !== c || before.length === 0) continue;
        context.moveTo(to(here[2 * s], 1), to(here[2 * s + 1], -1));
        for (const places of before) context.lineTo(to(places[2 * s], 1), to(places[2 * s + 1], -1));
      }
      context.strokeStyle = fills[c];
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  /** What W makes of the last state, on the plane: regions with straight borders. */
  _classify() {
    const { side, logits, plane, arm } = this, { classes } = arm.data, { weights: { W }, width } = arm.network;
    const { range, centre, axes } = plane;
    for (let i = 0; i < side * side; i++) {
      const u = range * ((2 * (i % side)) / (side - 1) - 1), v = range * (1 - (2 * Math.floor(i / side)) / (side - 1));
      for (let c = 0; c < classes; c++) {
        let sum = 0;
        for (let k = 0; k < width; k++) sum += W[c * width + k] * (centre[k] + u * axes[0][k] + v * axes[1][k]);
        logits[i * classes + c] = sum;
      }
    }
    this.regions.update(logits, side);
  }
}

/** The sign of a class beside its name. */
function drawSign(canvas, c) {
  const drawing = cleared(canvas);
  if (!drawing) return;
  const { context, width, height } = drawing;
  context.beginPath();
  mark(context, c, width / 2, height / 2, 4.6);
  context.fillStyle = palette().classes[c];
  context.fill();
}

/** A few points of a data set, for the button that chooses it. */
function drawThumbnail(canvas, points) {
  const drawing = cleared(canvas);
  if (!drawing) return;
  const { width } = drawing, { train, classes, range } = points;
  const place = (s, point) => {
    point[0] = (width / 2) * (1 + train.x[2 * s] / range);
    point[1] = (width / 2) * (1 - train.x[2 * s + 1] / range);
  };
  drawPoints(drawing, { labels: train.labels, n: Math.min(train.n, 90) }, classes, place, { radius: 1.9 });
}
