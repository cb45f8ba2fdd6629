/* Random numbers that a seed repeats. */
"use strict";

/** Draws from [0, 1): the generator known as mulberry32, two words to a number. */
function uniformFrom(seed) {
  let state = (seed * 2654435769 + 1013904223) >>> 0;
  const word = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
  return () => ((word() >>> 5) * 2 ** 26 + (word() >>> 6)) / 2 ** 53;
}

/** Standard normal numbers from uniform ones, by Box and Muller. */
function normalFrom(uniform) {
  return () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}

/** 0 … n-1 in an order that is drawn. */
function permutation(n, uniform) {
  const order = Uint32Array.from({ length: n }, (_, i) => i);
  for (let i = n - 1; i > 0; i--) {
    const other = Math.floor(uniform() * (i + 1));
    [order[i], order[other]] = [order[other], order[i]];
  }
  return order;
}
