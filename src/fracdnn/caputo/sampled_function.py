"""Caputo derivatives and Riemann–Liouville integrals of sampled functions.

Both are exact for the piecewise-linear interpolant of the samples. With u_k the samples and e the exponent,

    derivative:  e = 1 − order,   Σ_{k=1}^{j} Δu_k/τ_k · [(t_j − t_{k−1})^e − (t_j − t_k)^e] / Γ(1+e)
    integral:    e = 1 + order,   the same sum  +  u_0 (t_j − t_0)^order / Γ(1+order)

so one sum over slopes serves both, and the right-sided operators are the left-sided ones of the reversed samples.
"""

import math
from typing import Any, TypeVar

import numpy as np
import torch

from fracdnn.caputo.product_integration import constant_weights
from fracdnn.caputo.weights import gamma, lag_increments
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.validation import check_choice, check_floating, check_one_order, check_step_size, check_times

Samples = TypeVar("Samples", np.ndarray, torch.Tensor)

# Up to this many samples the triangular product is faster than a convolution by FFT.
_DIRECT_SAMPLES = 512


def caputo_derivative(
    values: Samples,
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

    Give `step_size` for equal steps (O(n log² n) time) or increasing times `t` (O(n²) time and memory).
    """
    return _apply(values, order, step_size, t, side, integrated=False)


def fractional_integral(
    values: Samples,
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
    return _apply(values, order, step_size, t, side, integrated=True)


def _apply(samples, order, step_size, t, side, *, integrated):
    order = check_one_order(order)
    check_choice(side, "side", ("left", "right"))
    values = _as_tensor(samples)
    times, uniform = _times_of(values, step_size, t)
    working = values.to(torch.float64)
    order, times = order.to(values.device), times.to(values.device)
    if side == "right":
        working, times = working.flip(0), (times[-1] - times).flip(0)
    result = _slope_sum(working, times, 1.0 + order if integrated else 1.0 - order, uniform)
    if integrated:
        start = working[:1] * _along_first((times[1:] - times[0]) ** order, working) / gamma(1.0 + order)
        result = result + torch.cat([torch.zeros_like(working[:1]), start])
    elif float(order.detach()) == 1.0:
        result = torch.cat([result[1:2], result[1:]])
    result = (result.flip(0) if side == "right" else result).to(values.dtype)
    return result.detach().numpy().astype(samples.dtype) if isinstance(samples, np.ndarray) else result


def _slope_sum(values: torch.Tensor, times: torch.Tensor, exponent: torch.Tensor, uniform: bool) -> torch.Tensor:
    """Σ_k Δu_k/τ_k · [(t_j − t_{k−1})^e − (t_j − t_k)^e] / Γ(1+e) for every j, with 0 for j = 0."""
    steps = times.diff()
    slopes = (values.diff(dim=0) / _along_first(steps, values)).reshape(steps.numel(), -1)
    if uniform and slopes.shape[0] > _DIRECT_SAMPLES and slopes.numel():
        step = (times[-1] - times[0]) / steps.numel()
        kernel = step**exponent * lag_increments(exponent, steps.numel()) / gamma(1.0 + exponent)
        sums = _causal_convolution(kernel, slopes)
    else:
        sums = constant_weights(exponent.reshape(1), times[1:], times)[0] @ slopes
    return torch.cat([torch.zeros_like(values[:1]), sums.reshape(values[1:].shape)])


def _causal_convolution(kernel: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
    """Σ_{k≤j} kernel_{j−k} signal_k for every j, in O(n log² n).

    Directly within blocks; between halves of ever larger blocks by FFT, whose rounding is then measured against the
    signal nearby and not against the largest value anywhere, which may be far away and later.
    """
    n, size = signal.shape[0], _DIRECT_SAMPLES
    padded_length = size * 2 ** math.ceil(math.log2(max(n / size, 1)))
    kernel = torch.nn.functional.pad(kernel, (0, padded_length - n))
    signal = torch.nn.functional.pad(signal, (0, 0, 0, padded_length - n))
    index = torch.arange(size, device=signal.device)
    within = kernel[(index.unsqueeze(-1) - index).clamp(min=0)].tril()
    result = (within @ signal.view(-1, size, signal.shape[1])).view_as(signal)
    while size < padded_length:
        sources = signal.view(-1, 2 * size, signal.shape[1])[:, :size]
        spectrum = torch.fft.rfft(kernel[: 2 * size]).unsqueeze(-1) * torch.fft.rfft(sources, 2 * size, dim=1)
        later = torch.fft.irfft(spectrum, 2 * size, dim=1)[:, size:]
        result = result + torch.cat([torch.zeros_like(sources), later], dim=1).view_as(signal)
        size *= 2
    return result[:n]


def _as_tensor(samples: Any) -> torch.Tensor:
    if isinstance(samples, torch.Tensor):
        values = samples
    elif isinstance(samples, np.ndarray) and samples.dtype.kind in "fiubc":
        values = torch.from_numpy(np.array(samples, dtype=np.float64 if samples.dtype.kind == "f" else None))
    else:
        raise InvalidTypeError(
            f"values must be a NumPy array or a torch tensor of floats, got {type(samples).__name__}"
            f"{' of dtype ' + str(samples.dtype) if isinstance(samples, np.ndarray) else ''}; "
            f"convert with np.asarray(values, dtype=float)"
        )
    check_floating(values, "values")
    if values.dim() == 0 or values.shape[0] < 2:
        raise InvalidArgumentError(
            f"values must hold at least 2 values along the first axis, got shape {tuple(values.shape)}; "
            f"time runs along the first axis"
        )
    return values


def _times_of(values: torch.Tensor, step_size: Any, t: Any) -> tuple[torch.Tensor, bool]:
    if (step_size is None) == (t is None):
        given = "neither" if t is None else "both"
        raise InvalidArgumentError(
            f"exactly one of step_size and t must be given, got {given}; "
            f"pass step_size= for equal steps or t= for increasing times"
        )
    n = values.shape[0]
    if t is None:
        step = check_step_size(step_size)
        if step.dim():
            raise InvalidArgumentError(
                f"step_size must be one number here, got shape {tuple(step.shape)}; pass t= for unequal steps"
            )
        return step * torch.arange(n, dtype=torch.float64, device=step.device), True
    times = check_times(t)
    if times.numel() != n:
        raise InvalidArgumentError(
            f"t must have one time per sample, got {times.numel()} times for {n} samples; "
            f"time runs along the first axis of values"
        )
    return times, False


def _along_first(factors: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return factors.reshape(-1, *[1] * (values.dim() - 1))
