"""Rows of a history sum in few passes over memory. Needs Numba.

In deep and wide networks, a history sum spends its time on reading states, not on arithmetic: a state has left the
cache before the next layer is done. So each of the two operations reads a state once, for all that is made of it:

`begin`  starts the rows of a block from the states before it, and brings the far states up to date
`finish` adds the states of the block itself and the layer's step, and so writes a new state

States are given by their addresses, and may be anywhere in memory.
"""

import numpy as np
from numba import carray, intp

from fracdnn.kernels.compiling import inlined, kernel, merged
from fracdnn.kernels.threads import numbers, take
from fracdnn.kernels.vectors import filled, lanes_of, load, prefetch, spread, store, zeros

# Threads take pieces of `piece` numbers. row_r = kept_r row_r + Σ_k weights[r, k] input_k; without `kept`, new rows.
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

# How far ahead memory is asked for, in numbers.
_AHEAD = 128


@inlined
def four_rows(table, r, kept, weights, at, stride, inputs, i, kind):
    """row_r = kept_r row_r + Σ_k weights[r, k] input_k for four rows and two vectors at i; at: where weights[r] is."""
    step, nothing, end = lanes_of(kind), zeros(kind), i + 2 * lanes_of(kind)
    row0, row1 = numbers(table[r], end, kind), numbers(table[r + 1], end, kind)
    row2, row3 = numbers(table[r + 2], end, kind), numbers(table[r + 3], end, kind)
    a0, b0, a1, b1, a2, b2, a3, b3 = nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing
    if len(kept):
        k0, k1, k2, k3 = spread(kept, r), spread(kept, r + 1), spread(kept, r + 2), spread(kept, r + 3)
        a0, b0 = k0 * load(row0, i), k0 * load(row0, i + step)
        a1, b1 = k1 * load(row1, i), k1 * load(row1, i + step)
        a2, b2 = k2 * load(row2, i), k2 * load(row2, i + step)
        a3, b3 = k3 * load(row3, i), k3 * load(row3, i + step)
    for k in range(len(inputs)):
        state = numbers(inputs[k], end, kind)
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


@inlined
def one_row(table, r, kept, weights, at, inputs, i, kind):
    """The same for one row."""
    step, nothing, end = lanes_of(kind), zeros(kind), i + 2 * lanes_of(kind)
    row = numbers(table[r], end, kind)
    a, b = nothing, nothing
    if len(kept):
        factor = spread(kept, r)
        a, b = factor * load(row, i), factor * load(row, i + step)
    for k in range(len(inputs)):
        state, weight = numbers(inputs[k], end, kind), spread(weights, at + k)
        a, b = a + weight * load(state, i), b + weight * load(state, i + step)
    store(row, i, a)
    store(row, i + step, b)


@inlined
def one_number(table, r, kept, weights, at, inputs, i, kind):
    """The same for one number of a row."""
    row = numbers(table[r], i + 1, kind)
    value = kept[r] * row[i] if len(kept) else kind(0)
    for k in range(len(inputs)):
        value += weights[at + k] * numbers(inputs[k], i + 1, kind)[i]
    row[i] = value


@inlined
def all_rows(table, kept, weights, stride, inputs, i, vectors, kind):
    """The same for all rows of a table, for two vectors at i or for one number."""
    r = intp(0)
    while vectors and r + 4 <= len(table):
        four_rows(table, r, kept, weights, r * stride, stride, inputs, i, kind)
        r += 4
    while r < len(table):
        if vectors:
            one_row(table, r, kept, weights, r * stride, inputs, i, kind)
        else:
            one_number(table, r, kept, weights, r * stride, inputs, i, kind)
        r += 1


@inlined
def fetch(table, i, kind):
    """Ask for two vectors of each state in a table to be brought into the cache, before they are needed."""
    for k in range(len(table)):
        state = numbers(table[k], i + 1, kind)
        prefetch(state, i)
        prefetch(state, i + lanes_of(kind))


@inlined
def begin_piece(record, first, last, kind):
    """What `begin` does, for numbers first … last − 1 of the states."""
    rows, inputs = numbers(record.rows, record.n_rows, np.int64), numbers(record.inputs, record.n_inputs, np.int64)
    far, near = inputs[: record.n_far], inputs[record.n_far :]
    weights = numbers(record.weights, record.n_rows * record.stride, kind)
    kept = numbers(record.kept, record.n_rows if record.kept else 0, kind)
    absorb, decay = numbers(record.absorb, len(far) * len(near), kind), numbers(record.decay, len(far), kind)
    i, both = first, 2 * lanes_of(kind)
    while i < last:
        vectors = i + both <= last
        if i + _AHEAD < last:
            fetch(inputs, i + _AHEAD, kind)
        all_rows(rows, kept, weights, record.stride, inputs, i, vectors, kind)
        all_rows(far, decay, absorb, len(near), near, i, vectors, kind)
        i += both if vectors else 1


@merged
def finish_piece(record, first, last, kind):
    """What `finish` does, for numbers first … last − 1 of the states."""
    new, change = numbers(record.new, last, kind), numbers(record.step, last, kind)
    base, scaled = numbers(record.base, last, kind), numbers(record.scaled, last, kind)
    near = numbers(record.near, record.n_near, np.int64)
    weights = numbers(record.weights, record.n_near, kind)
    lanes, nothing = lanes_of(kind), zeros(kind)
    factor, scale = filled(nothing, record.factor), filled(nothing, record.scale)
    i = first
    while i + 2 * lanes <= last:
        a, b = nothing, nothing
        if record.base:
            a, b = load(base, i), load(base, i + lanes)
        if record.step:
            a, b = a + factor * load(change, i), b + factor * load(change, i + lanes)
        for k in range(record.n_near):
            weight, state = spread(weights, k), numbers(near[k], last, kind)
            a, b = a + weight * load(state, i), b + weight * load(state, i + lanes)
        store(new, i, a)
        store(new, i + lanes, b)
        if record.scaled:
            store(scaled, i, scale * a)
            store(scaled, i + lanes, scale * b)
        i += 2 * lanes
    for x in range(i, last):
        value = base[x] if record.base else kind(0)
        if record.step:
            value += kind(record.factor) * change[x]
        for k in range(record.n_near):
            value += weights[k] * numbers(near[k], last, kind)[x]
        new[x] = value
        if record.scaled:
            scaled[x] = kind(record.scale) * value


@merged
def share(piece, arguments, kind):
    """Take pieces of work until none are left; `kind` is the NumPy type of the numbers."""
    record = carray(arguments, 1)[0]
    while True:
        first = take(arguments, 0) * record.piece
        if first >= record.size:
            return
        piece(record, first, min(first + record.piece, record.size), kind)


@kernel(BEGIN)
def begin(kind, version):
    """`begin` for numbers of a NumPy type, as `fracdnn.kernels.threads.Call` takes it."""

    def history_begin(arguments):
        version  # noqa: B018 - see `kernel`
        share(begin_piece, arguments, kind)

    return history_begin


@kernel(FINISH)
def finish(kind, version):
    """`finish` in the same way."""

    def history_finish(arguments):
        version  # noqa: B018 - see `kernel`
        share(finish_piece, arguments, kind)

    return history_finish
