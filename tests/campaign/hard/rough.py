"""Right-hand sides that are singular, not finite, rounded, or jump with time or state; and those without solutions."""

import math

import numpy as np

from tests.campaign.hard.case import Problem, array, kind, like
from tests.campaign.hard.linear import SHARES
from tests.campaign.hard.references import decay


@kind("power")
def power(case):
    """d^order u = c · x^(−p): u = u_0 + c Γ(1−p)/Γ(1−p+order) x^(order−p) for p < 1, and none for p ≥ 1.

    Where p reaches the order the solution does not tend to u_0: numbers are right by the formula, or it is refused.
    """
    p, size, first = case.given["p"], case.given["size"], case.given["first"]

    def func(m, x, u, a):
        return a * (size * x ** (-p)).to(u.dtype) + 0 * u

    y0 = array(first)
    if p >= 1:
        return Problem(func, y0, SHARES, None, answer="must refuse")
    rise = size * math.gamma(1 - p) / math.gamma(1 - p + case.order) * SHARES ** (case.order - p)
    exact = first + rise[:, None]
    return Problem(func, y0, SHARES, exact, derivative=rise[:, None], scale=abs(size) + abs(first), answer="may refuse")


@kind("no solution")
def no_solution(case):
    """A solution of u' = u² ends at a finite time inside the span, and a start like 1/u has nowhere to go from 0."""
    what, size = case.given["what"], case.given["size"]

    def func(m, x, u, a):
        return {"square": size * u**2, "exponential": size * m.exp(u), "reciprocal": -size / u}[what]

    # Each is over by x = 1 for the sizes that are drawn: comparison with order 1 and with the rate of the start.
    return Problem(func, array(1.0), SHARES, None, answer="must refuse")


@kind("bad start")
def bad_start(case):
    """NaN or infinite at t[0] alone; else a decay toward a level."""
    rate, value = case.given["rate"], float(case.given["value"])
    exact = 1 - decay(rate, case.order, SHARES)

    def func(m, x, u, a):
        return a * rate * (m.where(x > 0, 1.0, value)).to(u.dtype) - rate * u

    return Problem(func, array(0.0), SHARES, exact, derivative=exact, answer="may refuse")


def rounded(m, value, bits):
    """To so many bits; 24 by way of float32, as a network of single precision would."""
    if bits == 24:
        return value.to(m.float32).to(value.dtype)
    fraction, exponent = m.frexp(value.detach())
    digits = m.ldexp(m.round(fraction * 2.0**bits) * 2.0**-bits, exponent)
    return value + (digits - value).detach()  # the derivative is that of the value


@kind("noise")
def noise(case):
    """A decay toward a level, rounded to 8 … 40 bits: an answer is right up to what the rounding can do to it."""
    rate, level, bits, scale = (case.given[name] for name in ("rate", "level", "bits", "scale"))
    falls = decay(rate, case.order, SHARES)
    exact = scale * (falls + level * (1 - falls))

    def func(m, x, u, a):
        return rounded(m, rate * (scale * level - u), bits)

    steepest = rate * abs(1 - level)
    # The integral of the kernel over all of the span, or 1/rate of a stable problem, times half a unit in the last bit.
    reach = min(1 / rate, 1 / math.gamma(case.order + 1))
    off = scale * steepest * reach * 2.0**-bits
    answer = "solve" if off < 0.1 * case.rtol * scale * max(level, 1e-3) else "may refuse"
    return Problem(func, array(scale), SHARES, exact, scale=scale, noise=off, answer=answer)


@kind("sign")
def sign(case):
    """From 1 down to 0 by d^order u = −c · sign u, and there it stays, by sliding."""
    size = case.given["size"]
    fall = 1 - size * SHARES**case.order / math.gamma(case.order + 1)
    exact = np.maximum(fall, 0.0)[:, None]

    def func(m, x, u, a):
        return -size * u.sign()

    slides = bool(exact.min() == 0)
    peak = np.ones_like(exact)
    answer = "may refuse" if slides else "solve"
    return Problem(func, array(1.0), SHARES, exact, scale=1.0, peak=peak, answer=answer)


@kind("kink")
def kink(case):
    """Down by u' = −c − rate · relu(u − level) through the level, where the slope has a kink; order 1."""
    level, rate, size = case.given["level"], case.given["rate"], case.given["size"]
    scale = case.given["scale"]
    above = 1 - level
    crossing = math.log1p(rate * above / size) / rate
    before = (above + size / rate) * np.exp(-rate * SHARES) + level - size / rate
    exact = scale * np.where(crossing > SHARES, before, level - size * (SHARES - crossing))[:, None]

    def func(m, x, u, a):
        return -size * scale - rate * m.relu(u - level * scale)

    peak = np.maximum.accumulate(np.abs(exact)) + scale * level
    return Problem(func, array(scale), SHARES, exact, scale=scale, peak=peak)


@kind("large and noisy")
def large_and_noisy(case):
    """A large component in single precision next to a small one in double: the small one keeps its digits."""
    rate, scale = array(*case.given["rates"]), array(*case.given["scales"])
    exact = scale * np.concatenate([decay(each, case.order, SHARES) for each in rate], axis=1)

    def func(m, x, u, a):
        slope = -like(m, rate, u) * u
        return m.stack([rounded(m, slope[0], 24), slope[1]])

    off = np.array([scale[0] * min(1.0, rate[0] / math.gamma(case.order + 1)) * 2.0**-24, 0.0])
    answer = "solve" if off[0] < 0.1 * case.rtol * np.abs(exact[:, 0]).min() else "may refuse"
    return Problem(func, scale, SHARES, exact, scale=scale, noise=off, answer=answer)
