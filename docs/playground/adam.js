/* The optimizer, as torch.optim.Adam. */
"use strict";

/** torch.optim.Adam with its defaults. */
class Adam {
  constructor(size, rate) {
    this.rate = rate;
    this.steps = 0;
    this.mean = new Float64Array(size);
    this.square = new Float64Array(size);
  }

  step(parameters, gradient) {
    const { mean, square } = this, t = ++this.steps;
    const length = this.rate / (1 - 0.9 ** t), root = Math.sqrt(1 - 0.999 ** t);
    for (let i = 0; i < parameters.length; i++) {
      const g = gradient[i];
      mean[i] += (1 - 0.9) * (g - mean[i]);
      square[i] = 0.999 * square[i] + (1 - 0.999) * g * g;
      parameters[i] -= (length * mean[i]) / (Math.sqrt(square[i]) / root + 1e-8);
    }
  }
}
