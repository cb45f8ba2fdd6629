/* Networks that are trained side by side on the same points from the same start. */
"use strict";

const MOST_RECORDS = 200;

/** One network in training. Its states, loss and gradient are always those of its parameters as they stand. */
class Arm {
  constructor(name, options, data, { seed, rate, gradient }) {
    this.name = name;
    this.data = data;
    this.network = new Network(options);
    this.network.draw(uniformFrom(seed + 104729));
    this.pass = new Pass(this.network, data.train.n, { gradients: true });
    this.testPass = new Pass(this.network, Math.max(data.test.n, 1));
    this.adam = new Adam(this.network.weights.all.length, Number(rate));
    this.usesPrinted = gradient === "printed" && this.network.residual;
    this.steps = 0;
    this.stride = 1;
    this.records = [];
    this._evaluate();
    this._record();
  }

  step() {
    this.adam.step(this.network.weights.all, (this.usesPrinted ? this.pass.printed : this.pass.gradient).all);
    this.network.update();
    this.steps++;
    this._evaluate();
    if (this.steps % this.stride === 0) this._record();
  }

  _evaluate() {
    const { x, labels } = this.data.train;
    this.pass.forward(x);
    this.loss = this.pass.loss(labels);
    this.pass.backward(x);
    if (this.usesPrinted) this.pass.printedBackward(x);
  }

  /** Loss and share of right classes on the held-out points, as things stand. */
  test() {
    const { x, labels, n } = this.data.test, { testPass } = this, classes = this.data.classes;
    const logits = testPass.forward(x, n);
    this.testLoss = testPass.loss(labels);
    let right = 0;
    for (let s = 0; s < n; s++) {
      let best = 0;
      for (let c = 1; c < classes; c++) if (logits[s * classes + c] > logits[s * classes + best]) best = c;
      right += best === labels[s] ? 1 : 0;
    }
    this.accuracy = right / n;
  }

  _record() {
    this.test();
    this.records.push({ step: this.steps, loss: this.loss, testLoss: this.testLoss });
    if (this.records.length <= MOST_RECORDS) return;
    this.stride *= 2;
    this.records = this.records.filter(({ step }) => step % this.stride === 0);
  }

  get isFinite() {
    return Number.isFinite(this.loss);
  }

  get norms() {
    return layerNorms(this.pass.gradient, this.network.nLayers);
  }

  /** Norms by layer of the printed gradient, and its cosine with the exact one over all K and b; null without one. */
  printedGradient() {
    const { network, pass } = this;
    if (!network.residual || network.activation !== "tanh") return null;
    if (!this.usesPrinted) pass.printedBackward(this.data.train.x);
    let both = 0, exact = 0, printed = 0;
    for (const name of ["K", "b"]) {
      const a = pass.gradient[name], b = pass.printed[name];
      for (let i = 0; i < a.length; i++) {
        both += a[i] * b[i];
        exact += a[i] * a[i];
        printed += b[i] * b[i];
      }
    }
    return { norms: layerNorms(pass.printed, network.nLayers), cosine: both / Math.sqrt(exact * printed) };
  }
}

const shown = (order) => String(Number(order.toFixed(3)));

/** The networks that the settings ask for: that with memory, and the one beside it. */
function armsOf(settings, data) {
  const { order, learn, layers, width, tau, activation, compare } = settings;
  // Of two features and width 2 the states are the points themselves, as in the paper; else a map opens the network.
  const shape = { nOutputs: data.classes, nLayers: layers, width: width === 2 ? null : width };
  const common = { ...shape, activation, stepSize: tau };
  const gradient = canPrint(settings) ? settings.gradient : "exact", training = { ...settings, gradient };
  const name = order === 1 ? "residual, order 1" : `order ${shown(order)}`;
  const arms = [new Arm(learn ? "learned order" : name, { ...common, order, learnOrder: learn }, data, training)];
  if (compare === "residual") arms.push(new Arm("residual, same τ", { ...common, order: 1 }, data, training));
  if (compare === "matched") {
    const stepSize = stepFactor(order, tau).value;
    arms.push(new Arm("residual, same c", { ...common, order: 1, stepSize }, data, training));
  }
  if (compare === "plain") arms.push(new Arm("plain", { ...common, order: 1, residual: false }, data, training));
  return arms;
}

const GRID = 48, CHUNK = 48;

/** Logits of a network over a square of the plane, a few rows at a time; `logits` are those of the last whole round. */
class Grid {
  constructor(arm) {
    this.arm = arm;
    this.side = GRID;
    this.pass = new Pass(arm.network, CHUNK);
    this.x = new Float64Array(2 * GRID * GRID);
    this.logits = new Float64Array(GRID * GRID * arm.data.classes);
    this.coming = new Float64Array(this.logits.length);
    this.at = 0;
    const { range } = arm.data, place = (i) => range * ((2 * i) / (GRID - 1) - 1);
    for (let i = 0; i < GRID * GRID; i++) {
      this.x[2 * i] = place(i % GRID);
      this.x[2 * i + 1] = -place(Math.floor(i / GRID));
    }
  }

  /** Go on until `deadline`; true when a round is whole. */
  advance(deadline) {
    const total = this.side ** 2, classes = this.arm.data.classes;
    do {
      const count = Math.min(CHUNK, total - this.at);
      this.pass.forward(this.x.subarray(2 * this.at), count);
      for (let i = 0; i < count * classes; i++) this.coming[this.at * classes + i] = this.pass.logits[i];
      this.at += count;
      if (this.at === total) {
        [this.logits, this.coming] = [this.coming, this.logits];
        this.at = 0;
        return true;
      }
    } while (performance.now() < deadline);
    return false;
  }
}
