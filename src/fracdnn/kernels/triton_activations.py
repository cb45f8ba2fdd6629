# mypy: ignore-errors
"""What a layer does with z = K y + b, and back, inside Triton's kernels: ACTIVATION is a name. Needs Triton.

`to_keep` says what of it the way back needs: σ(z), but z itself for GELU and SiLU.
"""

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
def _sigmoid(x):
    e = tl.exp(-tl.abs(x))
    return tl.where(x < 0.0, e, 1.0) / (1.0 + e)


@triton.jit
def _normal(x):
    """The normal distribution up to x."""
    return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def activated(z, ACTIVATION: tl.constexpr):
    """σ(z); NaN stays NaN."""
    if ACTIVATION == "tanh":
        z = _tanh(z)
    elif ACTIVATION == "relu":
        z = tl.where(z <= 0.0, 0.0, z)
    elif ACTIVATION == "gelu":
        z *= _normal(z)
    elif ACTIVATION == "silu":
        z *= _sigmoid(z)
    elif ACTIVATION == "sigmoid":
        z = _sigmoid(z)
    return z


@triton.jit
def to_keep(z, value, ACTIVATION: tl.constexpr):
    by_argument: tl.constexpr = ACTIVATION == "gelu" or ACTIVATION == "silu"
    return z if by_argument else value


@triton.jit
def through_slope(cotangent, kept, ACTIVATION: tl.constexpr):
    """A cotangent times σ', from what was kept."""
    if ACTIVATION == "tanh":
        cotangent *= 1.0 - kept * kept
    elif ACTIVATION == "relu":
        cotangent = tl.where(kept <= 0.0, 0.0, cotangent)
    elif ACTIVATION == "gelu":
        cotangent *= _normal(kept) + kept * 0.3989422804014327 * tl.exp(-0.5 * kept * kept)
    elif ACTIVATION == "silu":
        share = _sigmoid(kept)
        cotangent *= share * (1.0 + kept * (1.0 - share))
    elif ACTIVATION == "sigmoid":
        cotangent *= kept * (1.0 - kept)
    return cotangent
