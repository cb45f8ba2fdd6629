# mypy: ignore-errors
"""What a layer does with K y + b, and back, inside Triton's kernels: ACTIVATION is "tanh" or "relu". Needs Triton."""

import triton
import triton.language as tl


@triton.jit
def _tanh(x):
    """To some units in the last place, of float64 too.

    Up to 1/2 by the continued fraction x/(1 + x²/(3 + x²/(5 + …))) to its 13, which is off by 1e-16 there; beyond it
    (1 − e)/(1 + e) with e = exp(−2 |x|), which cancels little there.
    """
    size, square, e = tl.abs(x), x * x, tl.exp(-2.0 * tl.abs(x))
    above = size * (135135.0 + square * (17325.0 + square * (378.0 + square)))
    below = 135135.0 + square * (62370.0 + square * (3150.0 + square * 28.0))
    near = size < 0.5
    value = tl.where(near, above, 1.0 - e) / tl.where(near, below, 1.0 + e)
    return tl.where(x < 0.0, -value, value)


@triton.jit
def activated(x, ACTIVATION: tl.constexpr):
    """σ(x); NaN stays NaN."""
    return _tanh(x) if ACTIVATION == "tanh" else tl.where(x <= 0.0, 0.0, x)


@triton.jit
def through_slope(cotangent, value, ACTIVATION: tl.constexpr):
    """A cotangent times σ', from the value σ had."""
    by_tanh = cotangent * (1.0 - value * value)
    return by_tanh if ACTIVATION == "tanh" else tl.where(value <= 0.0, 0.0, cotangent)
