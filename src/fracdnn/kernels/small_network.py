"""The kernel behind `fracdnn.kernels.tiles`: a tile of samples goes through all layers, and back, in cache.

A tile holds its states as [layer, feature, sample], so that one instruction computes several samples. Nearly all of the
time goes into σ and into one small product, `multiply`: K y of the layers, Kᵀ q of the adjoint, the outputs W y, and
the memory, where the rows are whole states. The memory is summed for blocks of eight layers, so that the states before
the block are read once for all eight; within the block, each state is added to the later ones as soon as it is known.

Arrays are contiguous and addressed by flat offsets. The number of samples in a tile is a multiple of `tile_unit`.
A `network` is (weights, adjoint weights, factors, K, b, strides of b from layer to layer and from feature to feature,
activation). Weights are empty at order 1, and the strides are 0 without b. The gradients are one row: all of K, all of
b, and W if there is a loss. Needs Numba.
"""

import numpy as np
from numba import carray, intp

from fracdnn.kernels.codes import COTANGENT, CROSS_ENTROPY, RELU, STATE
from fracdnn.kernels.compiling import compiled, kernel, merged
from fracdnn.kernels.functions import tanh
from fracdnn.kernels.losses import cross_entropy, labels_fit, squared_error
from fracdnn.kernels.products import add_products, add_sums, multiply
from fracdnn.kernels.threads import numbers, take
from fracdnn.kernels.vectors import across, filled, item_size, lanes, lanes_of, load, spread, store, where_above, zeros

_BLOCK = 8

# What is computed: addresses of contiguous arrays, their sizes, and what to do with them. `kind` is one of `codes`.
# `entered` counts the threads that took work, each of which has a room of its own; each group of tiles has a row of
# `sums`. At `start` go Y_N if the kind is STATE, and the gradient of Y_0 otherwise, unless the address is 0.
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


def tile_unit(item_size: int) -> int:
    """Two vectors' worth of numbers, of `item_size` bytes each."""
    return 2 * lanes(item_size)


@compiled
def fill(out, first, size, number):
    """Write a number to `size` places, a whole number of vectors."""
    value = filled(zeros(out), number)
    for i in range(first, first + size, lanes_of(out)):
        store(out, i, value)


@compiled
def later_in_block(j, n_layers):
    """How many states after Y_j are in the same block as Y_j. Only the first block may be shorter than the others."""
    return (n_layers - j) % _BLOCK if j else 0


@compiled
def remember(states, weights, n_layers, j, size):
    """Write what Y_j, and the rest of its block, remember of the states before the block: Σ_k H_jk Y_k."""
    if not len(weights):
        for i in range(j * size, (j + 1) * size, lanes_of(states)):
            store(states, i, load(states, i - size))
    elif later_in_block(j - 1, n_layers) == 0:
        n_rows = later_in_block(j, n_layers) + 1
        fill(states, j * size, n_rows * size, 0.0)
        multiply(states, j * size, weights, (j - 1) * n_layers, n_layers, intp(1), n_rows, j, states, intp(0), size)


@compiled
def hand_on(y, states, at, i, weights, n_layers, j, size):
    """Add the vector y, a part of Y_j, to what the later states of its block remember."""
    if len(weights):
        for r in range(later_in_block(j, n_layers)):
            o = at + (r + 1) * size + i
            store(states, o, load(states, o) + y * spread(weights, (j + r) * n_layers + j))


@compiled
def activate(activation, z, values, values_at, states, weights, n_layers, j, factor):
    """Write σ(z) to `values`, and complete Y_j by adding factor · σ(z)."""
    nothing, at = zeros(z), j * len(z)
    for i in range(0, len(z), lanes_of(z)):
        value = load(z, i)
        value = where_above(nothing, value, nothing, value) if activation == RELU else tanh(value)
        store(values, values_at + i, value)
        y = load(states, at + i) + value * factor
        store(states, at + i, y)
        hand_on(y, states, at, i, weights, n_layers, j, len(z))


@compiled
def scale_by_slope(activation, out, values, values_at, q, weights, n_layers, n, factor):
    """Write factor · σ'(z) · q to `out`, for row n of q; `values` holds σ(z), which is enough to know σ'(z)."""
    nothing, at = zeros(q), n * len(out)
    for i in range(0, len(out), lanes_of(q)):
        value, row = load(values, values_at + i), load(q, at + i)
        if activation == RELU:
            store(out, i, where_above(value, nothing, row * factor, nothing))
        else:
            store(out, i, (row * factor) * (1.0 - value * value))
        hand_on(row, q, at, i, weights, n_layers, n, len(out))


@compiled
def gather(samples, first, tile, at, size):
    """Copy samples into a tile, transposed, and fill the rest of the tile with zeros."""
    n, width = samples.shape
    for f in range(width):
        for i in range(size):
            known = first + i < n
            tile[at + f * size + i] = samples[first + i, f] if known else samples.dtype.type(0)


@compiled
def scatter(tile, at, size, samples, first):
    """The inverse of `gather`."""
    n, width = samples.shape
    for f in range(width):
        for i in range(min(size, n - first)):
            samples[first + i, f] = tile[at + f * size + i]


@compiled
def forward_tile(states, values, z, network, size):
    """Y_1 … Y_N after Y_0 in `states`, and σ of each layer in `values`; z has room for one state."""
    weights, _, factors, K, b, b_down, b_along, activation = network
    n_layers, whole, width = len(factors), len(z), len(z) // size
    for j in range(1, n_layers + 1):
        before = (j - 1) * whole
        remember(states, weights, n_layers, j, whole)
        for f in range(width):
            bias = b[(j - 1) * b_down + f * b_along] if b_down else factors.dtype.type(0)
            fill(z, f * size, size, bias)
        multiply(z, intp(0), K, (j - 1) * width * width, width, intp(1), width, width, states, before, size)
        activate(activation, z, values, before, states, weights, n_layers, j, factors[j - 1])


@compiled
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
            multiply(q, n * whole, K, K_at, intp(1), width, width, width, z, intp(0), size)


@compiled
def labels_of(record):
    return numbers(record.target, record.n, np.int64)


@compiled
def loss_tile(record, q, states, at_last, first, sums, room, kind):
    """The loss of a tile from its Y_N; Q_N into q, and what the tile adds to the gradient of W into `sums`."""
    n, n_outputs, width, size = record.n, record.n_outputs, record.width, record.size
    shares, W = numbers(record.shares, n, kind), numbers(record.W, n_outputs * width, kind)
    outputs, rest = room
    fill(outputs, intp(0), n_outputs * size, 0.0)
    multiply(outputs, intp(0), W, intp(0), width, intp(1), n_outputs, width, states, at_last, size)
    scatter(outputs, intp(0), size, numbers(record.outputs, (n, n_outputs), kind), first)
    if record.kind == CROSS_ENTROPY:
        labels, smoothing = labels_of(record), record.smoothing
        found = cross_entropy(outputs, n_outputs, size, labels, shares, first, smoothing, rest)
    else:
        targets = numbers(record.target, (n, n_outputs), kind)
        found = squared_error(outputs, n_outputs, size, targets, shares, first)
    add_products(sums, record.n_sums - n_outputs * width, outputs, n_outputs, states, at_last, width, size)
    fill(q, intp(0), width * size, 0.0)
    multiply(q, intp(0), W, intp(0), intp(1), width, width, n_outputs, outputs, intp(0), size)
    return found


@compiled
def network_of(record, kind):
    """What `forward_tile` and `backward_tile` take for a network."""
    n, width = record.n_layers, record.width
    pairs = n * n if record.weights else 0
    weights, adjoint = numbers(record.weights, pairs, kind), numbers(record.adjoint, pairs, kind)
    factors, K = numbers(record.factors, n, kind), numbers(record.K, n * width * width, kind)
    b = numbers(record.b, n * record.b_down, kind)
    return weights, adjoint, factors, K, b, record.b_down, record.b_along, record.activation


@compiled
def room_of(record, place, kind):
    """The parts of a thread's room: states, values of σ, adjoint states, one state, and two for the loss."""
    whole, byte = record.width * record.size, item_size(kind)
    states = record.rooms + place * record.room * byte
    values = states + (record.n_layers + 1) * whole * byte
    q = values + record.n_layers * whole * byte
    z = q + (record.n_layers + 1) * whole * byte
    outputs = z + whole * byte
    n_outputs = record.n_outputs * record.size
    loss = (numbers(outputs, n_outputs, kind), numbers(outputs + n_outputs * byte, 3 * record.size, kind))
    n_states, n_values = (record.n_layers + 1) * whole, record.n_layers * whole
    own = numbers(states, n_states, kind), numbers(values, n_values, kind), numbers(q, n_states, kind)
    return *own, numbers(z, whole, kind), loss


@compiled
def is_finite(array, first, size):
    """Whether the sum of `size` numbers, a whole number of vectors, is finite: if so, all of them are."""
    total = zeros(array)
    for i in range(first, first + size, lanes_of(array)):
        total = total + load(array, i)
    return np.isfinite(across(total))


@merged
def pass_tile(record, network, first, sums, room, kind):
    """Take the samples from `first` on through the layers, and back unless Y_N is all; give whether all was in order.

    It is not where Y_N is not finite or a label has no output.
    """
    n_layers, width, size = record.n_layers, record.width, record.size
    shape, at_last = (record.n, width), n_layers * width * size
    states, values, q, z, loss_room = room
    start = numbers(record.start, shape, kind)
    gather(numbers(record.samples, shape, kind), first, states, intp(0), size)
    forward_tile(states, values, z, network, size)
    if record.kind == STATE:
        scatter(states, at_last, size, start, first)
        return True
    if record.kind == COTANGENT:
        gather(numbers(record.cotangent, shape, kind), first, q, intp(0), size)
    elif record.kind == CROSS_ENTROPY and not labels_fit(labels_of(record), first, size, record.n_outputs):
        return False
    else:
        sums[record.n_sums] += loss_tile(record, q, states, at_last, first, sums, loss_room, kind)
    backward_tile(q, states, values, z, network, sums, record.start > 0, size)
    if record.start:
        scatter(q, at_last, size, start, first)
    return is_finite(states, at_last, width * size)


@merged
def share(arguments, kind):
    """Take groups of tiles until none are left. Each group has its row of sums: the gradients, then the loss itself."""
    record = carray(arguments, 1)[0]
    group = take(arguments, 0)
    if group >= record.n_groups:
        return
    network, room = network_of(record, kind), room_of(record, take(arguments, 1), kind)
    n_tiles = -(-record.n // record.size)
    while group < record.n_groups:
        sums = numbers(record.sums + group * (record.n_sums + 1) * item_size(kind), record.n_sums + 1, kind)
        for i in range(0 if record.kind == STATE else len(sums)):
            sums[i] = 0
        for tile in range(group * n_tiles // record.n_groups, (group + 1) * n_tiles // record.n_groups):
            if not pass_tile(record, network, tile * record.size, sums, room, kind):
                record.fine = 0
        group = take(arguments, 0)


@kernel(RECORD)
def run(kind, version):
    """The whole pass, for numbers of a NumPy type, as `fracdnn.kernels.threads.Call` takes it."""

    def small_network(arguments):
        version  # noqa: B018 - see `kernel`
        share(arguments, kind)

    return small_network
