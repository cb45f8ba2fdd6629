"""The compiled operations of `fracdnn.memory.compiled`: rows of a history sum in few passes over memory.

Deep and wide networks wait for the operands of their memory more than for its arithmetic: a state has left the cache
before the next layer is done. So each of the two operations reads a state once, for all that is made of it:

`begin`  starts the rows of a block from the states before it, and brings the far states up to date
`finish` adds the states of the block itself and the layer's step, and so writes a new state

States lie anywhere and are given by addresses.
"""

from functools import lru_cache

import numpy as np
from numba import carray, cfunc, from_dtype, njit, types

from fracdnn.kernels.threads import numbers, take
from fracdnn.kernels.vectors import lanes_of, load, prefetch, spread, store, zeros

# Threads take pieces of so many numbers. row_r = kept_r row_r + Σ_k weights[r, k] input_k; without `kept`, new rows.
# Then the far states, which are the first n_far inputs: far_i = decay_i far_i + Σ_k absorb[i, k] input_{n_far + k}.
# `rows` and `inputs` are tables of addresses.
BEGIN = np.dtype(
    [
        (name, np.int64)
        for name in (
            *("taken", "size", "piece", "n_rows", "rows", "kept"),
            *("n_inputs", "inputs", "weights", "stride", "n_far", "absorb", "decay"),
        )
    ]
)
# new = base + Σ_k weights_k near_k + factor · step, and scaled = scale · new; base, step and scaled where not 0.
FINISH = np.dtype(
    [
        *(
            (name, np.int64)
            for name in ("taken", "size", "piece", "new", "base", "n_near", "near", "weights", "step", "scaled")
        ),
        ("factor", np.float64),
        ("scale", np.float64),
    ]
)

# How many numbers ahead memory is asked for.
_AHEAD = 128

# In line: these are called for every few numbers, and arrays are passed in many parts.
_compiled = njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy", forceinline=True)


@_compiled
def four_rows(table, r, kept, weights, at, stride, inputs, i, like):
    """row_r = kept_r row_r + Σ_k weights[r, k] input_k for four rows and two vectors at i; at: where weights[r] is."""
    step, nothing, end = lanes_of(like), zeros(like), i + 2 * lanes_of(like)
    row0, row1 = numbers(table[r], end, like), numbers(table[r + 1], end, like)
    row2, row3 = numbers(table[r + 2], end, like), numbers(table[r + 3], end, like)
    a0, b0, a1, b1, a2, b2, a3, b3 = nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing
    if len(kept):
        k0, k1, k2, k3 = spread(kept, r), spread(kept, r + 1), spread(kept, r + 2), spread(kept, r + 3)
        a0, b0 = k0 * load(row0, i), k0 * load(row0, i + step)
        a1, b1 = k1 * load(row1, i), k1 * load(row1, i + step)
        a2, b2 = k2 * load(row2, i), k2 * load(row2, i + step)
        a3, b3 = k3 * load(row3, i), k3 * load(row3, i + step)
    for k in range(len(inputs)):
        state = numbers(inputs[k], end, like)
        u, v = load(state, i), load(state, i + step)
        w0, w1 = spread(weights, at + k), spread(weights, at + stride + k)
        w2, w3 = spread(weights, at + 2 * stride + k), spread(weights, at + 3 * stride + k)
        a0, b0 = a0 + w0 * u, b0 + w0 * v
        a1, b1 = a1 + w1 * u, b1 + w1 * v
        a2, b2 = a2 + w2 * u, b2 + w2 * v
        a3, b3 = a3 + w3 * u, b3 + w3 * v
    store(row0, i, a0)
    store(row0, i + step, b0)
    store(row1, i, a1)
    store(row1, i + step, b1)
    store(row2, i, a2)
    store(row2, i + step, b2)
    store(row3, i, a3)
    store(row3, i + step, b3)


@_compiled
def one_row(table, r, kept, weights, at, inputs, i, like):
    """The same for one row."""
    step, nothing, end = lanes_of(like), zeros(like), i + 2 * lanes_of(like)
    row = numbers(table[r], end, like)
    a, b = nothing, nothing
    if len(kept):
        factor = spread(kept, r)
        a, b = factor * load(row, i), factor * load(row, i + step)
    for k in range(len(inputs)):
        state, weight = numbers(inputs[k], end, like), spread(weights, at + k)
        a, b = a + weight * load(state, i), b + weight * load(state, i + step)
    store(row, i, a)
    store(row, i + step, b)


@_compiled
def one_number(table, r, kept, weights, at, inputs, i, like):
    """The same for one number of a row."""
    row = numbers(table[r], i + 1, like)
    value = kept[r] * row[i] if len(kept) else like.dtype.type(0)
    for k in range(len(inputs)):
        value += weights[at + k] * numbers(inputs[k], i + 1, like)[i]
    row[i] = value


@_compiled
def all_rows(table, kept, weights, stride, inputs, i, vectors, like):
    """The same for all rows of a table, for two vectors at i or for one number."""
    r = 0
    while vectors and r + 4 <= len(table):
        four_rows(table, r, kept, weights, r * stride, stride, inputs, i, like)
        r += 4
    while r < len(table):
        if vectors:
            one_row(table, r, kept, weights, r * stride, inputs, i, like)
        else:
            one_number(table, r, kept, weights, r * stride, inputs, i, like)
        r += 1


@_compiled
def fetch(table, i, like):
    """Have two vectors of each state of a table brought into cache, to be there when their turn comes."""
    for k in range(len(table)):
        state = numbers(table[k], i + 1, like)
        prefetch(state, i)
        prefetch(state, i + lanes_of(like))


@_compiled
def begin_piece(record, first, last, like):
    """What `begin` does, for numbers first … last − 1 of the states."""
    table = np.empty(0, np.int64)
    rows, inputs = numbers(record.rows, record.n_rows, table), numbers(record.inputs, record.n_inputs, table)
    far, near = inputs[: record.n_far], inputs[record.n_far :]
    weights = numbers(record.weights, record.n_rows * record.stride, like)
    kept = numbers(record.kept, record.n_rows if record.kept else 0, like)
    absorb, decay = numbers(record.absorb, len(far) * len(near), like), numbers(record.decay, len(far), like)
    i, both = first, 2 * lanes_of(like)
    while i < last:
        vectors = i + both <= last
        if i + _AHEAD < last:
            fetch(inputs, i + _AHEAD, like)
        all_rows(rows, kept, weights, record.stride, inputs, i, vectors, like)
        all_rows(far, decay, absorb, len(near), near, i, vectors, like)
        i += both if vectors else 1


@_compiled
def finish_piece(record, first, last, like):
    """What `finish` does, for numbers first … last − 1 of the states."""
    new, change = numbers(record.new, last, like), numbers(record.step, last, like)
    base, scaled = numbers(record.base, last, like), numbers(record.scaled, last, like)
    near = numbers(record.near, record.n_near, np.empty(0, np.int64))
    weights = numbers(record.weights, record.n_near, like)
    factors = np.empty(2, like.dtype)
    factors[0], factors[1] = record.factor, record.scale
    lanes, nothing, factor, scale = lanes_of(like), zeros(like), spread(factors, 0), spread(factors, 1)
    i = first
    while i + 2 * lanes <= last:
        a, b = nothing, nothing
        if record.base:
            a, b = load(base, i), load(base, i + lanes)
        if record.step:
            a, b = a + factor * load(change, i), b + factor * load(change, i + lanes)
        for k in range(record.n_near):
            weight, state = spread(weights, k), numbers(near[k], last, like)
            a, b = a + weight * load(state, i), b + weight * load(state, i + lanes)
        store(new, i, a)
        store(new, i + lanes, b)
        if record.scaled:
            store(scaled, i, scale * a)
            store(scaled, i + lanes, scale * b)
        i += 2 * lanes
    for x in range(i, last):
        value = base[x] if record.base else like.dtype.type(0)
        if record.step:
            value += factors[0] * change[x]
        for k in range(record.n_near):
            value += weights[k] * numbers(near[k], last, like)[x]
        new[x] = value
        if record.scaled:
            scaled[x] = factors[1] * value


@_compiled
def share(piece, record, arguments, like):
    """Pieces of work until none are left; the numbers' type is that of the last argument."""
    while True:
        first = take(arguments, 0) * record.piece
        if first >= record.size:
            return
        piece(record, first, min(first + record.piece, record.size), like)


@lru_cache(maxsize=2)
def begin(kind):
    """`begin` for numbers of a NumPy type, as `fracdnn.kernels.threads.Call` takes it; compiled at its first use."""

    @cfunc(types.void(types.CPointer(from_dtype(BEGIN))), cache=True)
    def entry(arguments):
        share(begin_piece, carray(arguments, 1)[0], arguments, np.empty(0, kind))

    return entry


@lru_cache(maxsize=2)
def finish(kind):
    """`finish` in the same way."""

    @cfunc(types.void(types.CPointer(from_dtype(FINISH))), cache=True)
    def entry(arguments):
        share(finish_piece, carray(arguments, 1)[0], arguments, np.empty(0, kind))

    return entry
