/* Points in the plane with classes: drawn at will, or from a table; standardised, a third held out. */
"use strict";

const TURN = 2 * Math.PI;

/** Each takes a class, the number of classes and generators, and gives a point; labels run in turn. */
const PLACES = {
  spirals: (c, classes, { uniform }) => {
    const t = Math.sqrt(0.02 + 0.98 * uniform()), angle = TURN * (c / classes + (3 / classes) * t);
    return [t * Math.cos(angle), t * Math.sin(angle)];
  },
  moons: (c, _, { uniform }) => {
    const angle = Math.PI * uniform();
    const x = 0.6 * Math.cos(angle), y = 0.6 * Math.sin(angle);
    return c ? [0.5 - x, 0.25 - y] : [x - 0.1, y - 0.1];
  },
  circles: (c, classes, { uniform }) => {
    const angle = TURN * uniform(), radius = (c + 0.5) / classes + (0.3 / classes) * (uniform() - 0.5);
    return [radius * Math.cos(angle), radius * Math.sin(angle)];
  },
};

const DATASETS = {
  "level-set": { title: "Level set", classes: [2, 2] },
  spirals: { title: "Spirals", classes: [2, 5] },
  moons: { title: "Moons", classes: [2, 2] },
  circles: { title: "Circles", classes: [2, 5] },
  clouds: { title: "Perfumes", classes: [2, 5] },
  own: { title: "Your own", classes: [2, 5] },
};

/** Streaks that bend and overlap, as the readings of a sensor do while it drifts: one for each class. */
function clouds(classes, { uniform, normal }) {
  const turn = uniform();
  const streaks = Array.from({ length: classes }, (_, c) => {
    const angle = TURN * (turn + (c + 0.25 * uniform()) / classes), direction = TURN * uniform();
    return { x: 0.55 * Math.cos(angle), y: 0.55 * Math.sin(angle), direction, bend: 2 * (uniform() - 0.5) };
  });
  return (c) => {
    const { x, y, direction, bend } = streaks[c], t = 0.9 * (uniform() - 0.5), aside = bend * t * t + 0.04 * normal();
    const [cos, sin] = [Math.cos(direction), Math.sin(direction)];
    return [x + t * cos - aside * sin, y + t * sin + aside * cos];
  };
}

/** `n` points [n, 2] and their labels. */
function drawn(name, { n, noise, classes, seed }) {
  const uniform = uniformFrom(seed), normal = normalFrom(uniform), draws = { uniform, normal };
  const place = name === "clouds" ? clouds(classes, draws) : PLACES[name];
  const x = new Float64Array(2 * n), labels = new Uint8Array(n);
  for (let s = 0; s < n; s++) {
    labels[s] = s % classes;
    let point;
    if (name === "level-set") {
      point = [uniform(), uniform()];
      labels[s] = point[0] <= point[1] ? 1 : 0;
    } else {
      point = place(labels[s], classes, draws);
    }
    const spread = noise * (name === "level-set" ? 0.15 : 0.3);
    x[2 * s] = point[0] + spread * normal();
    x[2 * s + 1] = point[1] + spread * normal();
  }
  return { x, labels, classNames: Array.from({ length: classes }, (_, c) => String(c + 1)), columns: ["x", "y"] };
}

function moments(x, rows) {
  const mean = [0, 0], deviation = [0, 0];
  for (const s of rows) for (const f of [0, 1]) mean[f] += x[2 * s + f] / rows.length;
  for (const s of rows) for (const f of [0, 1]) deviation[f] += (x[2 * s + f] - mean[f]) ** 2 / rows.length;
  return { mean, deviation: deviation.map((square) => Math.sqrt(square) || 1) };
}

function part(points, rows, { mean, deviation }) {
  const x = new Float64Array(2 * rows.length), labels = new Uint8Array(rows.length);
  rows.forEach((row, s) => {
    for (const f of [0, 1]) x[2 * s + f] = (points.x[2 * row + f] - mean[f]) / deviation[f];
    labels[s] = points.labels[row];
  });
  return { x, labels, n: rows.length };
}

/** Points by the mean and deviation of those to learn from; a third, drawn by `seed`, is held out. */
function prepared(points, seed) {
  const order = permutation(points.labels.length, uniformFrom(seed + 7919)), held = Math.floor(order.length / 3);
  const rows = order.slice(held), scale = moments(points.x, rows);
  const train = part(points, rows, scale), test = part(points, order.slice(0, held), scale);
  let most = 0;
  for (const { x } of [train, test]) for (const value of x) most = Math.max(most, Math.abs(value));
  const { classNames, columns } = points;
  return { train, test, scale, classNames, columns, classes: classNames.length, range: 1.08 * Math.min(most, 4) };
}

/** What the settings ask for; `table` stands for "own". `points` counts those to learn from. */
function dataOf(settings, table) {
  const { data, points, noise, classes, seed } = settings;
  if (data === "own") return prepared(table, seed);
  const [fewest, most] = DATASETS[data].classes, n = Math.round(1.5 * points);
  return prepared(drawn(data, { n, noise, classes: Math.min(Math.max(classes, fewest), most), seed }), seed);
}
