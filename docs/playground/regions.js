/* Regions of classes over a square: colors mixed by probability, and lines where the likeliest class changes. */
"use strict";

const SIDE = 96;
// Edges of a cell, each by its two corners: the corners run around the cell from the upper left.
const EDGES = [[0, 1], [1, 2], [2, 3], [3, 0]];

class Regions {
  constructor(classes) {
    this.classes = classes;
    this.image = document.createElement("canvas");
    this.image.width = this.image.height = SIDE;
    this.pixels = new ImageData(SIDE, SIDE);
    this.values = new Float64Array(classes);
    this.mixed = new Float64Array(3);
    this.borders = new Path2D();
  }

  /** Take logits [side, side, classes] at places from edge to edge of the square. */
  update(logits, side) {
    this._paint(logits, side);
    this.borders = new Path2D();
    for (let c = this.classes === 2 ? 1 : 0; c < this.classes; c++) this._trace(logits, side, c);
  }

  draw(context, width) {
    context.imageSmoothingQuality = "low";
    context.drawImage(this.image, 0, 0, width, width);
    context.save();
    context.scale(width, width);
    context.strokeStyle = palette().text;
    context.globalAlpha = 0.55;
    context.lineWidth = 1.5 / width;
    context.stroke(this.borders);
    context.restore();
  }

  _paint(logits, side) {
    const { classes, values, mixed } = this, { data } = this.pixels, colors = palette();
    const base = channels(colors.panel), fills = colors.classes.map(channels);
    for (let py = 0; py < SIDE; py++) {
      const fy = ((py + 0.5) * (side - 1)) / SIDE, y0 = Math.floor(fy), ty = fy - y0;
      for (let px = 0; px < SIDE; px++) {
        const fx = ((px + 0.5) * (side - 1)) / SIDE, x0 = Math.floor(fx), tx = fx - x0;
        const at = (y0 * side + x0) * classes, below = at + side * classes;
        let most = -Infinity, sum = 0;
        for (let c = 0; c < classes; c++) {
          const upper = logits[at + c] + tx * (logits[at + classes + c] - logits[at + c]);
          const lower = logits[below + c] + tx * (logits[below + classes + c] - logits[below + c]);
          values[c] = upper + ty * (lower - upper);
          most = Math.max(most, values[c]);
        }
        for (let c = 0; c < classes; c++) sum += values[c] = Math.exp(values[c] - most);
        const sure = (1 / sum - 1 / classes) / (1 - 1 / classes), strength = (0.1 + 0.42 * sure) / sum;
        mixed.set(base);
        for (let c = 0; c < classes; c++) {
          for (let k = 0; k < 3; k++) mixed[k] += strength * values[c] * (fills[c][k] - base[k]);
        }
        const pixel = 4 * (py * SIDE + px);
        for (let k = 0; k < 3; k++) data[pixel + k] = mixed[k];
        data[pixel + 3] = 255;
      }
    }
    this.image.getContext("2d").putImageData(this.pixels, 0, 0);
  }

  /** How far class c is ahead of all others at a cell. */
  _lead(logits, cell, c) {
    let other = -Infinity;
    for (let k = 0; k < this.classes; k++) if (k !== c) other = Math.max(other, logits[cell * this.classes + k]);
    return logits[cell * this.classes + c] - other;
  }

  /** Add the border of class c, by marching squares. */
  _trace(logits, side, c) {
    const size = 1 / (side - 1), lead = [0, 0, 0, 0], x = [0, 1, 1, 0], y = [0, 0, 1, 1];
    for (let row = 0; row < side - 1; row++) {
      for (let column = 0; column < side - 1; column++) {
        for (let i = 0; i < 4; i++) lead[i] = this._lead(logits, (row + y[i]) * side + column + x[i], c);
        let begun = false;
        for (const [i, k] of EDGES) {
          if (lead[i] > 0 === lead[k] > 0) continue;
          const part = lead[i] / (lead[i] - lead[k]);
          const px = (column + x[i] + part * (x[k] - x[i])) * size, py = (row + y[i] + part * (y[k] - y[i])) * size;
          if (begun) this.borders.lineTo(px, py);
          else this.borders.moveTo(px, py);
          begun = !begun;
        }
      }
    }
  }
}
