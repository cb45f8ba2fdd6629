"""Rows of samples: tanh, exp, small products of matrices with rows, and scalar products of rows. Needs Numba.

A row is as many samples as fill `TILE_BYTES`. That is a constant, and every inner loop runs over the samples
of a row: that is what the compiler makes vector instructions of. Arrays are flat and addressed by offsets, with rows a
constant apart, so that few comparisons tell the compiler that what it writes is not what it reads. Loops are written
out where a shorter form is several times slower.
"""

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

# A product and a sum may become one instruction, with one rounding; division by 0 gives infinity.
OPTIONS = {"fastmath": {"contract"}, "error_model": "numpy", "nogil": True}
# Python calls only the whole kernel: without wrappers for its parts, compiling takes less time.
_part = {**OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
compiled = njit(**_part)
# A part of its caller: for what runs every few numbers, and for large functions that are called from one place.
inlined = njit(inline="always", **_part)
# For sums over samples, which may be taken in another order.
summed = njit(forceinline=True, **{**_part, "fastmath": {"contract", "reassoc", "nsz"}})

# What a row of a tile takes. Not a power of two: rows would drive each other out of the cache.
TILE_BYTES = 576
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
_FLOATS: dict[Any, tuple[Any, ...]] = {
    types.float64: (
        *(np.float64, np.int64, 52, 1023, 0.6931471803691238, 1.9082149292705877e-10, 2.5100375832561234e-08),
        *(2.7620075879983367e-07, 2.7557268480310024e-06, 2.4801521322368692e-05, 0.00019841269863040545),
        *(0.0013888888917196719, 0.008333333333330065, 0.041666666666624164, 0.16666666666666669, 0.5000000000000001),
    ),
    types.float32: (
        *(np.float32, np.int32, 23, 127, 0.693359375, -0.00021219444005469057),
        *(1.98909809e-4, 1.39336416e-3, 8.33331048e-3, 0.0416664667, 0.166666672, 0.5),
    ),
}


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
def dot(left, at, right, r):
    total = left.dtype.type(0)
    for i in range(place(size_of(left))):
        total += left[place(at) + i] * right[place(r) + i]
    return total


@compiled
def add_products(total, t, left, at, n_left, right, r, step, n_right):
    """total[o, i] += Σ over samples of left_o · right_i: what a tile adds to the gradient of a matrix."""
    size = size_of(left)
    for o in range(0, n_left - 3, 4):
        for i in range(0, n_right - 3, 4):
            dots_16(left, at + o * size, right, r + i * step, step, total, t + o * n_right + i, n_right)
    for o in range(n_left):
        for i in range(n_right // 4 * 4 if o < n_left // 4 * 4 else 0, n_right):
            total[t + o * n_right + i] += dot(left, at + o * size, right, r + i * step)
