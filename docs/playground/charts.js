/* The small charts, each with a sentence that says the same. */
"use strict";

const percent = (share) => `${share >= 0.0995 ? Math.round(100 * share) : Number((100 * share).toPrecision(2))} %`;
const isPlotted = (value) => value > 0 && Number.isFinite(value);

function digits(value) {
  const size = Math.abs(value);
  return size >= 1e4 || (size < 1e-3 && size > 0) ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

/** 1, 2 and 5 times powers of ten between two ends; only powers where these are many. */
function logTicks(least, most) {
  const first = Math.floor(Math.log10(least)), last = Math.ceil(Math.log10(most));
  const factors = last - first <= 2 ? [1, 2, 5] : [1], found = [];
  const every = Math.max(1, Math.ceil((last - first) / 6));
  for (let power = first; power <= last; power += every) for (const factor of factors) found.push(factor * 10 ** power);
  return found.filter((value) => value >= least * 0.999 && value <= most * 1.001);
}

/** A dot for the input and for every layer, and to each layer a line from all earlier ones, as strong as its weight; in
    color those of `layer`. Of two networks, the second is below. */
function drawNetwork(canvas, arms, layer) {
  const drawing = cleared(canvas);
  if (!drawing) return;
  const { context, width, height } = drawing, { muted, text, arms: fills } = palette(), count = arms[0].network.nLayers;
  const level = arms.length > 1 ? height / 2 - 8 : height - 30, toX = (k) => 24 + (k / count) * (width - 48);
  const layers = Array.from({ length: count }, (_, k) => k + 1).sort((a, b) => (a === layer) - (b === layer));
  arms.forEach(({ network }, which) => {
    for (const n of layers) {
      (network.residual ? memoryWeights(network.order, n) : []).forEach((weight, k) => {
        if (weight < 0.002) return; // too thin to be seen
        const wide = (toX(n) - toX(k)) / 2, high = (level - 8) * ((n - k) / count) ** 0.7;
        context.beginPath();
        context.ellipse(toX(k) + wide, level + 22 * which, wide, high, which ? 0 : Math.PI, 0, Math.PI);
        context.globalAlpha = (n === layer ? 1 : 0.45) * Math.min(1, 0.1 + Math.sqrt(weight));
        context.lineWidth = 0.5 + 5 * weight;
        context.strokeStyle = n === layer ? fills[which] : muted;
        context.stroke();
      });
    }
  });
  context.globalAlpha = 1;
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "center";
  context.textBaseline = "middle";
  const named = new Set(ticks(0, count, Math.min(count, width / 60)));
  for (let k = 0; k <= count; k++) {
    context.fillStyle = k === layer ? fills[0] : text;
    if (named.has(k)) context.fillText(k ? k : "input", toX(k), level + 12);
    context.beginPath();
    context.arc(toX(k), level, k === layer ? 5 : 3, 0, 2 * Math.PI);
    context.fill();
  }
}

function memorySentence({ network }, layer) {
  const n = Math.max(layer, 1), weights = memoryWeights(network.order, n), order = Number(network.order.toFixed(3));
  if (network.order === 1) return `At order 1, layer ${n} sees only the state before it: a residual network.`;
  if (n === 1) return "Layer 1 has only the input to remember.";
  const last = percent(weights[n - 1]), first = percent(weights[0]);
  const middle = n > 2 ? `, ${percent(1 - weights[n - 1] - weights[0])} of those between` : "";
  const parts = `${last} of the state before it${middle} and ${first} of the first`;
  return `Layer ${n} is ${parts}, plus its step (order ${order}). Lines are as strong as these weights.`;
}

/** Norms by layer, on a logarithmic scale: exact of every network, printed of the first. */
function drawGradients(canvas, arms, printed, layer) {
  const drawing = cleared(canvas);
  if (!drawing) return;
  const colors = palette(), count = arms[0].network.nLayers;
  const lines = arms.map((arm, i) => {
    const name = i ? `exact, ${arm.name}` : "exact";
    return { name, values: arm.norms, color: colors.arms[i], dash: [] };
  });
  if (printed) lines.splice(1, 0, { name: "as printed", values: printed.norms, color: colors.printed, dash: [6, 4] });
  const all = lines.flatMap(({ values }) => [...values]).filter(isPlotted);
  const most = Math.max(...all, 1e-12), least = Math.max(Math.min(...all, most / 10), most * 1e-9);
  const x = count === 1 ? [0.5, 1.5] : [1, count], y = [least / 1.3, most * 1.3];
  const xTicks = count === 1 ? [1] : ticks(1, count, Math.min(6, count - 1)).filter(Number.isInteger);
  const axes = { x, y, log: true, xTicks, yTicks: logTicks(...y), xTitle: "layer", top: key(drawing, lines) };
  const { toX, toY, box } = frame(drawing, axes), { context } = drawing;
  if (layer >= 1) line(context, [[toX(layer), box.top], [toX(layer), box.bottom]], colors.grid, { width: 3 });
  for (const { values, color, dash } of lines) {
    const places = Array.from(values, (value, j) => [toX(j + 1), value > 0 ? toY(Math.max(value, y[0])) : NaN]);
    line(context, places, color, { dash });
    if (count === 1) line(context, [[toX(1) - 8, places[0][1]], [toX(1) + 8, places[0][1]]], color, { dash });
  }
}

function gradientsSentence(arm, printed) {
  const { norms } = arm, ratio = (values) => digits(values[0] / values[values.length - 1]);
  const exact = `The first layer's gradient is ${ratio(norms)} times the last one's`;
  if (!printed) return `${exact}. The paper prints its gradient for tanh networks only.`;
  const cosine = printed.cosine.toFixed(2);
  return `${exact}; as the paper prints it, ${ratio(printed.norms)} times. The cosine between the two is ${cosine}.`;
}

function drawLosses(canvas, arms) {
  const drawing = cleared(canvas);
  if (!drawing) return;
  const colors = palette(), lines = [];
  arms.forEach((arm, i) => {
    const name = arms.length > 1 ? `, ${arm.name}` : "";
    lines.push({ name: `training${name}`, field: "loss", arm, color: colors.arms[i], dash: [] });
    lines.push({ name: `held out${name}`, field: "testLoss", arm, color: colors.arms[i], dash: [3, 3] });
  });
  const all = lines.flatMap(({ arm, field }) => arm.records.map((record) => record[field])).filter(isPlotted);
  const most = Math.max(...all, 1e-8), least = Math.max(Math.min(...all, most / 3), 1e-8);
  const y = [least / 1.2, most * 1.2], steps = Math.max(arms[0].steps, 10), x = [0, steps];
  const ends = { xTicks: ticks(0, steps, 5), yTicks: logTicks(...y), xTitle: "steps" };
  const { toX, toY } = frame(drawing, { x, y, log: true, ...ends, top: key(drawing, lines) });
  for (const { arm, field, color, dash } of lines) {
    const places = arm.records.map((record) => [toX(record.step), toY(Math.max(record[field], y[0]))]);
    line(drawing.context, places, color, { dash });
  }
}

function lossesSentence(arms) {
  const said = arms.map((arm) => {
    const name = arms.length > 1 ? `${arm.name}: ` : "";
    return `${name}training ${digits(arm.loss)}, held out ${digits(arm.testLoss)}`;
  });
  const steps = arms[0].steps === 1 ? "1 step" : `${arms[0].steps} steps`;
  return `After ${steps}, ${said.join("; ")} (cross-entropy, logarithmic).`;
}
