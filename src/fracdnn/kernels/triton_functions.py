# mypy: ignore-errors
"""Activations and their slopes for kernels of Triton. Needs Triton."""

import triton
import triton.language as tl

from fracdnn.kernels import codes

_TANH, _RELU, _GELU = (tl.constexpr(code) for code in (codes.TANH, codes.RELU, codes.GELU))
_SILU, _SIGMOID = tl.constexpr(codes.SILU), tl.constexpr(codes.SIGMOID)


@triton.jit
def tanh(x):
    """To a few units in the last place: by its series up to 1/4, where the exponential would cancel.

    The interpreter has no tanh, and the hardware's has three digits.
    """
    u, e = x * x, tl.exp(-2.0 * tl.abs(x))
    p = u * -0.008863235529902197 + 0.021869488536155203
    if x.dtype == tl.float64:
        q = u * -0.00023912911424355248 + 0.0005900274409455859
        q = u * q - 0.0014558343870513183
        p = u * (u * q + 0.003592128036572481) - 0.008863235529902197
        p = u * p + 0.021869488536155203
    p = u * p - 0.05396825396825397
    p = u * p + 0.13333333333333333
    p = u * p - 0.3333333333333333
    far = (1.0 - e) / (1.0 + e)
    return tl.where(u < 0.0625, x + x * (u * p), tl.where(x < 0.0, -far, far))


@triton.jit
def sigmoid(x):
    e = tl.exp(-tl.abs(x))
    return tl.where(x < 0.0, e, 1.0) / (1.0 + e)


@triton.jit
def _normal(x):
    """The normal distribution up to x."""
    return 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def activate(z, ACTIVATION: tl.constexpr):
    """σ(z); NaN stays."""
    if ACTIVATION == _TANH:
        value = tanh(z)
    elif ACTIVATION == _RELU:
        value = tl.where(z < 0.0, 0.0, z)
    elif ACTIVATION == _GELU:
        value = z * _normal(z)
    elif ACTIVATION == _SILU:
        value = z * sigmoid(z)
    elif ACTIVATION == _SIGMOID:
        value = sigmoid(z)
    else:
        value = z
    return value


@triton.jit
def through_slope(q, kept, ACTIVATION: tl.constexpr):
    """σ'(z) q, from σ(z) where that is enough, and else from z: for GELU and SiLU."""
    if ACTIVATION == _TANH:
        q *= 1.0 - kept * kept
    elif ACTIVATION == _RELU:
        q = tl.where(kept > 0.0, q, 0.0)
    elif ACTIVATION == _GELU:
        q *= _normal(kept) + kept * 0.3989422804014327 * tl.exp(-0.5 * kept * kept)
    elif ACTIVATION == _SILU:
        share = sigmoid(kept)
        q *= share * (1.0 + kept * (1.0 - share))
    elif ACTIVATION == _SIGMOID:
        q *= kept * (1.0 - kept)
    return q


@triton.jit
def what_to_keep(z, value, ACTIVATION: tl.constexpr):
    """What `through_slope` needs."""
    return z if ACTIVATION == _GELU or ACTIVATION == _SILU else value
