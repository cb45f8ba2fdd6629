"""Which grid a solve walks over: the given times, equal steps, steps graded toward the start, or adaptive ones."""

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.tracing import being_traced, carries_derivative
from fracdnn.validation import check_count, check_numbers, check_positive, check_times

_RTOL_REMEDY = "leave it out, or pass it in grid=Adaptive(rtol=…, atol=…, max_step=…)"
# Tolerances of an adaptive grid.
RTOL, ATOL = 1e-5, 1e-8
# Of steps that are taken for equal, in mean steps.
_LARGEST_DEVIATION = 0.05
_SAME_STEPS = 1e-6  # the same at late times
# Finer at the start than this, the first steps would be lost in rounding before they pay.
_LARGEST_GRADING = 8.0
# Of times, relative to the latest.
ROUNDING = 8.0 * torch.finfo(torch.float64).eps
# Of the time between breakpoints, in spans.
_NARROWEST = 1e-9

# A number, a tensor that broadcasts against the state, or one of both for each tensor of a tuple.
Tolerance: TypeAlias = float | torch.Tensor | tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Grid:
    """Times of the nodes: from 0 in float64, as func sees them, and the step's length where steps are equal."""

    elapsed: torch.Tensor
    clock: torch.Tensor
    step: torch.Tensor | None = None

    @property
    def n_steps(self) -> int:
        return len(self.elapsed) - 1


def graded_mesh(T: float, n: int, grading: float = 1.0) -> torch.Tensor:
    """t_j = T (j/n)^grading for j = 0, …, n, float64: fine near 0 where solutions behave like t^order.

    A grading of 1 is uniform; with 1/order the explicit L1 scheme is of first order at all times, t = 0 included, for a
    solution like t^order (tested at order 0.5).
    """
    T = check_positive(T, "T", remedy="T is the final time")
    n = check_count(n, "n", minimum=1)
    grading = check_positive(grading, "grading")
    if grading < 1:
        raise InvalidArgumentError(f"grading must be at least 1, got {grading}; 1 is uniform, larger is finer near 0")
    times = T * torch.linspace(0, 1, n + 1, dtype=torch.float64) ** grading
    if not bool((times.diff() > 0).all()):
        raise InvalidArgumentError(
            f"grading must leave the steps above the smallest float, got {grading} with n={n}; use a smaller grading"
        )
    return times


@dataclass(frozen=True, eq=False)
class Adaptive:
    """A grid that the solver chooses, so that the error stays about `atol` + `rtol` · |u|; no step exceeds `max_step`.

    Tolerances are numbers, tensors that broadcast against the state, or one of both for each tensor of a tuple.
    """

    rtol: Tolerance = RTOL
    atol: Tolerance = ATOL
    max_step: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "rtol", _check_tolerance(self.rtol, "rtol"))
        object.__setattr__(self, "atol", _check_tolerance(self.atol, "atol"))
        if self.max_step != math.inf:
            check_positive(self.max_step, "max_step", remedy="the longest step")


@dataclass(frozen=True)
class Uniform:
    """A grid of `n` equal steps."""

    n: int

    def __post_init__(self) -> None:
        check_count(self.n, "n", minimum=1)


@dataclass(frozen=True)
class Graded:
    """A grid of `n` steps that are finer toward the start, with nodes T (j/n)^power.

    The default power is 2/order below order 1: solutions behave like t^order there, and second order is kept.
    """

    n: int
    power: float | None = None

    def __post_init__(self) -> None:
        check_count(self.n, "n", minimum=1)
        if self.power is not None and check_positive(self.power, "power") < 1:
            raise InvalidArgumentError(
                f"power must be at least 1, got {self.power}; 1 is uniform, larger is finer near 0"
            )


@dataclass(frozen=True)
class Given:
    """The requested times `t` themselves as the grid."""


Choice: TypeAlias = Adaptive | Uniform | Graded | Given


@dataclass(frozen=True, eq=False)
class Spacing:
    """The chosen grid with what goes along: breakpoints, at which steps of an adaptive grid end."""

    choice: Choice
    kind: str  # its name: "adaptive", "uniform", "graded" or "given"
    breakpoints: torch.Tensor | None = None

    @classmethod
    def from_arguments(cls, grid: Any, n_steps: Any, rtol: Any, atol: Any, breakpoints: Any = None) -> "Spacing":
        """Return the checked choice; `n_steps` stands for `Uniform`, `rtol` and `atol` for `Adaptive`."""
        short = {name: value for name, value in (("rtol", rtol), ("atol", atol)) if value is not None}
        if n_steps is not None:
            if grid is not None:
                raise InvalidArgumentError(
                    f"n_steps must not be given together with grid, got n_steps={n_steps} and grid={grid}; leave out "
                    f"one: n_steps={n_steps} is short for grid=Uniform({n_steps})"
                )
            grid = Uniform(check_count(n_steps, "n_steps", minimum=1))
        if short and grid is not None:
            name, value = next(iter(short.items()))
            raise InvalidArgumentError(f"{name} must not be given for grid={grid}, got {value}; {_RTOL_REMEDY}")
        choice = Adaptive(**short) if grid is None else grid
        if not isinstance(choice, Choice):
            raise InvalidTypeError(
                f"grid must be Adaptive(…), Uniform(n), Graded(n) or Given(), got {grid!r}; import them from "
                f"fracdnn.solver, or pass n_steps= for equal steps"
            )
        if breakpoints is not None:
            if not isinstance(choice, Adaptive):
                raise InvalidArgumentError(
                    f"breakpoints must not be given for grid={choice}, got {breakpoints}; leave it out, or leave out "
                    f"n_steps and grid: a jump takes nodes of its own"
                )
            breakpoints = check_times(breakpoints, "breakpoints", minimum=0)
        return cls(choice, type(choice).__name__.lower(), breakpoints)

    @property
    def rtol(self) -> Tolerance:
        return self.choice.rtol if isinstance(self.choice, Adaptive) else RTOL

    @property
    def atol(self) -> Tolerance:
        return self.choice.atol if isinstance(self.choice, Adaptive) else ATOL

    @property
    def max_step(self) -> float:
        return self.choice.max_step if isinstance(self.choice, Adaptive) else math.inf

    @property
    def smallest_rtol(self) -> float:
        return smallest(self.rtol)


def increasing_times(t: Any) -> torch.Tensor:
    """Checked; times that decrease are refused with the reason."""
    try:
        return check_times(t)
    except InvalidArgumentError as error:
        if "must increase strictly" not in str(error) or float(t[0]) <= float(t[-1]):
            raise
        raise InvalidArgumentError(
            f"t must increase, got times that decrease from {float(t[0]):.6g} to {float(t[-1]):.6g}: memory begins at "
            f"t[0], so that a solution has a direction; solve for v(s) = u(t[0] - s) at increasing s"
        ) from None


def _check_tolerance(value: Any, name: str) -> Tolerance:
    """Return a positive number, a tensor of such, or a tuple of both; atol may be 0."""
    if isinstance(value, tuple | list):
        return tuple(_check_tolerance(each, f"{name}[{place}]") for place, each in enumerate(value))
    usual = "1e-8 is usual" if name.startswith("atol") else "1e-5 is usual"
    if isinstance(value, torch.Tensor | np.ndarray):
        found = check_numbers(value, name).detach()
        good = (found >= 0) if name.startswith("atol") else (found > 0)
        if found.is_complex() or not found.numel() or not bool(good.all()):
            raise InvalidArgumentError(f"{name} must hold positive numbers, got {value}; {usual}")
        return found
    if name.startswith("atol") and isinstance(value, Real) and value == 0 and not isinstance(value, bool):
        return 0.0
    return check_positive(value, name, remedy=usual)


def smallest(tolerance: Tolerance) -> float:
    parts = tolerance if isinstance(tolerance, tuple) else (tolerance,)
    return min(float(part.min()) if isinstance(part, torch.Tensor) else float(part) for part in parts)


def make_grid(
    spacing: Spacing, times: torch.Tensor, clock: torch.Tensor, orders: torch.Tensor, found: torch.Tensor | None
) -> Grid:
    """Return the grid from the first to the last time; an adaptive one has the nodes that were found, from 0 on."""
    choice = spacing.choice
    if isinstance(choice, Given):
        elapsed = times - times[0]
        # The clock may be coarser than the times as they were given.
        is_coarse = not being_traced() and bool((clock.detach() != times.detach()).any())
        is_equal = is_uniform(times, times.dtype if is_coarse else clock.dtype)
        return Grid(elapsed, clock, elapsed[-1] / (len(times) - 1) if is_equal else None)
    if found is not None:
        elapsed = moved(found, anchors(spacing, times)[1:] - times[0])
        return Grid(elapsed, (times[0] + elapsed).to(clock.dtype))
    assert isinstance(choice, Uniform | Graded)
    span, power = times[-1] - times[0], 1.0
    if isinstance(choice, Graded):
        # Slopes behave like t^order at 0, and nodes like j^(2/order) keep second order there.
        least = float(orders.detach().min())
        power = choice.power or (min(2.0 / least, _LARGEST_GRADING) if least < 1.0 else 1.0)
    elapsed = span * graded_mesh(1.0, choice.n, power).to(times.device)
    return Grid(elapsed, (times[0] + elapsed).to(clock.dtype), span / choice.n if power == 1.0 else None)


def moved(nodes: torch.Tensor, stops: torch.Tensor) -> torch.Tensor:
    """Nodes [..., P + 1] from 0 on, each at its share of the time between the stops [..., K + 1] around it.

    So nodes move with first and last time, while breakpoints are constants.
    """
    ends = torch.cat([torch.zeros_like(stops[..., :1]), stops], dim=-1)
    place = torch.searchsorted(stops.detach(), nodes).clip(max=stops.shape[-1] - 1)
    begin, end = ends.gather(-1, place), ends.gather(-1, place + 1)
    shares = (nodes - begin.detach()) / (end - begin).detach()
    return torch.where(shares == 1.0, end, begin + shares * (end - begin))


def anchors(spacing: Spacing, times: torch.Tensor) -> torch.Tensor:
    """First time, breakpoints between, last time."""
    if spacing.breakpoints is None:
        return times[[0, -1]]
    breakpoints = spacing.breakpoints.to(times.device)
    rounding = ROUNDING * max(abs(float(times[0].detach())), abs(float(times[-1].detach())))
    _check_told_apart(breakpoints.detach(), times.detach(), rounding)
    inside = (breakpoints > times[0] + rounding) & (breakpoints < times[-1] - rounding)
    found = torch.cat([times[:1], breakpoints[inside.detach()], times[-1:]])
    gaps = found.detach().diff()
    if float(gaps.min()) < _NARROWEST * float(gaps.sum()):
        at = int(gaps.argmin())
        raise InvalidArgumentError(
            f"breakpoints must lie {_NARROWEST:g} of the span or more from one another and from its ends, got "
            f"{float(found[at])} and {float(found[at + 1])}; pass one of them if they are meant to be the same; of a "
            f"pulse so short only the area counts: pass a longer, lower one"
        )
    return found


def _check_told_apart(breakpoints: torch.Tensor, times: torch.Tensor, rounding: float) -> None:
    """One at an end is left out; but at late times a rounding may be a good part of the span."""
    narrowest, ends = _NARROWEST * float(times[-1] - times[0]), {"t[0]": times[0], "t[-1]": times[-1]}
    between = breakpoints[(breakpoints != times[0]) & (breakpoints != times[-1])]
    for name, end in ends.items():
        distances = (between - end).abs()
        lost = between[(distances >= narrowest) & (distances <= rounding)]
        if len(lost):
            raise InvalidArgumentError(
                f"breakpoints must be equal to {name} = {float(end)!r} or lie more than {rounding:.2g} from it, the "
                f"rounding of times so late, got {float(lost[0])!r}; count t, breakpoints and the times in func from "
                f"t[0]"
            )


def is_uniform(times: torch.Tensor, given: torch.dtype) -> bool:
    """Whether the steps are equal up to the rounding of the times as they were given, in this dtype."""
    if being_traced() or carries_derivative(times):
        return False
    rounding, steps = 4.0 * torch.finfo(given).eps, times.diff()
    mean = float(steps.mean())
    # Where rounding of late times is a good part of a step, steps that differ by it are others.
    small = max(rounding * float(times[-1] - times[0]), _SAME_STEPS * mean)
    most = min(rounding * float(times.abs().max()), small, _LARGEST_DEVIATION * mean)
    return float((steps - mean).abs().max()) <= most
