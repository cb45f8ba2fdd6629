"""The compiled passes of `fracdnn.nn.fused`: a tile of samples goes through all layers, and back, in cache.

A tile holds its states as [layer, feature, sample]: samples side by side, so that one instruction serves several. All
that is costly is one small product, `multiply`: the layers' K y, the adjoint's Kᵀ q, and the memory, where the rows are
whole states. The memory is summed for four layers at a time, which reads the older states once for the four.

Arrays are contiguous and addressed by flat offsets. The samples of a tile are a multiple of `tile_unit`.
A `network` is (weights, factors, K, b, activation), its `adjoint` (weights, K) transposed; no weights at order 1.
"""

import numpy as np
from numba import njit

from fracdnn.compiled.products import multiply
from fracdnn.compiled.vectors import across, add_product, lanes, lanes_of, load, zeros

_LAYERS_AT_ONCE = 4
TANH, RELU = 0, 1

_compiled = njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")


def tile_unit(item_size: int) -> int:
    """Two vectors, of numbers of so many bytes."""
    return 2 * lanes(item_size)


@_compiled
def remember(states, at, weights, n_layers, j, size):
    """Begin Y_j with Σ_{k<j} H_jk Y_k, for whole blocks of layers as far as their states are known."""
    first = j - (j - 1) % _LAYERS_AT_ONCE
    if j == first:
        n_rows = min(_LAYERS_AT_ONCE, n_layers + 1 - j)
        states[at + j * size : at + (j + n_rows) * size] = 0.0
        multiply(states, at + j * size, weights, (j - 1) * n_layers, n_layers, n_rows, j, states, at, size)
    else:
        row = (j - 1) * n_layers + first
        multiply(states, at + j * size, weights, row, n_layers, 1, j - first, states, at + first * size, size)


@_compiled
def add_activation(activation, z, out, state, factor):
    """Write σ(z) to `out` and add factor · σ(z) to `state`."""
    if activation == RELU:
        for i in range(len(z)):
            value = z[i] if not z[i] <= 0 else z.dtype.type(0)
            out[i] = value
            state[i] += factor * value
        return
    for i in range(len(z)):
        value = z.dtype.type(tanh(np.float64(z[i])))
        out[i] = value
        state[i] += factor * value


@_compiled
def tanh(x):
    """To 3 units in the last place, without branches: −e / (2 + e) with e = expm1(−2|x|), and the sign of x."""
    size = abs(x)
    t = -2.0 * (20.0 if size > 20.0 else size)  # tanh 20 is 1; NaN stays
    shifted = t * 1.4426950408889634 + 6755399441055744.0  # 1.5 · 2^52: rounds to an integer, in the last bits
    k = shifted - 6755399441055744.0
    r = t - k * 0.6931471803691238 - k * 1.9082149292705877e-10
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-09
    p = p * r + 2.505210838544172e-08
    p = p * r + 2.755731922398589e-07
    p = p * r + 2.7557319223985893e-06
    p = p * r + 2.48015873015873e-05
    p = p * r + 0.0001984126984126984
    p = p * r + 0.001388888888888889
    p = p * r + 0.008333333333333333
    p = p * r + 0.041666666666666664
    p = p * r + 0.16666666666666666
    p = p * r + 0.5
    p = p * r * r + r
    power = np.int64((np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52)).view(np.float64)
    e = power * p + (power - 1.0)
    return np.copysign(e / (e + 2.0), x)


@_compiled
def scale_by_slope(activation, q, value, factor, out):
    """Write factor · σ'(z) · q to `out`, where value = σ(z)."""
    if activation == RELU:
        for i in range(len(q)):
            out[i] = factor * q[i] if value[i] > 0 else q.dtype.type(0)
        return
    for i in range(len(q)):
        out[i] = factor * q[i] * (q.dtype.type(1) - value[i] * value[i])


@_compiled
def add_products(total, total_at, left, right, right_at, width, size):
    """total[o, i] += Σ over samples of left_o · right_i: what a tile adds to the gradient of K."""
    step, nothing = lanes_of(left), zeros(left)
    for i in range(width):
        y = right_at + i * size
        o = 0
        while o + 4 <= width:
            a, b, c, d = nothing, nothing, nothing, nothing
            x = o * size
            for m in range(0, size, step):
                v = load(right, y + m)
                a = add_product(a, load(left, x + m), v)
                b = add_product(b, load(left, x + size + m), v)
                c = add_product(c, load(left, x + 2 * size + m), v)
                d = add_product(d, load(left, x + 3 * size + m), v)
            at = total_at + o * width + i
            total[at] += across(a)
            total[at + width] += across(b)
            total[at + 2 * width] += across(c)
            total[at + 3 * width] += across(d)
            o += 4
        while o < width:
            a = nothing
            for m in range(0, size, step):
                a = add_product(a, load(left, o * size + m), load(right, y + m))
            total[total_at + o * width + i] += across(a)
            o += 1


@njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")
def add_sums(total, total_at, rows, n_rows, size):
    """total_r += the sum of row r: what a tile adds to the gradient of b."""
    for r in range(n_rows):
        found = rows.dtype.type(0)
        for value in rows[r * size : (r + 1) * size]:
            found += value
        total[total_at + r] += found


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
def forward_tile(states, at, values, values_at, z, network, size):
    """Y_1 … Y_N after Y_0 in `states`, and σ of each layer in `values`; z is room for one state."""
    weights, factors, K, b, activation = network
    n_layers, whole, width = len(factors), len(z), len(z) // size
    for j in range(1, n_layers + 1):
        y, before = at + j * whole, at + (j - 1) * whole
        if len(weights):
            remember(states, at, weights, n_layers, j, whole)
        else:
            states[y : y + whole] = states[before:y]
        for f in range(width):
            z[f * size : (f + 1) * size] = b[(j - 1) * width + f]
        multiply(z, 0, K, (j - 1) * width * width, width, width, width, states, before, size)
        value = values[values_at + (j - 1) * whole : values_at + j * whole]
        add_activation(activation, z, value, states[y : y + whole], factors[j - 1])


@_compiled
def backward_tile(q, states, at, values, values_at, z, network, adjoint, sums, group, size):
    """Q_{N−1} … Q_0 after Q_N in q; what the tile adds to the gradients of K and b goes to the sums of its group."""
    _, factors, _, _, activation = network
    weights, K = adjoint
    grad_K, grad_b = sums
    n_layers, whole, width = len(factors), len(z), len(z) // size
    for n in range(1, n_layers + 1):
        j = n_layers - n  # from Q_{j+1}, row n − 1 of q, to Q_j
        if len(weights):
            remember(q, 0, weights, n_layers, n, whole)
        else:
            q[n * whole : (n + 1) * whole] = q[(n - 1) * whole : n * whole]
        value = values[values_at + j * whole : values_at + (j + 1) * whole]
        scale_by_slope(activation, q[(n - 1) * whole : n * whole], value, factors[j], z)
        b_at = (group * n_layers + j) * width
        add_products(grad_K, b_at * width, z, states, at + j * whole, width, size)
        add_sums(grad_b, b_at, z, width, size)
        multiply(q, n * whole, K, j * width * width, width, width, width, z, 0, size)


@_compiled
def forward(first, last, n_groups, size, samples, out, kept, rooms, network):
    """Y_N of the samples in groups first … last − 1 of tiles; all states are kept, or only those of the latest tile."""
    states, values, z = rooms
    n_layers, whole, n_tiles = len(network[1]), len(z), -(-len(samples) // size)
    for tile in range(first * n_tiles // n_groups, last * n_tiles // n_groups):
        at, values_at = kept * tile * (n_layers + 1) * whole, kept * tile * n_layers * whole
        gather(samples, tile * size, states, at, size)
        forward_tile(states, at, values, values_at, z, network, size)
        scatter(states, at + n_layers * whole, size, out, tile * size)


@_compiled
def backward(first, last, n_groups, size, samples, cotangent, out, kept, rooms, network, adjoint, sums):
    """Q_0 of those samples, and the gradients of K and b, which each group of tiles sums in its own place."""
    states, values, z, q = rooms
    n_layers, whole, n_tiles = len(network[1]), len(z), -(-len(samples) // size)
    for group in range(first, last):
        for tile in range(group * n_tiles // n_groups, (group + 1) * n_tiles // n_groups):
            at, values_at = kept * tile * (n_layers + 1) * whole, kept * tile * n_layers * whole
            if not kept:
                gather(samples, tile * size, states, at, size)
                forward_tile(states, at, values, values_at, z, network, size)
            gather(cotangent, tile * size, q, 0, size)
            backward_tile(q, states, at, values, values_at, z, network, adjoint, sums, group, size)
            scatter(q, n_layers * whole, size, out, tile * size)
