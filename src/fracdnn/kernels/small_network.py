"""The kernel of the engine "numba": a tile of samples goes through all layers, and back, in cache. Needs Numba.

A row is as many samples as fill `TILE_BYTES`, a constant, and every inner loop runs over the samples of a row: the
compiler makes vector instructions of it. Arrays are flat and addressed by offsets, with rows a constant apart, so that
few comparisons tell the compiler that what it writes is not what it reads. Loops are written out where a shorter form
is several times slower. All is in one file: when it changes, Numba compiles again.

A history is [feature, row, sample], row j the state Y_j. Going back, row n is the adjoint state Q_{N−n}, so that both
passes sum in the same way. Rows come in blocks of four: `begin_block` adds all that is older to the four rows at once,
so that a state is read once for them, and `complete` what is in the block itself. Other states are [feature, sample].

A `network` is (weights, adjoint weights, factors, K, b, activation). Weights are empty at order 1, else flat, as many
rows and columns as a history has rows, with the weights of row j in row j; b is [layer, feature]. A `task` is (one of
`codes`, labels, targets, shares, outputs, smoothing).
"""

import math
from functools import lru_cache

import numpy as np
from numba import from_dtype, njit, types
from numba.extending import overload

from fracdnn.kernels.codes import COTANGENT, CROSS_ENTROPY, RELU, STATE

# A product and a sum may become one instruction, with one rounding; division by 0 gives infinity.
OPTIONS = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True}
# Python calls only the whole kernel: without wrappers for its parts, compiling takes less time.
_part = {**OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
compiled = njit(**_part)
inlined = njit(inline="always", **_part)  # for what runs every few numbers, and large functions with one caller
summed = njit(forceinline=True, **{**_part, "fastmath": {"contract", "reassoc", "nsz"}})  # sums in any order
TILE_BYTES = 576  # of a row of a tile; not a power of two: rows would drive each other out of the cache
# Offsets without a sign: Numba counts negative ones from the end, which would keep loops from being vectors.
place = np.uint64


def size_of(array):
    """Samples of a row of an array, in compiled code: a constant to the compiler."""


@overload(size_of, jit_options={"forceinline": True})
def _size_of(array):
    size = TILE_BYTES // (array.dtype.bitwidth // 8)
    return lambda array: size


def exponential(x):
    """Give s and p such that exp x = s + s p, for |x| up to 700, or 80 in single precision.

    With x = k ln 2 + r and |r| ≤ ln 2 / 2, s is 2^k and p is expm1 r, computed as a polynomial. Adding `shift` rounds
    to an integer, in the last bits, and adds the bias of the exponent.
    """


# Numbers and their bits, bits of the fraction, bias; ln 2 in two parts; (expm1 r − r)/r², the highest power first.
_FLOATS: dict = {
    types.float64: (
        np.float64, np.int64, 52, 1023, 0.6931471803691238, 1.9082149292705877e-10, 2.5100375832561234e-08,
        2.7620075879983367e-07, 2.7557268480310024e-06, 2.4801521322368692e-05, 0.00019841269863040545,
        0.0013888888917196719, 0.008333333333330065, 0.041666666666624164, 0.16666666666666669, 0.5000000000000001,
    ),
    types.float32: (
        np.float32, np.int32, 23, 127, 0.693359375, -0.00021219444005469057, 1.98909809e-4, 1.39336416e-3,
        8.33331048e-3, 0.0416664667, 0.166666672, 0.5,
    ),
}  # fmt: skip


@overload(exponential, jit_options={**OPTIONS, "forceinline": True})
def _exponential(x):
    kind, whole, n_bits, bias, *numbers = _FLOATS[x]
    per_ln_2, shift, bits = kind(1.4426950408889634), kind(1.5 * 2**n_bits + bias), whole(n_bits)
    high, low, leading, *lower = map(kind, numbers)
    coefficients = tuple(lower)

    def compute(x):
        shifted = x * per_ln_2 + shift
        k = shifted - shift
        r = (x - k * high) - k * low
        p = leading
        for coefficient in coefficients:
            p = p * r + coefficient
        return whole(kind(shifted).view(whole) << bits).view(kind), p * (r * r) + r

    return compute


@inlined
def tanh(x, one, two, most):
    """To 3 units in the last place, without branches: −e / (2 + e) with e = expm1(−2|x|), and the sign of x."""
    size = abs(x)
    size = most if size > most else size
    power, p = exponential(-two * size)
    e = power * p + (power - one)
    return math.copysign(e / (e + two), x)


@inlined
def add_16(out, at, matrix, m, down, along, rows, x):
    """out_r += Σ_k matrix[r, k] rows_k, four rows r and four terms k; matrix[r, k] is at m + r · down + k · along."""
    n1, n2, n3 = place(size_of(out)), place(2 * size_of(out)), place(3 * size_of(out))
    k1, k2, k3, at, x = place(along), place(2 * along), place(3 * along), place(at), place(x)
    a, b, c, d = place(m), place(m + down), place(m + 2 * down), place(m + 3 * down)
    a0, a1, a2, a3 = matrix[a], matrix[a + k1], matrix[a + k2], matrix[a + k3]
    b0, b1, b2, b3 = matrix[b], matrix[b + k1], matrix[b + k2], matrix[b + k3]
    c0, c1, c2, c3 = matrix[c], matrix[c + k1], matrix[c + k2], matrix[c + k3]
    d0, d1, d2, d3 = matrix[d], matrix[d + k1], matrix[d + k2], matrix[d + k3]
    for i in range(n1):
        x0, x1, x2, x3 = rows[x + i], rows[x + n1 + i], rows[x + n2 + i], rows[x + n3 + i]
        out[at + i] = a3 * x3 + (a2 * x2 + (a1 * x1 + (a0 * x0 + out[at + i])))
        out[at + n1 + i] = b3 * x3 + (b2 * x2 + (b1 * x1 + (b0 * x0 + out[at + n1 + i])))
        out[at + n2 + i] = c3 * x3 + (c2 * x2 + (c1 * x1 + (c0 * x0 + out[at + n2 + i])))
        out[at + n3 + i] = d3 * x3 + (d2 * x2 + (d1 * x1 + (d0 * x0 + out[at + n3 + i])))


@compiled
def multiply(out, at, n_rows, matrix, m, down, along, n, rows, x):
    """out_r += Σ_{k<n} matrix[r, k] rows_k for r < n_rows: four by four, the rest one by one."""
    size = size_of(out)
    for r in range(0, n_rows - 3, 4):
        for k in range(0, n - 3, 4):
            add_16(out, at + r * size, matrix, m + r * down + k * along, down, along, rows, x + k * size)
    for r in range(n_rows):
        for k in range(n // 4 * 4 if r < n_rows // 4 * 4 else 0, n):
            weight, row, term = matrix[place(m + r * down + k * along)], place(at + r * size), place(x + k * size)
            for i in range(place(size)):
                out[row + i] += weight * rows[term + i]


@summed
def dots_16(left, at, right, r, step, total, t, down):
    """Add the scalar products of four rows with four rows that are `step` numbers apart to total[t + down · o + i]."""
    size, l0, r0, zero = place(size_of(left)), place(at), place(r), left.dtype.type(0)
    l1, l2, l3 = place(at + size_of(left)), place(at + 2 * size_of(left)), place(at + 3 * size_of(left))
    r1, r2, r3 = place(r + step), place(r + 2 * step), place(r + 3 * step)
    a0, a1, a2, a3, b0, b1, b2, b3 = zero, zero, zero, zero, zero, zero, zero, zero
    c0, c1, c2, c3, d0, d1, d2, d3 = zero, zero, zero, zero, zero, zero, zero, zero
    for i in range(size):
        x0, x1, x2, x3 = right[r0 + i], right[r1 + i], right[r2 + i], right[r3 + i]
        a, b, c, d = left[l0 + i], left[l1 + i], left[l2 + i], left[l3 + i]
        a0, a1, a2, a3 = a0 + a * x0, a1 + a * x1, a2 + a * x2, a3 + a * x3
        b0, b1, b2, b3 = b0 + b * x0, b1 + b * x1, b2 + b * x2, b3 + b * x3
        c0, c1, c2, c3 = c0 + c * x0, c1 + c * x1, c2 + c * x2, c3 + c * x3
        d0, d1, d2, d3 = d0 + d * x0, d1 + d * x1, d2 + d * x2, d3 + d * x3
    t = place(t)
    for row in ((a0, a1, a2, a3), (b0, b1, b2, b3), (c0, c1, c2, c3), (d0, d1, d2, d3)):
        total[t] += row[0]
        total[t + place(1)] += row[1]
        total[t + place(2)] += row[2]
        total[t + place(3)] += row[3]
        t += place(down)


@summed
def add_products(total, t, left, at, n_left, right, r, step, n_right):
    """total[o, i] += Σ over samples of left_o · right_i: what a tile adds to the gradient of a matrix."""
    size = size_of(left)
    for o in range(0, n_left - 3, 4):
        for i in range(0, n_right - 3, 4):
            dots_16(left, at + o * size, right, r + i * step, step, total, t + o * n_right + i, n_right)
    for o in range(n_left):
        for i in range(n_right // 4 * 4 if o < n_left // 4 * 4 else 0, n_right):
            x, y, dot = place(at + o * size), place(r + i * step), left.dtype.type(0)
            for s in range(place(size)):
                dot += left[x + s] * right[y + s]
            total[t + o * n_right + i] += dot


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
        loss, zero, half = outputs.dtype.type(0), outputs.dtype.type(0), outputs.dtype.type(0.5)
        for i in range(size):  # half the mean square
            known = first + i < len(targets)
            share = shares[first + i] / outputs.dtype.type(n_outputs) if known else zero
            for c in range(n_outputs):
                error = outputs[c * size + i] - targets[first + i, c] if known else zero
                loss += half * share * error * error
                outputs[c * size + i] = share * error
    add_products(sums, len(sums) - 1 - W.size, outputs, 0, n_outputs, y, 0, size, width)
    y[:] = 0
    multiply(y, 0, width, matrix, 0, 1, width, n_outputs, outputs, 0)
    return loss


@inlined
def pass_tile(network, task, W, samples, cotangent, start, first, room, sums):
    """Take the samples from `first` on through the layers, and back unless Y_N is all.

    `states` become Y_0 … Y_N and `values` σ of each layer, y is the newest state; then q becomes Q_N … Q_1, and Q_0 if
    there is a `start`. Gradients of K and b are added to those in `sums`.
    """
    weights, adjoint_weights, factors, K, b, activation = network
    kind, n_layers, width, size = task[0], len(K), K.shape[1], size_of(room)
    n_rows, whole, matrices = n_layers // 4 * 4 + 4, width * size, K.reshape(-1)
    step, history = n_rows * size, n_rows * whole
    change, y, room = room[:whole], room[whole : 2 * whole], room[2 * whole :]
    states, q, room = room[:history], room[history : 2 * history], room[2 * history :]
    values, outputs = room[: n_layers * whole], room[n_layers * whole :]
    states[:] = 0
    gather(samples, first, states, step)
    gather(samples, first, y, size)
    for j in range(1, n_layers + 1):
        if j % 4 == 0:
            begin_block(states, n_rows, width, weights, j)
        z = (j - 1) * whole
        for f in range(width):
            values[z + f * size : z + (f + 1) * size] = b[j - 1, f]
        multiply(values, z, width, matrices, (j - 1) * width * width, width, 1, width, y, 0)
        activate(activation, values, z, whole)
        complete(states, n_rows, width, weights, j, values, z, factors[j - 1], y)
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
    for n in range(1, n_layers + 1):
        j = n_layers - n  # from Q_{j+1}, row n − 1 of q, to Q_j
        z, k, totals = j * whole, j * width * width, K.size + j * width
        scale_by_slope(activation, values, z, q, (n - 1) * size, step, width, factors[j], sums, totals)
        add_products(sums, k, values, z, width, states, j * size, step, width)
        if j or len(start):
            if n % 4 == 0:
                begin_block(q, n_rows, width, adjoint_weights, n)
            change[:] = 0
            multiply(change, 0, width, matrices, k, 1, width, width, values, z)
            complete(q, n_rows, width, adjoint_weights, n, change, 0, q.dtype.type(1), y)
    if len(start):
        scatter(q[n_layers * size :], step, start, first)


@lru_cache
def run(kind):
    """The kernel for a NumPy type: compiled, or found on disk where an earlier process has kept it.

    It takes the groups of tiles from `first` to `stop`. Each has its row of `sums`: gradients of K, b and W, the loss.
    """
    f, whole = from_dtype(np.dtype(kind)), types.int64
    row, matrix = f[::1], f[:, ::1]
    network = (row, row, row, f[:, :, ::1], matrix, whole)
    task = (whole, types.int64[::1], matrix, row, matrix, types.float64)
    signature = (*network, *task, matrix, matrix, matrix, matrix, whole, whole, row, matrix)

    # Single arguments, since tuples take Numba many times as long to look at.
    def small_network(
        weights, adjoint, factors, K, b, activation, kind, labels, targets, shares, outputs, smoothing,
        W, samples, cotangent, start, first, stop, room, sums,
    ):  # fmt: skip
        network = weights, adjoint, factors, K, b, activation
        task = kind, labels, targets, shares, outputs, smoothing
        size, n_groups = size_of(room), len(sums)
        n_tiles = -(-len(samples) // size)
        for group in range(first, stop):
            sums[group] = 0
            for tile in range(group * n_tiles // n_groups, (group + 1) * n_tiles // n_groups):
                pass_tile(network, task, W, samples, cotangent, start, tile * size, room, sums[group])

    try:
        return njit(signature, cache=True, **OPTIONS)(small_network)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return njit(signature, **OPTIONS)(small_network)  # no folder is writable: not kept
