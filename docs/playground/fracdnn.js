/* The mathematics of fracdnn in float64: memory weights, forward pass, exact and printed adjoint, Adam.

   Layer j is an average of all earlier states plus a step,

       Y_j = a_{j-1} Y_0 + Σ_{k=1}^{j-1} h_{j-k} Y_k + c σ(K_{j-1} Y_{j-1} + b_{j-1}),   c = Γ(2-order) step^order,

   as in the Python library, which tests hold this module to. Samples are rows; arrays are flat, row by row. */
"use strict";

const SERIES_TERMS = 27; // of the series for h_m: below rounding at m = 2
const LANCZOS = [
  0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
];

const ACTIVATIONS = ["tanh", "relu", "silu", "sigmoid", "identity"];

/** a_0 … a_{n-1} and their derivatives by the order: a_m = (m+1)^p - m^p without cancellation, p = 1 - order. */
function l1Weights(order, n) {
  const values = new Float64Array(n), slopes = new Float64Array(n), p = 1 - order;
  if (n > 0) values[0] = 1;
  for (let m = 1; m < n; m++) {
    const step = Math.log1p(1 / m);
    values[m] = m ** p * Math.expm1(p * step);
    slopes[m] = -(Math.log(m) * values[m] + (m + 1) ** p * step);
  }
  return { values, slopes };
}

/** h_1 … h_n at places 0 … n-1, and their derivatives: h_m = a_{m-1} - a_m, by a series with terms of one sign. */
function l1Differences(order, n) {
  const values = new Float64Array(n), slopes = new Float64Array(n), p = 1 - order;
  if (n > 0) {
    values[0] = -2 * Math.expm1(-order * Math.LN2);
    slopes[0] = 2 * Math.LN2 * Math.exp(-order * Math.LN2);
  }
  for (let m = 2; m <= n; m++) {
    let term = 1, logSlope = 0, series = 1, seriesSlope = 0;
    for (let k = 1; k <= SERIES_TERMS; k++) {
      term *= ((2 * k - p) * (2 * k + 1 - p)) / ((2 * k + 1) * (2 * k + 2) * m * m);
      logSlope += 1 / (2 * k - p) + 1 / (2 * k + 1 - p);
      series += term;
      seriesSlope += term * logSlope;
    }
    const power = m ** (-1 - order);
    values[m - 1] = order * p * power * series;
    slopes[m - 1] = power * ((p - order - order * p * Math.log(m)) * series + order * p * seriesSlope);
  }
  return { values, slopes };
}

/** The weights of Y_0 … Y_{n-1} in Y_n: a_{n-1}, h_{n-1}, …, h_1. They sum to 1. */
function memoryWeights(order, n) {
  const oldest = l1Weights(order, n).values[n - 1], differences = l1Differences(order, n - 1).values;
  return Float64Array.of(oldest, ...differences.reverse());
}

function gamma(x) {
  let series = LANCZOS[0];
  for (let k = 1; k < LANCZOS.length; k++) series += LANCZOS[k] / (x - 1 + k);
  const shifted = x + 6.5;
  return Math.sqrt(2 * Math.PI) * Math.exp((x - 0.5) * Math.log(shifted) - shifted) * series;
}

/** Γ'(x)/Γ(x) for x > 0: upwards by its recurrence, then its asymptotic series. */
function digamma(x) {
  let sum = 0;
  for (; x < 12; x++) sum -= 1 / x;
  const y = 1 / (x * x);
  const tail = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (1 / 132 - (y * 691) / 32760)))));
  return sum + Math.log(x) - 0.5 / x - tail;
}

function stepFactor(order, stepSize) {
  const value = gamma(2 - order) * stepSize ** order;
  return { value, slope: value * (Math.log(stepSize) - digamma(2 - order)) };
}

/** The mean cross-entropy of softmax(logits) [n, classes]; its gradient goes to `cotangent`. */
function crossEntropy(logits, labels, n, classes, cotangent) {
  let total = 0;
  for (let s = 0, at = 0; s < n; s++, at += classes) {
    let most = -Infinity, sum = 0;
    for (let c = 0; c < classes; c++) most = Math.max(most, logits[at + c]);
    for (let c = 0; c < classes; c++) sum += Math.exp(logits[at + c] - most);
    const log = most + Math.log(sum);
    for (let c = 0; c < classes; c++) cotangent[at + c] = Math.exp(logits[at + c] - log) / n;
    cotangent[at + labels[s]] -= 1 / n;
    total += log - logits[at + labels[s]];
  }
  return total / n;
}

/** σ of `values` from `at` on, in place; `slopes` gets σ', unless it is null. */
function activate(kind, values, slopes, at, size) {
  const end = at + size;
  if (kind === "tanh") {
    for (let i = at; i < end; i++) values[i] = Math.tanh(values[i]);
    if (slopes) for (let i = at; i < end; i++) slopes[i] = 1 - values[i] * values[i];
  } else if (kind === "relu") {
    for (let i = at; i < end; i++) values[i] = Math.max(values[i], 0);
    if (slopes) for (let i = at; i < end; i++) slopes[i] = values[i] > 0 ? 1 : 0;
  } else if (kind === "silu") {
    for (let i = at; i < end; i++) {
      const z = values[i], s = 1 / (1 + Math.exp(-z));
      values[i] = z * s;
      if (slopes) slopes[i] = s * (1 + z * (1 - s));
    }
  } else if (kind === "sigmoid") {
    for (let i = at; i < end; i++) values[i] = 1 / (1 + Math.exp(-values[i]));
    if (slopes) for (let i = at; i < end; i++) slopes[i] = values[i] * (1 - values[i]);
  } else if (slopes) {
    slopes.fill(1, at, end);
  }
}

/** target[at + i] += Σ_k row[k] · source[(first + k)·size + i] for k < count, four states at a time. */
function addWeighted(target, at, source, first, size, row, count) {
  let k = 0;
  for (; k + 3 < count; k += 4) {
    const w0 = row[k], w1 = row[k + 1], w2 = row[k + 2], w3 = row[k + 3];
    const s0 = (first + k) * size, s1 = s0 + size, s2 = s1 + size, s3 = s2 + size;
    for (let i = 0; i < size; i++) {
      target[at + i] += w0 * source[s0 + i] + w1 * source[s1 + i] + w2 * source[s2 + i] + w3 * source[s3 + i];
    }
  }
  for (; k < count; k++) {
    const weight = row[k], s = (first + k) * size;
    for (let i = 0; i < size; i++) target[at + i] += weight * source[s + i];
  }
}

/** target[n, rows] from `to` on = source[n, columns] from `from` on times matrixᵀ, plus b unless it is null. */
function affine(target, to, source, from, n, matrix, at, rows, columns, b, bAt) {
  for (let s = 0; s < n; s++, from += columns, to += rows) {
    for (let i = 0, m = at; i < rows; i++, m += columns) {
      let sum = b ? b[bAt + i] : 0;
      for (let l = 0; l < columns; l++) sum += matrix[m + l] * source[from + l];
      target[to + i] = sum;
    }
  }
}

/** target[n, columns] from `to` on += source[n, rows] from `from` on times matrix. */
function addTransposed(target, to, source, from, n, matrix, at, rows, columns) {
  for (let s = 0; s < n; s++, from += rows, to += columns) {
    for (let i = 0, m = at; i < rows; i++, m += columns) {
      const value = source[from + i];
      for (let l = 0; l < columns; l++) target[to + l] += value * matrix[m + l];
    }
  }
}

/** gradient [rows, columns] from `at` on = Σ over samples of left ⊗ right; `b` gets the sum of left, unless null. */
function sumOuter(gradient, at, left, from, right, at2, n, rows, columns, b, bAt) {
  for (let i = 0; i < rows; i++) {
    if (b) {
      let sum = 0;
      for (let s = 0, f = from + i; s < n; s++, f += rows) sum += left[f];
      b[bAt + i] = sum;
    }
    for (let l = 0; l < columns; l++) {
      let sum = 0;
      for (let s = 0, f = from + i, r = at2 + l; s < n; s++, f += rows, r += columns) sum += left[f] * right[r];
      gradient[at + i * columns + l] = sum;
    }
  }
}

/** Parameters of the paper's network, or anything of their shapes, as parts of one flat array. */
class Weights {
  constructor({ nFeatures, nOutputs, nLayers, width, hasInputProjection, learnOrder }) {
    const sizes = {
      inputWeight: hasInputProjection ? width * nFeatures : 0,
      inputBias: hasInputProjection ? width : 0,
      K: nLayers * width * width,
      b: nLayers * width,
      W: nOutputs * width,
      rawOrder: learnOrder ? 1 : 0,
    };
    this.all = new Float64Array(Object.values(sizes).reduce((sum, size) => sum + size));
    let at = 0;
    for (const [name, size] of Object.entries(sizes)) {
      this[name] = this.all.subarray(at, at + size);
      at += size;
    }
  }
}

/** d_t^order Y = σ(K(t) Y + b(t)), then W. `width` null keeps the features; a number adds a learned projection. */
class Network {
  constructor({ nFeatures = 2, nOutputs, nLayers, width = null, activation = "tanh", order = 0.5, stepSize = 0.2,
    learnOrder = false, residual = true }) {
    // Whole numbers as such (| 0): the browser's compiler indexes arrays by them twice as fast.
    this.nFeatures = nFeatures | 0;
    this.nOutputs = nOutputs | 0;
    this.nLayers = nLayers | 0;
    this.width = (width ?? nFeatures) | 0;
    this.hasInputProjection = width !== null;
    this.activation = activation;
    this.stepSize = stepSize;
    this.learnOrder = learnOrder;
    this.residual = residual;
    this.weights = new Weights(this);
    if (learnOrder) this.weights.rawOrder[0] = order - 1;
    this.setOrder(order);
  }

  /** U[-a, a] with a = √(3/fan-in) for tanh and 1/√fan-in otherwise, biases 0; `uniform()` draws from [0, 1). */
  draw(uniform) {
    const fill = (part, fanIn) => {
      const bound = Math.sqrt((this.activation === "tanh" ? 3 : 1) / fanIn);
      for (let i = 0; i < part.length; i++) part[i] = bound * (2 * uniform() - 1);
    };
    fill(this.weights.inputWeight, this.nFeatures);
    fill(this.weights.K, this.width);
    fill(this.weights.W, this.width);
  }

  setOrder(order) {
    this.order = order;
    this.a = l1Weights(order, this.nLayers);
    this.h = l1Differences(order, this.nLayers);
    this.factor = this.residual ? stepFactor(order, this.stepSize) : { value: 1, slope: 0 };
  }

  /** The parameter of the order reduced to [−1, 1], where the order is 1 − |position|. */
  _orderPosition() {
    const raw = this.weights.rawOrder[0];
    return raw - 2 * Math.round(raw / 2);
  }

  /** Take the order from its parameter, after this has changed. */
  update() {
    if (this.learnOrder) this.setOrder(Math.max(1 - Math.abs(this._orderPosition()), 1e-300));
  }

  get hasMemory() {
    return this.residual && this.order !== 1;
  }
}

/** A network at work on up to `n` samples: its states, and with `gradients` the way back. */
class Pass {
  constructor(network, n, { gradients = false } = {}) {
    const { nLayers, width, nOutputs } = network, size = (n * width) | 0;
    this.network = network;
    this.n = n | 0;
    this.states = new Float64Array((nLayers + 1) * size);
    this.values = new Float64Array(nLayers * size);
    this.logits = new Float64Array(n * nOutputs);
    this.outputCotangent = new Float64Array(n * nOutputs);
    this.row = new Float64Array(nLayers + 1);
    const back = (length) => (gradients ? new Float64Array(length) : null);
    this.slopes = back(nLayers * size);
    this.cotangents = back((nLayers + 1) * size);
    this.changes = back((nLayers + 1) * size);
    this.scratch = back(size);
    this.scratchSlopes = back(size);
    this.gradient = gradients ? new Weights(network) : null;
    this.printed = gradients ? new Weights(network) : null;
  }

  /** Y_0 … Y_N of the first `n` rows of x, and the logits. */
  forward(x, n = this.n) {
    const { network, states, values, row } = this, { nLayers, width, nFeatures, weights, a, h } = network;
    const size = (n * width) | 0, c = network.factor.value;
    this.n = n | 0;
    if (network.hasInputProjection) {
      affine(states, 0, x, 0, n, weights.inputWeight, 0, width, nFeatures, weights.inputBias, 0);
    } else {
      for (let i = 0; i < size; i++) states[i] = x[i];
    }
    for (let j = 1; j <= nLayers; j++) {
      const at = j * size, before = at - size;
      affine(values, before, states, before, n, weights.K, (j - 1) * width * width, width, width,
        weights.b, (j - 1) * width);
      activate(network.activation, values, this.slopes, before, size);
      for (let i = 0; i < size; i++) states[at + i] = c * values[before + i];
      if (network.hasMemory) {
        row[0] = a.values[j - 1];
        for (let k = 1; k < j; k++) row[k] = h.values[j - k - 1];
        addWeighted(states, at, states, 0, size, row, j);
      } else if (network.residual) {
        for (let i = 0; i < size; i++) states[at + i] += states[before + i];
      }
    }
    affine(this.logits, 0, states, nLayers * size, n, weights.W, 0, network.nOutputs, width, null, 0);
    return this.logits;
  }

  /** The loss of the last forward pass, from which both ways back start. */
  loss(labels) {
    return crossEntropy(this.logits, labels, this.n, this.network.nOutputs, this.outputCotangent);
  }

  /** ∂E/∂Y_N, and ∂E/∂W. */
  _open(gradient) {
    const { network, cotangents, states, outputCotangent, n } = this, { nLayers, width, nOutputs, weights } = network;
    const last = nLayers * n * width;
    cotangents.fill(0);
    addTransposed(cotangents, last, outputCotangent, 0, n, weights.W, 0, nOutputs, width);
    sumOuter(gradient.W, 0, outputCotangent, 0, states, last, n, nOutputs, width, null, 0);
  }

  _close(gradient, x) {
    const { network, cotangents, n } = this;
    if (!network.hasInputProjection) return;
    sumOuter(gradient.inputWeight, 0, cotangents, 0, x, 0, n, network.width, network.nFeatures,
      gradient.inputBias, 0);
  }

  /** The exact discrete adjoint: the transpose of the forward sums. `gradient` gets that of every parameter. */
  backward(x) {
    const { network, states, cotangents, slopes, scratch, row, gradient, n } = this;
    const { nLayers, width, weights, a, h } = network, size = n * width, c = network.factor.value;
    this._open(gradient);
    for (let i = nLayers - 1; i >= 0; i--) {
      const at = i * size, after = at + size;
      for (let k = 0; k < size; k++) scratch[k] = c * slopes[at + k] * cotangents[after + k];
      sumOuter(gradient.K, i * width * width, scratch, 0, states, at, n, width, width, gradient.b, i * width);
      addTransposed(cotangents, at, scratch, 0, n, weights.K, i * width * width, width, width);
      if (network.hasMemory) {
        for (let j = i + 1; j <= nLayers; j++) row[j - i - 1] = i === 0 ? a.values[j - 1] : h.values[j - i - 1];
        addWeighted(cotangents, at, cotangents, i + 1, size, row, nLayers - i);
      } else if (network.residual) {
        for (let k = 0; k < size; k++) cotangents[at + k] += cotangents[after + k];
      }
    }
    this._close(gradient, x);
    if (network.learnOrder) gradient.rawOrder[0] = this._orderGradient() * (network._orderPosition() > 0 ? -1 : 1);
    return gradient;
  }

  /** ∂E/∂order = Σ_j ⟨∂E/∂Y_j, Σ_k ∂H_jk Y_k + ∂c f_{j-1}⟩, from the cotangents of `backward`. */
  _orderGradient() {
    const { network, states, values, cotangents, scratch, row, n } = this, { nLayers, width, a, h } = network;
    const size = n * width, slope = network.factor.slope;
    let total = 0;
    for (let j = 1; j <= nLayers; j++) {
      for (let i = 0; i < size; i++) scratch[i] = slope * values[(j - 1) * size + i];
      row[0] = a.slopes[j - 1];
      for (let k = 1; k < j; k++) row[k] = h.slopes[j - k - 1];
      addWeighted(scratch, 0, states, 0, size, row, j);
      for (let i = 0; i < size; i++) total += scratch[i] * cotangents[j * size + i];
    }
    return total;
  }

  /** The gradient as the paper prints it, which is not the gradient (see reproduction.printed_adjoint); tanh only. */
  printedBackward(x) {
    const { network, states, cotangents, changes, slopes, scratch, scratchSlopes, printed, n } = this;
    const { nLayers, width, weights, a } = network, size = n * width, c = network.factor.value;
    this._open(printed);
    for (let j = nLayers - 1; j >= 0; j--) {
      const at = j * size, after = at + size, matrix = j * width * width;
      for (let k = 0; k < size; k++) scratch[k] = slopes[at + k] * cotangents[after + k];
      sumOuter(printed.K, matrix, scratch, 0, states, at, n, width, width, printed.b, j * width);
      affine(scratch, 0, states, after, n, weights.K, matrix, width, width, weights.b, j * width);
      activate(network.activation, scratch, scratchSlopes, 0, size);
      for (let k = 0; k < size; k++) {
        scratch[k] = c * scratchSlopes[k] * cotangents[after + k];
        cotangents[at + k] = cotangents[after + k];
      }
      addTransposed(cotangents, at, scratch, 0, n, weights.K, matrix, width, width);
      addWeighted(cotangents, at, changes, j + 1, size, a.values, nLayers - 1 - j);
      for (let k = 0; k < size; k++) changes[at + k] = cotangents[after + k] - cotangents[at + k];
    }
    this._close(printed, x);
    return printed;
  }
}

/** The norm of (∇K, ∇b) of each layer. */
function layerNorms(gradient, nLayers) {
  const { K, b } = gradient, kSize = K.length / nLayers, bSize = b.length / nLayers;
  return Float64Array.from({ length: nLayers }, (_, j) => {
    let sum = 0;
    for (let i = j * kSize; i < (j + 1) * kSize; i++) sum += K[i] * K[i];
    for (let i = j * bSize; i < (j + 1) * bSize; i++) sum += b[i] * b[i];
    return Math.sqrt(sum);
  });
}
