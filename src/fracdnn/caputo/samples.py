"""Caputo derivatives and Riemann–Liouville integrals of sampled functions.

Both are exact for the piecewise-linear interpolant of the samples. With u_k the samples and e the exponent,

    derivative:  e = 1 − order,   Σ_{k=1}^{j} Δu_k/τ_k · [(t_j − t_{k−1})^e − (t_j − t_k)^e] / Γ(1+e)
    integral:    e = 1 + order,   the same sum  +  u_0 (t_j − t_0)^order / Γ(1+order)

so one sum over slopes serves both, and the right-sided operators are the left-sided ones of the reversed samples.
"""

from typing import Any, TypeVar

import numpy as np
import torch

from fracdnn.caputo.weights import lag_increments, power_increments
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.validation import (
    check_choice,
    check_floating,
    check_order,
    check_step_size,
    check_times,
)

Samples = TypeVar("Samples", np.ndarray, torch.Tensor)

# Beyond this many samples a convolution by FFT is faster than the triangular product.
_DIRECT_SAMPLES = 512


def caputo_derivative(
    samples: Samples,
    *,
    order: float | torch.Tensor,
    step_size: float | torch.Tensor | None = None,
    t: Any = None,
    side: str = "left",
) -> Samples:
    """d_t^order of a function from its samples along the first axis (L1 scheme); shape and kind as given.

    Error O(τ^(2−order)) for smooth functions; exact for piecewise-linear ones such as |t|, whose derivative is
    t^(1−order)/Γ(2−order). `side="right"` is d_{T−t}^order, −1/Γ(1−order) ∫_t^T u'(r) (r−t)^(−order) dr.

    The first value (the last for `side="right"`) is 0 for order < 1, where the integral is over nothing. At order 1
    it is the one-sided difference, and the others are backward differences; the right-sided derivative is then
    −u', not u' as the paper says below its eq. (Rcaputo).

    Give `step_size` for equal steps (O(n log n) time) or increasing times `t` (O(n²) time and memory).
    """
    return _apply(_derivative, samples, order, step_size, t, side)


def fractional_integral(
    samples: Samples,
    *,
    order: float | torch.Tensor,
    step_size: float | torch.Tensor | None = None,
    t: Any = None,
    side: str = "left",
) -> Samples:
    """I^order, the Riemann–Liouville integral 1/Γ(order) ∫_0^t u(r) (t−r)^(order−1) dr, from samples.

    The trapezoidal product rule: error O(τ²) for smooth functions; exact for piecewise-linear ones. `side="right"`
    integrates from t to T. For an order above 1 apply it twice: integrals compose. Arguments as in
    `caputo_derivative`.
    """
    return _apply(_integral, samples, order, step_size, t, side)


def _apply(operator, samples, order, step_size, t, side):
    order = check_order(order)
    if order.dim():
        raise InvalidArgumentError(
            f"order must be one number here, got shape {tuple(order.shape)}; call once per order"
        )
    check_choice(side, "side", ("left", "right"))
    values, given_numpy = _as_tensor(samples)
    times, uniform = _times_of(values, step_size, t)
    working = values.to(torch.float64)
    order, times = order.to(values.device), times.to(values.device)
    if side == "right":
        working, times = working.flip(0), (times[-1] - times).flip(0)
    result = operator(working, times, order, uniform)
    result = (result.flip(0) if side == "right" else result).to(values.dtype)
    return result.detach().cpu().numpy() if given_numpy else result


def _derivative(values: torch.Tensor, times: torch.Tensor, order: torch.Tensor, uniform: bool) -> torch.Tensor:
    result = _slope_sum(values, times, 1.0 - order, uniform)
    if float(order.detach()) == 1.0:
        result = torch.cat([result[1:2], result[1:]])
    return result


def _integral(values: torch.Tensor, times: torch.Tensor, order: torch.Tensor, uniform: bool) -> torch.Tensor:
    elapsed = _along_first((times[1:] - times[0]) ** order, values)
    constant = values[:1] * elapsed / torch.exp(torch.lgamma(1.0 + order))
    slopes = _slope_sum(values, times, 1.0 + order, uniform)
    return slopes + torch.cat([torch.zeros_like(values[:1]), constant])


def _slope_sum(values: torch.Tensor, times: torch.Tensor, exponent: torch.Tensor, uniform: bool) -> torch.Tensor:
    """Σ_k Δu_k/τ_k · [(t_j − t_{k−1})^e − (t_j − t_k)^e] / Γ(1+e) for every j, with 0 for j = 0."""
    steps = times.diff()
    slopes = (values.diff(dim=0) / _along_first(steps, values)).reshape(steps.numel(), -1)
    if uniform and slopes.shape[0] > _DIRECT_SAMPLES:
        step = (times[-1] - times[0]) / steps.numel()
        sums = _convolve(step**exponent * lag_increments(exponent, steps.numel()), slopes)
    else:
        sums = power_increments(times, exponent) @ slopes
    sums = sums / torch.exp(torch.lgamma(1.0 + exponent))
    return torch.cat([torch.zeros_like(values[:1]), sums.reshape(values[1:].shape)])


def _convolve(kernel: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
    length = 2 * signal.shape[0]
    spectrum = torch.fft.rfft(kernel, length).unsqueeze(-1) * torch.fft.rfft(signal, length, dim=0)
    return torch.fft.irfft(spectrum, length, dim=0)[: signal.shape[0]]


def _as_tensor(samples: Any) -> tuple[torch.Tensor, bool]:
    if isinstance(samples, torch.Tensor):
        values, given_numpy = samples, False
    elif isinstance(samples, np.ndarray) and samples.dtype.kind in "fiubc":
        values, given_numpy = torch.from_numpy(np.ascontiguousarray(samples)), True
    else:
        raise InvalidTypeError(
            f"samples must be a NumPy array or a torch tensor of floats, got {type(samples).__name__}"
            f"{' of dtype ' + str(samples.dtype) if isinstance(samples, np.ndarray) else ''}; "
            f"convert with np.asarray(samples, dtype=float)"
        )
    check_floating(values, "samples")
    if values.dim() == 0 or values.shape[0] < 2:
        raise InvalidArgumentError(
            f"samples must hold at least 2 values along the first axis, got shape {tuple(values.shape)}; "
            f"time runs along the first axis"
        )
    return values, given_numpy


def _times_of(values: torch.Tensor, step_size: Any, t: Any) -> tuple[torch.Tensor, bool]:
    if (step_size is None) == (t is None):
        given = "neither" if t is None else "both"
        raise InvalidArgumentError(
            f"exactly one of step_size and t must be given, got {given}; "
            f"pass step_size= for equal steps or t= for increasing times"
        )
    n = values.shape[0]
    if t is None:
        return check_step_size(step_size) * torch.arange(n, dtype=torch.float64), True
    times = check_times(t)
    if times.numel() != n:
        raise InvalidArgumentError(
            f"t must have one time per sample, got {times.numel()} times for {n} samples; "
            f"time runs along the first axis of samples"
        )
    return times, False


def _along_first(factors: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return factors.reshape(-1, *[1] * (values.dim() - 1))
