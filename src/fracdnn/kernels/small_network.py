"""The compiled passes of `fracdnn.nn.fused`: a tile of samples goes through all layers, and back, in cache.

A tile holds its states as [layer, feature, sample]: samples side by side, so that one instruction serves several. All
that is costly is σ and one small product, `multiply`: the layers' K y, the adjoint's Kᵀ q, the outputs W y, and the
memory, where the rows are whole states. The memory is summed for blocks of eight layers, which reads the states before
the block once for the eight; within the block each state is handed on to the later ones as soon as it is known.

Arrays are contiguous and addressed by flat offsets. The samples of a tile are a multiple of `tile_unit`.
A `network` is (weights, adjoint weights, factors, K, b, steps of b from layer to layer and from feature to feature,
activation); no weights at order 1, no steps without b. The gradients are one row: all of K, all of b, and W where there
is a loss.
"""

from functools import lru_cache

import numpy as np
from numba import carray, cfunc, from_dtype, njit, types

from fracdnn.kernels.threads import numbers, take
from fracdnn.kernels.vectors import (
    across,
    filled,
    is_double,
    lanes,
    lanes_of,
    load,
    magnitude,
    power_of_two,
    product_of_rows,
    products_of_rows,
    spread,
    store,
    where_above,
    with_sign,
    zeros,
)

_BLOCK = 8
TANH, RELU = 0, 1
# What is minimised; or the cotangent of Y_N is given.
GIVEN, CROSS_ENTROPY, SQUARED_ERROR = 0, 1, 2

# What is computed: addresses of contiguous arrays, their sizes, and what to do with them. `entered` counts the threads
# that took work, each of which has a room of its own; each group of tiles has a row of `sums`.
# `start` is the address of Y_N for `forward`, of the gradient of Y_0 for `gradients`.
CALL = (
    *("taken", "entered", "fine", "samples", "K", "b", "W", "n_outputs"),
    *("cotangent", "start", "kind", "target", "shares", "outputs", "smoothing", "rooms", "room", "sums", "n_sums"),
)
# What stays the same from call to call.
NETWORK = (
    *("n", "width", "n_layers", "size", "n_groups", "factors", "weights", "adjoint"),
    *("b_down", "b_along", "activation"),
)
RECORD = np.dtype([(name, np.float64 if name == "smoothing" else np.int64) for name in CALL + NETWORK])

_compiled = njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")


def tile_unit(item_size: int) -> int:
    """Two vectors, of numbers of so many bytes."""
    return 2 * lanes(item_size)


_times_8, _times_4, _times_2, _times_1 = (product_of_rows(count) for count in (8, 4, 2, 1))
_products_4, _products_2, _products_1 = (products_of_rows(count) for count in (4, 2, 1))


@_compiled
def multiply(out, out_at, matrix, at, down, along, n_rows, n, rows, rows_at, size):
    """out_r += Σ_{k<n} matrix[r, k] rows_k for r < n_rows; each row is `size` numbers, a multiple of 2 vectors.

    matrix[r, k] lies at `at` + r · `down` + k · `along`.
    """
    for i in range(0, size, 2 * lanes_of(out)):
        o, x, m, r = out_at + i, rows_at + i, at, 0
        while r + 8 <= n_rows:
            _times_8(out, o + r * size, size, matrix, m + r * down, down, along, n, rows, x, size)
            r += 8
        if r + 4 <= n_rows:
            _times_4(out, o + r * size, size, matrix, m + r * down, down, along, n, rows, x, size)
            r += 4
        if r + 2 <= n_rows:
            _times_2(out, o + r * size, size, matrix, m + r * down, down, along, n, rows, x, size)
            r += 2
        if r < n_rows:
            _times_1(out, o + r * size, size, matrix, m + r * down, down, along, n, rows, x, size)


@_compiled
def add_products(total, total_at, left, n_left, right, right_at, n_right, size):
    """total[o, i] += Σ over samples of left_o · right_i: what a tile adds to the gradient of a matrix.

    As many as possible go in squares of four, what is left in squares of two, the rest one by one.
    """
    for o in range(0, n_left - 3, 4):
        for i in range(0, n_right - 3, 4):
            _products_4(total, total_at + o * n_right + i, n_right, left, o * size, right, right_at + i * size, size)
    for o in range(0, n_left - 1, 2):
        for i in range(n_right // 4 * 4 if o < n_left // 4 * 4 else 0, n_right - 1, 2):
            _products_2(total, total_at + o * n_right + i, n_right, left, o * size, right, right_at + i * size, size)
    for o in range(n_left):
        for i in range(n_right // 2 * 2 if o < n_left // 2 * 2 else 0, n_right):
            _products_1(total, total_at + o * n_right + i, n_right, left, o * size, right, right_at + i * size, size)


@_compiled
def add_sums(total, total_at, total_step, rows, n_rows, size):
    """Add the sum of each row to the total, where it comes step by step: what a tile adds to the gradient of b."""
    for r in range(n_rows):
        found = zeros(rows)
        for m in range(r * size, (r + 1) * size, lanes_of(rows)):
            found = found + load(rows, m)
        total[total_at + r * total_step] += across(found)


@_compiled
def later_in_block(j, n_layers):
    """How many states after Y_j are in its block; the first block is the one that may be short."""
    return (n_layers - j) % _BLOCK if j else 0


@_compiled
def remember(states, weights, n_layers, j, size):
    """Begin Y_j, and all its block with it, with Σ_k H_jk Y_k over the states before the block."""
    if not len(weights):
        for i in range(j * size, (j + 1) * size, lanes_of(states)):
            store(states, i, load(states, i - size))
    elif later_in_block(j - 1, n_layers) == 0:
        n_rows = later_in_block(j, n_layers) + 1
        states[j * size : (j + n_rows) * size] = 0.0
        multiply(states, j * size, weights, (j - 1) * n_layers, n_layers, 1, n_rows, j, states, 0, size)


@_compiled
def hand_on(y, states, at, i, weights, n_layers, j, size):
    """Add the vector y, a part of Y_j, to what the other states of its block remember."""
    if len(weights):
        for r in range(later_in_block(j, n_layers)):
            o = at + (r + 1) * size + i
            store(states, o, load(states, o) + y * spread(weights, (j + r) * n_layers + j))


@_compiled
def exponential(t):
    """Give s and p, exp t = s + s p: s = 2^k where t = k ln 2 + r, |r| ≤ ln 2 / 2, and p = expm1 r, a polynomial."""
    if is_double(t):
        shifted = t * 1.4426950408889634 + 6755399441055744.0  # 1.5 · 2^52: rounds to an integer, in the last bits
        k = shifted - 6755399441055744.0
        r = (t - k * 0.6931471803691238) - k * 1.9082149292705877e-10
        r2 = r * r
        r4 = r2 * r2
        high = (r * 2.5100375832561234e-08 + 2.7620075879983367e-07) * r4
        high = high + ((r * 2.7557268480310024e-06 + 2.4801521322368692e-05) * r2)
        high = high + (r * 0.00019841269863040545 + 0.0013888888917196719)
        low = (r * 0.008333333333330065 + 0.041666666666624164) * r2 + (r * 0.16666666666666669 + 0.5000000000000001)
        return power_of_two(shifted), (high * r4 + low) * r2 + r
    shifted = t * 1.4426950408889634 + 12582912.0  # 1.5 · 2^23
    k = shifted - 12582912.0
    r = (t - k * 0.693359375) - k * -0.00021219444005469057
    p = r * 0.00019890980911441147 + 0.0013933641603216529
    p = p * r + 0.00833331048488617
    p = p * r + 0.04166646674275398
    p = p * r + 0.1666666716337204
    p = p * r + 0.5
    return power_of_two(shifted), p * (r * r) + r


@_compiled
def tanh(x):
    """To 3 units in the last place, without branches: −e / (2 + e) with e = expm1(−2|x|), and the sign of x."""
    size = magnitude(x)
    largest = filled(size, 20.0)  # tanh 20 is 1; NaN stays
    power, p = exponential(where_above(size, largest, largest, size) * -2.0)
    e = power * p + (power - 1.0)
    return with_sign(e / (e + 2.0), x)


@_compiled
def activate(activation, z, values, values_at, states, weights, n_layers, j, factor):
    """Write σ(z) to `values` and add factor · σ(z) to Y_j, which that completes."""
    nothing, at = zeros(z), j * len(z)
    for i in range(0, len(z), lanes_of(z)):
        value = load(z, i)
        value = where_above(nothing, value, nothing, value) if activation == RELU else tanh(value)
        store(values, values_at + i, value)
        y = load(states, at + i) + value * factor
        store(states, at + i, y)
        hand_on(y, states, at, i, weights, n_layers, j, len(z))


@_compiled
def scale_by_slope(activation, out, values, values_at, q, weights, n_layers, n, factor):
    """Write factor · σ'(z) · q to `out`, for row n of q, and values that hold σ(z)."""
    nothing, at = zeros(q), n * len(out)
    for i in range(0, len(out), lanes_of(q)):
        value, row = load(values, values_at + i), load(q, at + i)
        if activation == RELU:
            store(out, i, where_above(value, nothing, row * factor, nothing))
        else:
            store(out, i, (row * factor) * (1.0 - value * value))
        hand_on(row, q, at, i, weights, n_layers, n, len(out))


@_compiled
def gather(samples, first, tile, at, size):
    """Samples as rows into a tile, zeros where there are none."""
    n, width = samples.shape
    for f in range(width):
        for i in range(size):
            known = first + i < n
            tile[at + f * size + i] = samples[first + i, f] if known else samples.dtype.type(0)


@_compiled
def scatter(tile, at, size, samples, first):
    """The inverse of `gather`."""
    n, width = samples.shape
    for f in range(width):
        for i in range(min(size, n - first)):
            samples[first + i, f] = tile[at + f * size + i]


@_compiled
def forward_tile(states, values, z, network, size):
    """Y_1 … Y_N after Y_0 in `states`, and σ of each layer in `values`; z is room for one state."""
    weights, _, factors, K, b, b_down, b_along, activation = network
    n_layers, whole, width = len(factors), len(z), len(z) // size
    for j in range(1, n_layers + 1):
        before = (j - 1) * whole
        remember(states, weights, n_layers, j, whole)
        for f in range(width):
            bias = b[(j - 1) * b_down + f * b_along] if b_down else factors.dtype.type(0)
            z[f * size : (f + 1) * size] = bias
        multiply(z, 0, K, (j - 1) * width * width, width, 1, width, width, states, before, size)
        activate(activation, z, values, before, states, weights, n_layers, j, factors[j - 1])


@_compiled
def backward_tile(q, states, values, z, network, sums, to_start, size):
    """Q_{N−1} … Q_1 after Q_N in q, and Q_0 where `to_start`; adds to the gradients of K and b in `sums`."""
    _, weights, factors, K, _, b_down, b_along, activation = network
    n_layers, whole, width = len(factors), len(z), len(z) // size
    for n in range(1, n_layers + 1):
        j = n_layers - n  # from Q_{j+1}, row n − 1 of q, to Q_j
        K_at = j * width * width
        scale_by_slope(activation, z, values, j * whole, q, weights, n_layers, n - 1, factors[j])
        add_products(sums, K_at, z, width, states, j * whole, width, size)
        if b_down:
            add_sums(sums, n_layers * width * width + j * b_down, b_along, z, width, size)
        if j or to_start:
            remember(q, weights, n_layers, n, whole)
            multiply(q, n * whole, K, K_at, 1, width, width, width, z, 0, size)


@_compiled
def cross_entropy(outputs, n_outputs, size, labels, shares, first, smoothing, room):
    """Σ share · loss over the samples of a tile, and its gradient in place of the outputs.

    With outputs l and s = `smoothing`: log Σ_c exp l_c − (1 − s) l_label − s · mean l.
    """
    step, n = lanes_of(outputs), len(labels)
    share, total, rest = room[:size], room[size : 2 * size], room[2 * size : 3 * size]
    for i in range(size):
        share[i] = shares[first + i] if first + i < n else shares.dtype.type(0)
    keep = outputs.dtype.type(1.0 - smoothing)
    spare = outputs.dtype.type(smoothing / n_outputs)
    for i in range(size):
        picked = labels[first + i] * size + i if first + i < n else i
        rest[i] = -keep * outputs[picked]
    for i in range(0, size, step):
        top, added = load(outputs, i), zeros(outputs)
        for c in range(n_outputs):
            output = load(outputs, c * size + i)
            top = where_above(output, top, output, top)
            added = added + output
        below = filled(top, -700.0 if is_double(top) else -80.0)
        sum_ = zeros(outputs)
        for c in range(n_outputs):
            t = load(outputs, c * size + i) - top
            power, p = exponential(where_above(below, t, below, t))
            value = power * p + power
            sum_ = sum_ + value
            store(outputs, c * size + i, value)
        store(total, i, sum_)
        store(rest, i, load(rest, i) + top - added * spare)
        weight = load(share, i)
        for c in range(n_outputs):
            at = c * size + i
            store(outputs, at, (load(outputs, at) / sum_ - spare) * weight)
    loss = outputs.dtype.type(0)
    for i in range(min(size, n - first)):
        loss += share[i] * (np.log(total[i]) + rest[i])
        outputs[labels[first + i] * size + i] -= keep * share[i]
    return loss


@_compiled
def labels_fit(labels, n_outputs):
    """Whether there is an output for each label."""
    fit = True
    for label in labels:
        fit &= 0 <= label < n_outputs
    return fit


@_compiled
def squared_error(outputs, n_outputs, size, targets, shares, first):
    """Σ share · half the mean square over the samples of a tile, and its gradient in place of the outputs."""
    loss = outputs.dtype.type(0)
    for i in range(size):
        known = first + i < len(targets)
        share = shares[first + i] / outputs.dtype.type(n_outputs) if known else outputs.dtype.type(0)
        for c in range(n_outputs):
            error = outputs[c * size + i] - targets[first + i, c] if known else outputs.dtype.type(0)
            loss += outputs.dtype.type(0.5) * share * error * error
            outputs[c * size + i] = share * error
    return loss


@_compiled
def loss_tile(q, last, kind, smoothing, data, W, first, sums, sums_at, room, size):
    """The loss of a tile from Y_N in `last`; Q_N into q, and what the tile adds to the gradient of W to `sums`."""
    labels, targets, shares, results = data
    whole, n_outputs = len(last), results.shape[1]
    width = whole // size
    outputs = room[: n_outputs * size]
    outputs[:] = 0.0
    multiply(outputs, 0, W, 0, width, 1, n_outputs, width, last, 0, size)
    scatter(outputs, 0, size, results, first)
    if kind == CROSS_ENTROPY:
        found = cross_entropy(outputs, n_outputs, size, labels, shares, first, smoothing, room[n_outputs * size :])
    else:
        found = squared_error(outputs, n_outputs, size, targets, shares, first)
    add_products(sums, sums_at, outputs, n_outputs, last, 0, width, size)
    q[:whole] = 0.0
    multiply(q, 0, W, 0, 1, width, width, n_outputs, outputs, 0, size)
    return found


@_compiled
def divide(room, n_layers, whole):
    """The parts of a room: states, values of σ, adjoint states, one state, and the rest, for the loss."""
    states, values, q = (n_layers + 1) * whole, n_layers * whole, (n_layers + 1) * whole
    after = states + values + q
    return (
        room[:states],
        room[states:][:values],
        room[states + values :][:q],
        room[after:][:whole],
        room[after + whole :],
    )


@_compiled
def network_of(record, like):
    """What `forward_tile` and `backward_tile` take for a network."""
    n, width = record.n_layers, record.width
    pairs = n * n if record.weights else 0
    weights, adjoint = numbers(record.weights, pairs, like), numbers(record.adjoint, pairs, like)
    factors, K = numbers(record.factors, n, like), numbers(record.K, n * width * width, like)
    b = numbers(record.b, n * record.b_down, like)
    return weights, adjoint, factors, K, b, record.b_down, record.b_along, record.activation


@_compiled
def own_room(record, arguments, like):
    """A room that no other thread has."""
    return numbers(record.rooms + take(arguments, 1) * record.room * like.itemsize, record.room, like)


@_compiled
def forward_share(record, arguments, like):
    """Y_N of the samples, in `start`: groups of tiles until none are left."""
    group = take(arguments, 0)
    if group >= record.n_groups:  # no work left: `entered` counts the threads that took some
        return
    network, size, n_layers = network_of(record, like), record.size, record.n_layers
    shape = (record.n, record.width)
    samples, out = numbers(record.samples, shape, like), numbers(record.start, shape, like)
    whole, n_tiles = record.width * size, -(-record.n // size)
    states, values, _, z, _ = divide(own_room(record, arguments, like), n_layers, whole)
    while group < record.n_groups:
        for tile in range(group * n_tiles // record.n_groups, (group + 1) * n_tiles // record.n_groups):
            gather(samples, tile * size, states, 0, size)
            forward_tile(states, values, z, network, size)
            scatter(states, n_layers * whole, size, out, tile * size)
        group = take(arguments, 0)


@_compiled
def gradients_share(record, arguments, like):
    """The loss, or a given cotangent of Y_N, back to the parameters; to Y_0 where there is a `start`.

    Each group of tiles has its row of `sums`: the gradients, then the loss itself. `fine` says in the end whether all
    was in order: Y_N finite, as far as a sum can tell, and labels within the outputs.
    """
    group = take(arguments, 0)
    if group >= record.n_groups:
        return
    network, size, n_layers = network_of(record, like), record.size, record.n_layers
    n, width, n_outputs = record.n, record.width, record.n_outputs
    samples, cotangent = numbers(record.samples, (n, width), like), numbers(record.cotangent, (n, width), like)
    start = numbers(record.start, (n, width), like)
    labels = numbers(record.target, n, np.empty(0, np.int64))
    targets, shares = numbers(record.target, (n, n_outputs), like), numbers(record.shares, n, like)
    data = (labels, targets, shares, numbers(record.outputs, (n, n_outputs), like))
    sums = numbers(record.sums, (record.n_groups, record.n_sums + 1), like)
    whole, n_tiles = width * size, -(-n // size)
    W, W_at = numbers(record.W, n_outputs * width, like), n_layers * (width * width + record.b_down)
    states, values, q, z, rest = divide(own_room(record, arguments, like), n_layers, whole)
    latest, total = states[n_layers * whole :], like.dtype.type(0)
    while group < record.n_groups:
        row = sums[group]
        row[:] = 0.0
        for tile in range(group * n_tiles // record.n_groups, (group + 1) * n_tiles // record.n_groups):
            at = tile * size
            gather(samples, at, states, 0, size)
            forward_tile(states, values, z, network, size)
            for value in latest:
                total += value
            if record.kind == GIVEN:
                gather(cotangent, at, q, 0, size)
            elif record.kind == CROSS_ENTROPY and not labels_fit(labels[at : at + size], n_outputs):
                record.fine = 0
                return
            else:
                smoothing = record.smoothing
                row[-1] += loss_tile(q, latest, record.kind, smoothing, data, W, at, row, W_at, rest, size)
            backward_tile(q, states, values, z, network, row, record.start > 0, size)
            if record.start:
                scatter(q, n_layers * whole, size, start, at)
        group = take(arguments, 0)
    if not np.isfinite(total):
        record.fine = 0


@lru_cache(maxsize=2)
def forward(kind):
    """`forward_share` for numbers of a NumPy type, as `fracdnn.kernels.threads.Call` takes it."""

    @cfunc(types.void(types.CPointer(from_dtype(RECORD))), cache=True)
    def entry(arguments):
        forward_share(carray(arguments, 1)[0], arguments, np.empty(0, kind))

    return entry


@lru_cache(maxsize=2)
def gradients(kind):
    """`gradients_share` in the same way."""

    @cfunc(types.void(types.CPointer(from_dtype(RECORD))), cache=True)
    def entry(arguments):
        gradients_share(carray(arguments, 1)[0], arguments, np.empty(0, kind))

    return entry
