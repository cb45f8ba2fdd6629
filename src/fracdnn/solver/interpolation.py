"""Measured inputs as functions of time, for use in func(t, y): piecewise polynomials through samples."""

from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.tracing import being_traced
from fracdnn.validation import check_floating, check_numbers, check_times


class SampledInput:
    """A polynomial on each interval between times [T]; coefficients [T − 1, degree + 1, ...], the constant first.

    Called with a time, or times of any shape [...], it gives values [..., *values.shape[1:]] in the dtype of the
    values. Differentiable in time and values. Where the values are learned, make it inside of the forward pass.
    """

    def __init__(self, times: torch.Tensor, coefficients: torch.Tensor) -> None:
        self.times, self._coefficients = times.detach().to(coefficients.device), coefficients

    def __call__(self, t: float | torch.Tensor) -> torch.Tensor:
        """The value at a time between the first and the last."""
        given = torch.as_tensor(t, device=self.times.device)
        if not being_traced():
            # A solver's own times may pass the last one by rounding.
            eps = torch.finfo(given.dtype if given.is_floating_point() else torch.float64).eps
            rounding = 8.0 * eps * self.times.abs().max()
            outside = (given < self.times[0] - rounding) | (given > self.times[-1] + rounding) | torch.isnan(given)
            if bool(outside.any()):
                raise InvalidArgumentError(
                    f"t must lie between the first and last sample's time, {float(self.times[0]):.6g} and "
                    f"{float(self.times[-1]):.6g}, got {float(given.detach()[outside].reshape(-1)[0]):.6g}; "
                    f"solve within that range, or pass samples of a longer one"
                )
        time = given.to(torch.float64)
        interval = torch.searchsorted(self.times, time.detach(), right=True) - 1
        interval = interval.clamp(0, len(self.times) - 2)
        chosen = self._coefficients[interval].movedim(interval.dim(), 0)
        since = (time - self.times[interval]).to(chosen.dtype)
        since = since.reshape(since.shape + (1,) * (chosen.dim() - 1 - since.dim()))
        value = chosen[-1]
        for coefficient in chosen[:-1].flip(0):
            value = value * since + coefficient
        return value


def linear_input(times: Any, values: Any) -> SampledInput:
    """u(t), linear between samples: `values` [T, ...] at increasing `times` [T].

    A step of the solver that passes a kink loses order there: keep samples at nodes, with `breakpoints=times`,
    grid=Given() or n_steps a multiple, or use `cubic_input`.
    """
    times, values = _checked(times, values, minimum=2, remedy="pass two or more samples")
    slopes = values.diff(dim=0) / _like(times.diff(), values)
    return SampledInput(times, torch.stack([values[:-1], slopes], dim=1))


def cubic_input(times: Any, values: Any) -> SampledInput:
    """u(t), the cubic spline through samples: `values` [T, ...] at increasing `times` [T], four or more.

    Twice continuously differentiable, of fourth order, and exact for cubic polynomials: at its ends it is the
    not-a-knot spline, one polynomial on the first two intervals and one on the last two.
    """
    times, values = _checked(times, values, minimum=4, remedy="pass more samples, or use linear_input")
    steps = times.diff()
    h = _like(steps, values)
    slopes = values.diff(dim=0) / h
    # The equations of second derivatives at inner nodes, and what the ends add to them.
    below, diagonal, above = steps[:-1].clone(), 2.0 * (steps[:-1] + steps[1:]), steps[1:].clone()
    for at, outer, neighbor, off in ((0, steps[0], steps[1], above), (-1, steps[-1], steps[-2], below)):
        diagonal[at] += outer * (1.0 + outer / neighbor)
        off[at] -= outer * outer / neighbor
    below[0] = above[-1] = 0.0
    inner = _solved(below, diagonal, above, 6.0 * slopes.diff(dim=0))
    # The third derivative is continuous at the second node and at the last but one.
    first, last = h[0] / h[1], h[-1] / h[-2]
    begin = (1.0 + first) * inner[:1] - first * inner[1:2]
    end = (1.0 + last) * inner[-1:] - last * inner[-2:-1]
    second = torch.cat([begin, inner, end])
    linear = slopes - h * (2.0 * second[:-1] + second[1:]) / 6.0
    return SampledInput(times, torch.stack([values[:-1], linear, second[:-1] / 2.0, second.diff(dim=0) / (6.0 * h)], 1))


def _solved(below: torch.Tensor, diagonal: torch.Tensor, above: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Of diagonally dominant tridiagonal equations, right [n, ...]: each doubles its reach, log₂ n times."""
    n, reach = len(diagonal), 1
    while reach < n:
        from_below = -below / _shifted(diagonal, reach, fill=1.0)
        from_above = -above / _shifted(diagonal, -reach, fill=1.0)
        diagonal = diagonal + from_below * _shifted(above, reach) + from_above * _shifted(below, -reach)
        below, above = from_below * _shifted(below, reach), from_above * _shifted(above, -reach)
        moved = _like(from_below, right) * _shifted(right, reach)
        right = right + moved + _like(from_above, right) * _shifted(right, -reach)
        reach *= 2
    return right / _like(diagonal, right)


def _shifted(rows: torch.Tensor, by: int, fill: float = 0.0) -> torch.Tensor:
    """Row i is what was row i − by."""
    empty = torch.full_like(rows[: abs(by)], fill)
    return torch.cat([empty, rows[:-by]]) if by > 0 else torch.cat([rows[-by:], empty])


def _like(numbers: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One for each row of values, in their dtype and place."""
    return numbers.to(values).reshape(-1, *(1,) * (values.dim() - 1))


def _checked(times: Any, values: Any, *, minimum: int, remedy: str) -> tuple[torch.Tensor, torch.Tensor]:
    if isinstance(values, list | np.ndarray):
        values = check_numbers(values, "values")
    if not isinstance(values, torch.Tensor):
        raise InvalidTypeError(
            f"values must be a tensor [T, ...], got {type(values).__name__}; pass torch.as_tensor(values)"
        )
    check_floating(values, "values")
    times = check_times(times, "times", minimum=minimum, remedy=remedy).detach()
    if values.dim() == 0 or len(values) != len(times):
        raise InvalidArgumentError(
            f"values must have one row for each of the {len(times)} times, got shape {tuple(values.shape)}; "
            f"time is the first dimension"
        )
    return times, values
