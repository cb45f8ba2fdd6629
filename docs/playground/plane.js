/* The plane in which states are seen: their two principal directions, which turn as little as they can. */
"use strict";

const MOST_ROWS = 3000;

/** Eigenvectors of a symmetric matrix (an array of rows) as columns, by Jacobi's rotations, and eigenvalues. */
function eigen(matrix) {
  const n = matrix.length, a = matrix.map((row) => [...row]);
  const vectors = a.map((_, i) => a.map((_, j) => Number(i === j)));
  for (let sweep = 0; sweep < 30; sweep++) {
    let off = 0;
    for (let p = 0; p < n; p++) for (let q = p + 1; q < n; q++) off += a[p][q] ** 2;
    if (off < 1e-24) break;
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        if (a[p][q] === 0) continue;
        const theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.hypot(theta, 1)), c = 1 / Math.hypot(t, 1), s = t * c;
        for (let k = 0; k < n; k++) [a[k][p], a[k][q]] = [c * a[k][p] - s * a[k][q], s * a[k][p] + c * a[k][q]];
        for (let k = 0; k < n; k++) [a[p][k], a[q][k]] = [c * a[p][k] - s * a[q][k], s * a[p][k] + c * a[q][k]];
        for (const row of vectors) [row[p], row[q]] = [c * row[p] - s * row[q], s * row[p] + c * row[q]];
      }
    }
  }
  return { values: a.map((row, i) => row[i]), vectors };
}

/** `next` (two vectors) turned or mirrored within its plane to be as close as possible to `before`. */
function aligned(next, before) {
  const dot = (u, v) => u.reduce((sum, value, i) => sum + value * v[i], 0);
  const [[a, b], [c, d]] = next.map((axis) => before.map((old) => dot(axis, old)));
  const mirror = a * d - b * c < 0 ? -1 : 1, angle = Math.atan2(c * mirror - b, a + d * mirror);
  const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
  const mixed = (x, y) => next[0].map((value, i) => x * value + mirror * y * next[1][i]);
  return [mixed(cos, sin), mixed(-sin, cos)];
}

class Plane {
  constructor(width) {
    this.width = width;
    this.axes = [0, 1].map((axis) => Float64Array.from({ length: width }, (_, i) => Number(i === axis)));
    this.centre = new Float64Array(width);
    this.range = 1;
    this.share = 1;
    this.isNew = true;
  }

  /** Follow the states [rows, width]: for width 2 only their range. */
  follow(states, rows) {
    const { width, centre } = this, stride = Math.max(1, Math.floor(rows / MOST_ROWS)) | 1;
    if (width > 2) this._turn(states, rows, stride);
    let most = 0;
    for (let row = 0; row < rows; row += stride) {
      for (const axis of this.axes) {
        let sum = 0;
        for (let i = 0; i < width; i++) sum += axis[i] * (states[row * width + i] - centre[i]);
        most = Math.max(most, Math.abs(sum));
      }
    }
    const wanted = 1.08 * most || 1;
    this.range = this.isNew ? wanted : this.range + 0.5 * (wanted - this.range);
    this.isNew = false;
  }

  _turn(states, rows, stride) {
    const { width, centre } = this, count = Math.ceil(rows / stride);
    const spread = Array.from({ length: width }, () => new Array(width).fill(0));
    centre.fill(0);
    for (let row = 0; row < rows; row += stride) {
      for (let i = 0; i < width; i++) centre[i] += states[row * width + i] / count;
    }
    for (let row = 0; row < rows; row += stride) {
      for (let i = 0; i < width; i++) {
        const value = states[row * width + i] - centre[i];
        for (let k = i; k < width; k++) spread[i][k] += value * (states[row * width + k] - centre[k]);
      }
    }
    for (let i = 0; i < width; i++) for (let k = 0; k < i; k++) spread[i][k] = spread[k][i];
    const total = spread.reduce((sum, row, i) => sum + row[i], 0) || 1;
    if (!Number.isFinite(total)) return;
    const scaled = spread.map((row) => row.map((value) => value / total)), { values, vectors } = eigen(scaled);
    const best = values.map((_, i) => i).sort((i, k) => values[k] - values[i]).slice(0, 2);
    this.share = best.reduce((sum, i) => sum + values[i], 0);
    const next = best.map((i) => vectors.map((row) => row[i]));
    this.axes = this.isNew ? next : aligned(next, this.axes);
  }

  /** Places [rows, 2] of states that begin at `at`. */
  project(states, at, rows, target) {
    const { width, axes, centre } = this;
    for (let row = 0; row < rows; row++, at += width) {
      let x = 0, y = 0;
      for (let i = 0; i < width; i++) {
        const value = states[at + i] - centre[i];
        x += axes[0][i] * value;
        y += axes[1][i] * value;
      }
      target[2 * row] = x;
      target[2 * row + 1] = y;
    }
  }
}
