/* Drawing on canvases: sharp on every screen, in the colors of the page. */
"use strict";

let colors = null;
const stamps = new Map();

/** The page's colors by name: --text is `text`. */
function palette() {
  if (colors) return colors;
  const style = getComputedStyle(document.documentElement), get = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["panel", "text", "muted", "grid", "first", "second", "printed", "edge"];
  colors = Object.fromEntries(names.map((name) => [name, get(name)]));
  colors.classes = [1, 2, 3, 4, 5].map((c) => get(`class-${c}`));
  colors.arms = [colors.first, colors.second];
  return colors;
}

/** The colors have changed. */
function forgetPalette() {
  colors = null;
  stamps.clear();
}

/** Red, green and blue of #rrggbb. */
function channels(color) {
  return [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
}

/** A canvas's context, cleared, in CSS pixels; null while it is not shown. */
function cleared(canvas) {
  const width = canvas.clientWidth, height = canvas.clientHeight, ratio = Math.min(devicePixelRatio || 1, 2);
  if (!width || !height) return null;
  const [pixelsX, pixelsY] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== pixelsX || canvas.height !== pixelsY) {
    canvas.width = pixelsX;
    canvas.height = pixelsY;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height, ratio };
}

/** Add a mark of class `c` to the path: every class has a shape of its own, beside its color. */
function mark(context, c, x, y, r) {
  if (c === 0) {
    context.moveTo(x + r, y);
    context.arc(x, y, r, 0, 2 * Math.PI);
  } else if (c === 1) {
    context.rect(x - 0.88 * r, y - 0.88 * r, 1.76 * r, 1.76 * r);
  } else {
    const [sides, turn] = [[3, -0.25], [4, 0], [3, 0.25]][c - 2];
    for (let i = 0; i <= sides; i++) {
      const angle = 2 * Math.PI * (i / sides + turn);
      const px = x + 1.25 * r * Math.cos(angle), py = y + 1.25 * r * Math.sin(angle);
      if (i === 0) context.moveTo(px, py);
      else context.lineTo(px, py);
    }
  }
}

/** A mark with its outline as a small picture, made once: to copy it is much faster than to draw it. */
function stamp(c, radius, hollow, ratio) {
  const name = `${c} ${radius.toFixed(2)} ${hollow} ${ratio}`, { classes: fills, edge } = palette();
  if (stamps.has(name)) return stamps.get(name);
  const picture = document.createElement("canvas"), context = picture.getContext("2d");
  picture.width = picture.height = 2 * Math.ceil(ratio * (1.25 * radius + 1.5));
  context.translate(picture.width / 2, picture.width / 2);
  context.scale(ratio, ratio);
  mark(context, c, 0, 0, radius);
  context.lineWidth = hollow ? 1.5 : 2;
  context.fillStyle = hollow ? edge : fills[c];
  context.strokeStyle = hollow ? fills[c] : edge;
  if (!hollow) context.stroke();
  context.fill();
  if (hollow) context.stroke();
  stamps.set(name, picture);
  return picture;
}

/** Points of all classes; `place(s, point)` puts x and y in pixels into point. Hollow ones have only an outline. */
function drawPoints({ context, ratio }, { labels, n }, classes, place, { radius, hollow = false }) {
  const pictures = Array.from({ length: classes }, (_, c) => stamp(c, radius, hollow, ratio)), point = [0, 0];
  context.save();
  context.setTransform(1, 0, 0, 1, 0, 0);
  for (let s = 0; s < n; s++) {
    const picture = pictures[labels[s]], half = picture.width / 2;
    place(s, point);
    context.drawImage(picture, Math.round(ratio * point[0]) - half, Math.round(ratio * point[1]) - half);
  }
  context.restore();
}

/** Round numbers between two ends, about `count`. */
function ticks(least, most, count = 4) {
  const raw = (most - least) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
  const found = [];
  for (let value = Math.ceil(least / step - 1e-9) * step; value <= most + 1e-9 * step; value += step) found.push(value);
  return found;
}

/** A number in few letters. */
function brief(value) {
  if (value === 0 || Math.abs(value) < 1e-12) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(0).replace("e+", "e") : String(Number(value.toPrecision(3)));
}

/** A frame with horizontal lines at the ticks of the vertical axis; gives the maps to pixels. */
function frame({ context, width, height }, { x, y, log = false, xTicks, yTicks, xTitle, top = 8 }) {
  const { muted, grid } = palette(), box = { left: 44, right: width - 8, top, bottom: height - 32 };
  const up = log ? Math.log10 : (value) => value, [low, high] = y.map(up);
  const toX = (value) => box.left + ((value - x[0]) / (x[1] - x[0] || 1)) * (box.right - box.left);
  const toY = (value) => box.bottom - ((up(value) - low) / (high - low || 1)) * (box.bottom - box.top);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = muted;
  context.strokeStyle = grid;
  context.lineWidth = 1;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const value of yTicks) {
    const level = Math.round(toY(value)) + 0.5;
    context.beginPath();
    context.moveTo(box.left, level);
    context.lineTo(box.right, level);
    context.stroke();
    context.fillText(brief(value), box.left - 6, level);
  }
  context.textAlign = "center";
  context.textBaseline = "top";
  for (const value of xTicks) context.fillText(brief(value), toX(value), box.bottom + 4);
  context.fillText(xTitle, (box.left + box.right) / 2, box.bottom + 18);
  return { toX, toY, box };
}

/** A line through points given by pixels; breaks where one is not finite. */
function line(context, points, color, { dash = [], width = 2 } = {}) {
  context.beginPath();
  let begun = false;
  for (const [x, y] of points) {
    if (!Number.isFinite(y)) begun = false;
    else if (begun) context.lineTo(x, y);
    else context.moveTo(x, y);
    begun = Number.isFinite(y);
  }
  context.strokeStyle = color;
  context.lineWidth = width;
  context.lineJoin = "round";
  context.setLineDash(dash);
  context.stroke();
  context.setLineDash([]);
}

/** Names of lines, each behind a piece of its line, in rows at the top; gives where these end. */
function key({ context, width }, entries) {
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "left";
  context.textBaseline = "middle";
  let [x, y] = [4, 8];
  for (const { name, color, dash } of entries) {
    const wide = 26 + context.measureText(name).width;
    if (x > 4 && x + wide > width) [x, y] = [4, y + 15];
    line(context, [[x, y], [x + 20, y]], color, { dash });
    context.fillStyle = palette().text;
    context.fillText(name, x + 26, y);
    x += wide + 14;
  }
  return y + 10;
}
