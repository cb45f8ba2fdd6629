"""The kernel behind the engine "numba": a tile of samples goes through all layers, and back, in cache.

A history is [feature, row, sample], row j the state Y_j. Going back, row n is the adjoint state Q_{N−n}, so that both
passes sum in the same way. Rows come in blocks of four: `begin_block` adds all that is older than a block to its four
rows at once, so that a state is read once for four rows, and `complete` what is in the block itself. All other states
are [feature, sample].

A `network` is (weights, adjoint weights, factors, K, b, activation). Weights are empty at order 1, else flat, as many
rows and columns as a history has rows, with the weights of row j in row j; b is [layer, feature]. A `task` is (one of
`codes`, labels, targets, shares, outputs, smoothing). Needs Numba.
"""

import hashlib
import math
from functools import lru_cache
from pathlib import Path

import numpy as np
from numba import from_dtype, njit, types

from fracdnn.kernels import rows
from fracdnn.kernels.codes import COTANGENT, CROSS_ENTROPY, RELU, STATE
from fracdnn.kernels.rows import (
    add_16,
    add_products,
    compiled,
    exponential,
    inlined,
    multiply,
    place,
    size_of,
    summed,
    tanh,
)


@compiled
def begin_block(history, n_rows, width, weights, j):
    """Add to rows j to j + 3 of every feature, j a multiple of 4, what they remember of the rows before."""
    size = size_of(history)
    for first in range(0, width * n_rows * size if len(weights) else 0, n_rows * size):
        for k in range(0, j, 4):
            add_16(history, first + j * size, weights, j * n_rows + k, n_rows, 1, history, first + k * size)


@compiled
def complete(history, n_rows, width, weights, j, changes, c, factor, y):
    """Add to row j what it remembers of its own block, and factor · change; the whole also goes into y.

    `changes` is [feature, sample] from c on. A row before the first is read too, times 0.
    """
    n1, n2, n3 = place(size_of(history)), place(2 * size_of(history)), place(3 * size_of(history))
    kind, w, n_terms = history.dtype.type, place(j * n_rows + j), j % 4 if len(weights) else 1
    w1 = (weights[w - place(1)] if n_terms else kind(0)) if len(weights) else kind(1)
    w2 = weights[w - place(2)] if n_terms > 1 else kind(0)
    w3 = weights[w - place(3)] if n_terms > 2 else kind(0)
    row, step, x, change = place(j) * n1, place(n_rows) * n1, place(0), place(c)
    for _ in range(width):
        if n_terms < 2:
            for i in range(n1):
                value = w1 * history[row - n1 + i] + (factor * changes[change + i] + history[row + i])
                history[row + i] = value
                y[x + i] = value
        else:
            for i in range(n1):
                value = w1 * history[row - n1 + i] + (factor * changes[change + i] + history[row + i])
                value = w3 * history[row - n3 + i] + (w2 * history[row - n2 + i] + value)
                history[row + i] = value
                y[x + i] = value
        row, x, change = row + step, x + n1, change + n1


@compiled
def activate(activation, z, at, n):
    """σ(z) in the place of z, for n numbers."""
    zero, one, two, most = z.dtype.type(0), z.dtype.type(1), z.dtype.type(2), z.dtype.type(20)
    for i in range(place(at), place(at + n)):
        if activation == RELU:
            z[i] = zero if zero > z[i] else z[i]  # NaN stays
        else:
            z[i] = tanh(z[i], one, two, most)


@summed
def scale_by_slope(activation, values, z, q, row, step, width, factor, totals, t):
    """Write factor · σ'(z) · q in the place of σ(z), which is enough to know σ'(z); and its sums over the samples."""
    size, zero, one = place(size_of(q)), q.dtype.type(0), q.dtype.type(1)
    z, row = place(z), place(row)
    for f in range(width):
        total = zero
        for i in range(size):
            value = values[z + i]
            if activation == RELU:
                value = factor * q[row + i] if value > zero else zero
            else:
                value = (factor * q[row + i]) * (one - value * value)
            values[z + i] = value
            total += value
        totals[t + f] += total
        z, row = z + size, row + place(step)


@inlined
def forward_tile(network, states, n_rows, values, y):
    """Y_1 … Y_N after Y_0 in `states` and y, σ of each layer in `values`, and Y_N in y."""
    weights, _, factors, K, b, activation = network
    width, size, matrices = K.shape[1], size_of(y), K.reshape(-1)
    for j in range(1, len(K) + 1):
        if j % 4 == 0:
            begin_block(states, n_rows, width, weights, j)
        z = (j - 1) * width * size
        for f in range(width):
            values[z + f * size : z + (f + 1) * size] = b[j - 1, f]
        multiply(values, z, width, matrices, (j - 1) * width * width, width, 1, width, y, 0)
        activate(activation, values, z, width * size)
        complete(states, n_rows, width, weights, j, values, z, factors[j - 1], y)


@inlined
def backward_tile(network, q, states, n_rows, values, change, y, sums, to_start):
    """Q_{N−1} … Q_1 after Q_N in q, and Q_0 where `to_start`; adds to the gradients of K and b in `sums`."""
    _, weights, factors, K, _, activation = network
    n_layers, width, size = len(K), K.shape[1], size_of(q)
    matrices, step = K.reshape(-1), n_rows * size
    for n in range(1, n_layers + 1):
        j = n_layers - n  # from Q_{j+1}, row n − 1 of q, to Q_j
        z, totals = j * width * size, K.size + j * width
        scale_by_slope(activation, values, z, q, (n - 1) * size, step, width, factors[j], sums, totals)
        add_products(sums, j * width * width, values, z, width, states, j * size, step, width)
        if j or to_start:
            if n % 4 == 0:
                begin_block(q, n_rows, width, weights, n)
            change[:] = 0
            multiply(change, 0, width, matrices, j * width * width, 1, width, width, values, z)
            complete(q, n_rows, width, weights, n, change, 0, q.dtype.type(1), y)


@compiled
def gather(samples, first, tile, step):
    """Copy samples into a tile, transposed, features `step` numbers apart, and fill the rest of the tile with zeros."""
    n = min(size_of(tile), len(samples) - first)
    for f in range(samples.shape[1]):
        tile[f * step : f * step + n] = samples[first : first + n, f]
        tile[f * step + n : f * step + size_of(tile)] = 0


@compiled
def scatter(tile, step, samples, first):
    """The inverse of `gather`."""
    n = min(size_of(tile), len(samples) - first)
    for f in range(samples.shape[1]):
        samples[first : first + n, f] = tile[f * step : f * step + n]


@inlined
def cross_entropy(outputs, n_outputs, labels, shares, first, smoothing):
    """Σ share · loss over the samples of a tile, NaN where a label has no output; its gradient in place of the outputs.

    With outputs l and s = `smoothing`: log Σ_c exp l_c − (1 − s) l_label − s · mean l.
    """
    size, kind, n = size_of(outputs), outputs.dtype.type, min(size_of(outputs), len(labels) - first)
    loss, keep, spare = kind(0), kind(1.0 - smoothing), kind(smoothing / n_outputs)
    below = kind(-700 if outputs.itemsize == 8 else -80)
    top, total = outputs[:size].copy(), np.zeros(size, outputs.dtype)
    for c in range(n_outputs):
        for i in range(place(size)):
            value = outputs[place(c * size) + i]
            top[i] = value if value > top[i] else top[i]
    for i in range(n):
        label = labels[first + i]
        if not 0 <= label < n_outputs:
            return kind(math.nan)
        loss += shares[first + i] * (top[i] - keep * outputs[label * size + i])
        for c in range(n_outputs if smoothing else 0):
            loss -= shares[first + i] * spare * outputs[c * size + i]
    for c in range(n_outputs):
        for i in range(place(size)):
            t = outputs[place(c * size) + i] - top[i]
            power, p = exponential(below if below > t else t)
            outputs[place(c * size) + i] = power * p + power
            total[i] += power * p + power
    for i in range(size):
        share = shares[first + i] if i < n else kind(0)
        loss += share * math.log(total[i])
        top[i], total[i] = spare * share, share / total[i]
    for c in range(n_outputs):
        for i in range(place(size)):
            outputs[place(c * size) + i] = outputs[place(c * size) + i] * total[i] - top[i]
    for i in range(n):
        outputs[labels[first + i] * size + i] -= keep * shares[first + i]
    return loss


@inlined
def squared_error(outputs, targets, shares, first):
    """Σ share · half the mean square over the samples of a tile, and its gradient in place of the outputs."""
    size, kind = size_of(outputs), outputs.dtype.type
    n, n_outputs = targets.shape
    loss = kind(0)
    for i in range(size):
        known = first + i < n
        share = shares[first + i] / kind(n_outputs) if known else kind(0)
        for c in range(n_outputs):
            error = outputs[c * size + i] - targets[first + i, c] if known else kind(0)
            loss += kind(0.5) * share * error * error
            outputs[c * size + i] = share * error
    return loss


@inlined
def loss_tile(task, W, first, y, outputs, sums):
    """The loss of a tile from its Y_N in y; Q_N into y, and what the tile adds to the gradient of W into `sums`."""
    kind, labels, targets, shares, found, smoothing = task
    n_outputs, width = W.shape
    size, matrix = size_of(y), W.reshape(-1)
    outputs[: n_outputs * size] = 0
    multiply(outputs, 0, n_outputs, matrix, 0, width, 1, width, y, 0)
    scatter(outputs, size, found, first)
    if kind == CROSS_ENTROPY:
        loss = cross_entropy(outputs, n_outputs, labels, shares, first, smoothing)
    else:
        loss = squared_error(outputs, targets, shares, first)
    add_products(sums, len(sums) - 1 - W.size, outputs, 0, n_outputs, y, 0, size, width)
    y[:] = 0
    multiply(y, 0, width, matrix, 0, 1, width, n_outputs, outputs, 0)
    return loss


@inlined
def pass_tile(network, task, W, samples, cotangent, start, first, room, sums):
    """Take the samples from `first` on through the layers, and back unless Y_N is all."""
    K, kind = network[3], task[0]
    n_layers, width, size = len(K), K.shape[1], size_of(room)
    n_rows, whole = n_layers // 4 * 4 + 4, width * size
    step, history = n_rows * size, n_rows * whole
    change, y, room = room[:whole], room[whole : 2 * whole], room[2 * whole :]
    states, q, room = room[:history], room[history : 2 * history], room[2 * history :]
    values, outputs = room[: n_layers * whole], room[n_layers * whole :]
    states[:] = 0
    gather(samples, first, states, step)
    gather(samples, first, y, size)
    forward_tile(network, states, n_rows, values, y)
    if kind == STATE:
        scatter(y, size, start, first)
        return
    if kind == COTANGENT:
        gather(cotangent, first, y, size)
    else:
        sums[len(sums) - 1] += loss_tile(task, W, first, y, outputs, sums)
    q[:] = 0
    for f in range(width):
        q[f * step : f * step + size] = y[f * size : (f + 1) * size]
    backward_tile(network, q, states, n_rows, values, change, y, sums, len(start) > 0)
    if len(start):
        scatter(q[n_layers * size :], step, start, first)


@lru_cache
def run(kind):
    """The kernel for a NumPy type: compiled, or found on disk where an earlier process has kept it.

    It takes the groups of tiles from `group` to `stop`. Each has its row of `sums`: the gradients of K, b and W, then
    the loss.
    Numba takes it from disk unless this file has changed, or a variable that the function has from here: so it mentions
    `version`.
    """
    f, version = from_dtype(np.dtype(kind)), _version()
    row, matrix, whole = f[::1], f[:, ::1], types.int64
    network = (row, row, row, f[:, :, ::1], matrix, whole)
    task = (whole, types.int64[::1], matrix, row, matrix, types.float64)
    signature = (*network, *task, matrix, matrix, matrix, matrix, whole, whole, row, matrix)

    # Single arguments, since tuples take Numba many times as long to look at.
    # fmt: off
    def small_network(
        weights, adjoint, factors, K, b, activation, kind, labels, targets, shares, outputs, smoothing,
        W, samples, cotangent, start, first, stop, room, sums,
    ):
        # fmt: on
        version  # noqa: B018
        network = weights, adjoint, factors, K, b, activation
        task = kind, labels, targets, shares, outputs, smoothing
        size, n_groups = size_of(room), len(sums)
        n_tiles = -(-len(samples) // size)
        for group in range(first, stop):
            sums[group] = 0
            for tile in range(group * n_tiles // n_groups, (group + 1) * n_tiles // n_groups):
                pass_tile(network, task, W, samples, cotangent, start, tile * size, room, sums[group])

    try:
        return njit(signature, cache=True, **rows.OPTIONS)(small_network)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return njit(signature, **rows.OPTIONS)(small_network)  # no folder is writable: not kept


def _version() -> int:
    """A number that is another one as soon as one of the two files of the kernel is."""
    files = b"".join(Path(file).read_bytes() for file in (rows.__file__, __file__))
    return int.from_bytes(hashlib.sha256(files).digest()[:7], "big")
