"""tanh and exp of vectors, to a few units in the last place. Needs Numba."""

from fracdnn.kernels.compiling import compiled
from fracdnn.kernels.vectors import filled, is_double, magnitude, power_of_two, where_above, with_sign


@compiled
def exponential(t):
    """Give s and p such that exp t = s + s p.

    With t = k ln 2 + r and |r| ≤ ln 2 / 2, s is 2^k and p is expm1 r, computed as a polynomial.
    """
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


@compiled
def tanh(x):
    """To 3 units in the last place, without branches: −e / (2 + e) with e = expm1(−2|x|), and the sign of x."""
    size = magnitude(x)
    largest = filled(size, 20.0)  # tanh 20 is 1; NaN stays
    power, p = exponential(where_above(size, largest, largest, size) * -2.0)
    e = power * p + (power - 1.0)
    return with_sign(e / (e + 2.0), x)
