"""Caputo derivatives and Riemann–Liouville integrals of sampled functions.

Both are exact for the piecewise-linear interpolant of the samples. With u_k the samples and e the exponent,

    derivative:  e = 1 − order,   Σ_{k=1}^{j} Δu_k/τ_k · [(t_j − t_{k−1})^e − (t_j − t_k)^e] / Γ(1+e)
    integral:    e = 1 + order,   the same sum  +  u_0 (t_j − t_0)^order / Γ(1+order)

so one sum over slopes serves both, and the right-sided operators are the left-sided ones of the reversed samples.
"""

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
    """Return d_t^order of a function from samples along the first axis (L1 scheme); shape and kind as given.

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
    """Return I^order, the Riemann–Liouville integral 1/Γ(order) ∫_0^t u(r) (t−r)^(order−1) dr, from samples.

    The trapezoidal product rule: error O(τ²) for smooth functions; exact for piecewise-linear ones. `side="right"`
    integrates from t to T. For an order above 1 apply it twice: integrals compose. Arguments as in
    `caputo_derivative`.
    """
    return _apply(values, order, step_size, t, side, integrated=True)


def _apply(samples, order, step_size, t, side, *, integrated):
    order = check_one_order(order)
    check_choice(side, "side", ("left", "right"))
    values = _as_tensor(samples)
    times = _times_of(values, step_size, t).to(values.device)
    working, order = values.to(torch.float64), order.to(values.device)
    if side == "right":
        working, times = working.flip(0), (times[-1] - times).flip(0)
    shape, columns = working.shape, working.reshape(len(working), -1)
    result = _slope_sum(columns, times, 1.0 + order if integrated else 1.0 - order, is_uniform=t is None)
    if integrated:
        result = result + columns[0] * ((times[1:] - times[0]) ** order / gamma(1.0 + order)).unsqueeze(1)
    # An integral over nothing is 0; at order 1 the derivative is local, and the first one is a one-sided difference.
    is_local = not integrated and float(order.detach()) == 1.0
    result = torch.cat([result[:1] if is_local else torch.zeros_like(columns[:1]), result]).reshape(shape)
    result = (result.flip(0) if side == "right" else result).to(values.dtype)
    return result.detach().numpy().astype(samples.dtype) if isinstance(samples, np.ndarray) else result


def _slope_sum(values: torch.Tensor, times: torch.Tensor, exponent: torch.Tensor, *, is_uniform: bool) -> torch.Tensor:
    """Return Σ_k Δu_k/τ_k · [(t_j − t_{k−1})^e − (t_j − t_k)^e] / Γ(1+e) for every j ≥ 1."""
    steps = times.diff()
    slopes, n = values.diff(dim=0) / steps.unsqueeze(1), len(steps)
    if not is_uniform or n <= _DIRECT_SAMPLES or not slopes.numel():
        return constant_weights(exponent.reshape(1), times[1:], times)[0] @ slopes
    step = (times[-1] - times[0]) / n
    return _causal_convolution(step**exponent * lag_increments(exponent, n) / gamma(1.0 + exponent), slopes)


def _causal_convolution(kernel: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
    """Return Σ_{k≤j} kernel_{j−k} signal_k for every j, in O(n log² n).

    Halves by themselves, and by FFT what the first half adds to the second: the rounding of the FFT is then relative to
    the signal nearby and before, not to the largest value anywhere.
    """
    n = len(signal)
    if n <= _DIRECT_SAMPLES:
        index = torch.arange(n, device=signal.device)
        return kernel[(index.unsqueeze(-1) - index).clamp(min=0)].tril() @ signal
    half = n // 2
    spectrum = torch.fft.rfft(kernel[:n], n + half).unsqueeze(1) * torch.fft.rfft(signal[:half], n + half, dim=0)
    added = torch.fft.irfft(spectrum, n + half, dim=0)[half:n]
    return torch.cat([_causal_convolution(kernel, signal[:half]), _causal_convolution(kernel, signal[half:]) + added])


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


def _times_of(values: torch.Tensor, step_size: Any, t: Any) -> torch.Tensor:
    if (step_size is None) == (t is None):
        given = "neither" if t is None else "both"
        raise InvalidArgumentError(
            f"exactly one of step_size and t must be given, got {given}; "
            f"pass step_size= for equal steps or t= for increasing times"
        )
    if t is None:
        step = check_step_size(step_size)
        if step.dim():
            raise InvalidArgumentError(
                f"step_size must be one number here, got shape {tuple(step.shape)}; pass t= for unequal steps"
            )
        return step * torch.arange(len(values), dtype=torch.float64, device=step.device)
    times = check_times(t)
    if times.numel() != len(values):
        raise InvalidArgumentError(
            f"t must have one time per sample, got {times.numel()} times for {len(values)} samples; "
            f"time runs along the first axis of values"
        )
    return times
