/* The settings: what each may be, and how they stand in the address of the page. Whatever comes in is made valid. */
"use strict";

const number = (initial, least, most, step) => ({ kind: "number", initial, least, most, step });
const choice = (initial, options) => ({ kind: "choice", initial, options });
const flag = (initial) => ({ kind: "flag", initial });

const SETTINGS = {
  data: choice("spirals", Object.keys(DATASETS)),
  points: number(300, 50, 1000, 50),
  noise: number(0.1, 0, 1, 0.05),
  classes: number(3, 2, 5, 1),
  heldout: flag(false),
  order: number(0.5, 0.05, 1, 0.05),
  learn: flag(false),
  layers: number(20, 1, 60, 1),
  width: number(4, 2, 8, 1),
  tau: number(0.2, 0.05, 1, 0.05),
  activation: choice("tanh", ACTIVATIONS),
  compare: choice("none", ["none", "residual", "matched", "plain"]),
  rate: choice("0.01", ["0.001", "0.003", "0.01", "0.03", "0.1"]),
  gradient: choice("exact", ["exact", "printed"]),
  seed: number(1, 0, 9999, 1),
  speed: choice("30", ["1", "10", "30", "0"]),
  layer: number(60, 0, 60, 1),
};
/** The largest order from which it can be learned: at 1 its parameter would be infinite. */
const MOST_LEARNT = 0.95;

/** The nearest value that the setting allows. */
function valid(name, value) {
  const { kind, initial, least, most, step, options } = SETTINGS[name];
  if (kind === "flag") return value === true || value === "1";
  if (kind === "choice") return options.includes(String(value)) ? String(value) : initial;
  const given = typeof value === "string" && value.trim() === "" ? NaN : Number(value);
  if (Number.isNaN(given)) return initial;
  const steps = Math.round((Math.min(Math.max(given, least), most) - least) / step);
  return Number((least + steps * step).toFixed(6));
}

function initialSettings() {
  return Object.fromEntries(Object.entries(SETTINGS).map(([name, { initial }]) => [name, initial]));
}

/** Settings from the part of an address behind #; what is not there is as at the start. */
function settingsFromHash(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, "")), settings = initialSettings();
  for (const name of Object.keys(SETTINGS)) if (given.has(name)) settings[name] = valid(name, given.get(name));
  return settled(settings);
}

/** Settings as they go together: what one rules out for another is put right. */
function settled(settings) {
  const found = { ...settings };
  if (found.learn) found.order = Math.min(found.order, MOST_LEARNT);
  if (!canPrint(found)) found.gradient = "exact";
  return found;
}

/** The printed gradient is that of tanh networks with a fixed order. */
function canPrint({ activation, learn }) {
  return activation === "tanh" && !learn;
}

/** The part of the address: what differs from the start. */
function hashOf(settings) {
  const parts = new URLSearchParams();
  for (const [name, { initial, kind }] of Object.entries(SETTINGS)) {
    const value = kind === "flag" ? Number(settings[name]) : settings[name];
    if (settings[name] !== initial) parts.set(name, String(value));
  }
  return parts.toString();
}
