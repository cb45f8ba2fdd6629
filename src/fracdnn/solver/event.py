"""Solve until an event: find the time without a gradient, then attach it by the implicit function theorem.

With G(T, θ) = event_fn(T, u(T, θ)) the event's time obeys G = 0, so dT/dθ = −G_θ/G_T. One step of Newton's method from
the time that was found, with G_T as a constant, has that derivative as its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.solver.fdeint import fdeint
from fracdnn.solver.solution import Solution
from fracdnn.tracing import being_traced
from fracdnn.validation import check_count, check_flag

Event = Callable[[torch.Tensor, Any], torch.Tensor]

# Where a bracket is looked at, in its widths around the root of the line through its ends.
_AROUND = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8, 1e-10)
_MAX_ROUNDS = 20
_NOT_HERE = ("t", "trajectory")


def fdeint_event(
    func: Callable[[torch.Tensor, Any], Any],
    y0: Any,
    t0: float | torch.Tensor,
    *,
    event_fn: Event,
    t1: float,
    order: Any,
    n_checks: int = 64,
    info: bool = False,
    **options: Any,
) -> tuple[torch.Tensor, Any]:
    """The first time after t0, a float64 number, at which `event_fn(t, y)` is zero, and the solution there.

    `event_fn` is given a time and a state like y0 and returns one number, which changes its sign at the event. It is
    evaluated at `n_checks` times from t0 to `t1`: an event that comes and goes between two of them is not seen. A
    solution that starts at an event, with the value 0, does not count.

    `func`, `y0`, `order` and `options` are those of `fdeint`, whose grid reaches from t0 to `t1`; where the event
    comes before the first check, the solve starts anew up to the second. The gradient of time and state is exact for
    the discrete solution, in y0, order, t0 and whatever func and event_fn close over. Costs some six solves without a
    gradient and, where one is needed, three with it. `info=True` gives the time and, for the state, a `Solution`: its
    `states` is the state at the event, its grid that of the last solve, and `n_evaluations` counts those of all solves.
    """
    if not callable(event_fn):
        raise InvalidTypeError(
            f"event_fn must be callable as event_fn(t, y), got {type(event_fn).__name__}; pass a function"
        )
    if being_traced():
        raise InvalidArgumentError(
            "func must not be traced in fdeint_event, got a call inside of torch.compile or torch.func; "
            "find the event outside of it"
        )
    _check_options(options)
    begin, end = _number(t0, "t0"), float(_number(t1, "t1").detach())
    check_flag(info, "info")
    if not float(begin.detach()) < end < math.inf:
        raise InvalidArgumentError(
            f"t1 must be later than t0 and finite, got {end:g} for t0 = {float(begin.detach()):g}; pass a later time"
        )
    solve = _Solve(func, y0, begin, event_fn, {"order": order, **options})
    with torch.no_grad():
        bracket = solve.bracket(end, check_count(n_checks, "n_checks", minimum=4))
        time = solve.root(bracket)
    (state,) = solve.at(time.reshape(1), bracket)
    (value,) = solve.values(time.reshape(1), [state])
    if value.requires_grad:
        time = time - value.to(torch.float64) / solve.slope(time, bracket)
        (state,) = solve.at(time.reshape(1), bracket)
    return time, solve.solution(state) if info else state


@dataclass(frozen=True)
class _Bracket:
    """The checks before and after the event, with its values there; the first and the last, which make the grid."""

    first: torch.Tensor
    before: torch.Tensor
    after: torch.Tensor
    end: torch.Tensor
    low: float
    high: float


class _Solve:
    """Solves of one problem from one start."""

    def __init__(self, func: Any, y0: Any, begin: torch.Tensor, event_fn: Event, options: dict[str, Any]) -> None:
        self._func, self._y0, self._begin, self._event_fn, self._options = func, y0, begin, event_fn, options
        self._n_evaluations = 0
        self._last: Solution | None = None

    def at(self, times: torch.Tensor, bracket: _Bracket) -> list[Any]:
        """States at times in a bracket, on the grid on which it was found."""
        ends = [bracket.end.reshape(1)] if bool(times[-1] < bracket.end) else []
        t = torch.cat([self._begin.reshape(1), bracket.first.reshape(1), times, *ends])
        return self._states(t)[2 : 2 + len(times)]

    def values(self, times: torch.Tensor, states: list[Any]) -> list[torch.Tensor]:
        """What the event is there."""
        return [self._value(time, state) for time, state in zip(times.unbind(0), states, strict=True)]

    def bracket(self, t1: float, n_checks: int) -> _Bracket:
        """Around the first change of sign, and with a check between it and the start."""
        end = t1
        for _ in range(_MAX_ROUNDS):
            t = torch.linspace(float(self._begin), end, n_checks + 1, dtype=torch.float64, device=self._begin.device)
            found = [float(value) for value in self.values(t, self._states(t))]
            change = _first_change(found)
            if change is None:
                raise InvalidArgumentError(_no_change(found, float(self._begin), t1))
            if change > 1:
                return _Bracket(t[1], t[change - 1], t[change], t[-1], found[change - 1], found[change])
            end = float(t[2])  # look closer: the event is about in the middle then
        raise InvalidArgumentError(
            f"event_fn must not come at once, got a change of sign before t = {end:g} for t0 = {float(self._begin):g}; "
            f"start later, or check the sign of event_fn(t0, y0)"
        )

    def root(self, bracket: _Bracket) -> torch.Tensor:
        """The time at which the event is zero, to rounding."""
        earlier, later, low, high = bracket.before, bracket.after, bracket.low, bracket.high
        for _ in range(_MAX_ROUNDS):
            width = later - earlier
            guess = earlier + width * (low / (low - high))
            around = [guess, *(guess + sign * part * width for part in _AROUND for sign in (-1.0, 1.0))]
            inside = sorted({float(time) for time in around if earlier < time < later})
            if high == 0 or not inside:
                break
            t = torch.tensor(inside, dtype=torch.float64, device=later.device)
            found = [float(value) for value in self.values(t, self.at(t, bracket))]
            change = next((place for place, value in enumerate(found) if value * low <= 0), len(t))
            if change < len(t):
                later, high = t[change], found[change]
            if change > 0:
                earlier, low = t[change - 1], found[change - 1]
        return later

    def slope(self, time: torch.Tensor, bracket: _Bracket) -> torch.Tensor:
        """Of the event by its time, a constant."""
        leaf = time.detach().requires_grad_()
        (value,) = self.values(leaf.reshape(1), self.at(leaf.reshape(1), bracket))
        (slope,) = torch.autograd.grad(value, leaf)
        if not bool(torch.isfinite(slope) & (slope != 0)):
            raise InvalidArgumentError(
                f"event_fn must cross zero with a slope, got {float(slope):g} at t = {float(time):.6g}; "
                f"its time has no gradient there: solve under torch.no_grad()"
            )
        return slope

    def solution(self, state: Any) -> Solution:
        """How a state came about."""
        assert self._last is not None
        return replace(self._last, states=state, n_evaluations=self._n_evaluations)

    def _states(self, t: torch.Tensor) -> list[Any]:
        solution = self._last = fdeint(self._func, self._y0, t, info=True, **self._options)
        self._n_evaluations += solution.n_evaluations
        states = solution.states
        if isinstance(states, tuple):
            return [tuple(part[place] for part in states) for place in range(len(t))]
        return list(states.unbind(0))

    def _value(self, time: torch.Tensor, state: Any) -> torch.Tensor:
        value = self._event_fn(time, state)
        if not isinstance(value, torch.Tensor):
            raise InvalidArgumentError(
                f"event_fn must return a tensor of one number, got {type(value).__name__}; "
                f"return what it computes of t and y, say y[0] - 1, without .item() or float()"
            )
        if value.numel() != 1:
            raise InvalidArgumentError(
                f"event_fn must return a tensor of one number, got shape {tuple(value.shape)}; "
                f"combine several with a product or a minimum"
            )
        if not value.is_floating_point():
            raise InvalidArgumentError(
                f"event_fn must return a number that changes its sign, got dtype {value.dtype}; "
                f"return a difference such as y[0] - 1, not y[0] < 1"
            )
        if not bool(torch.isfinite(value)):
            raise InvalidArgumentError(
                f"event_fn must return finite numbers, got {float(value.detach())} at t = {float(time.detach()):.6g}; "
                f"check event_fn there"
            )
        return value.reshape(())


def _no_change(values: list[float], begin: float, t1: float) -> str:
    """Why there is no event; one at the start itself does not count."""
    n_checks = len(values) - 1
    if values[0] != 0:
        return (
            f"event_fn must change its sign between t0 = {begin:g} and t1 = {t1:g}, got {values[0]:.3g} and "
            f"{values[-1]:.3g} there, and no change in {n_checks} checks; pass a later t1 or a larger n_checks"
        )
    later = f"{values[-1]:.3g} at t1 = {t1:g} with no change of sign" if any(values) else "0 at all checks"
    return (
        f"event_fn must change its sign after t0 = {begin:g}, got 0 at t0 itself, where a solution may start without "
        f"that counting as the event, and then {later} ({n_checks} checks); if that is the event, its time is t0; "
        f"else pass a later t1 or a larger n_checks"
    )


def _first_change(values: list[float]) -> int | None:
    """The first place at which the sign is no longer that of the first value that is not zero."""
    start = next((place for place, value in enumerate(values) if value != 0), len(values))
    return next((place for place in range(start + 1, len(values)) if values[place] * values[start] <= 0), None)


def _number(value: Any, name: str) -> torch.Tensor:
    """One time, float64, still attached to the caller's graph."""
    if isinstance(value, bool) or not isinstance(value, Real | torch.Tensor):
        raise InvalidTypeError(f"{name} must be a number, got {type(value).__name__}; pass a float")
    time = torch.as_tensor(value, dtype=torch.float64)
    if time.numel() != 1:
        raise InvalidArgumentError(f"{name} must be one number, got shape {tuple(time.shape)}; pass one time")
    return time.reshape(())


def _check_options(options: dict[str, Any]) -> None:
    for name in _NOT_HERE:
        if name in options:
            raise InvalidArgumentError(f"{name} must not be given to fdeint_event, got {options[name]!r}; leave it out")
    if options.get("grid") == "given":
        raise InvalidArgumentError(
            "grid must not be 'given' for fdeint_event, which has no times, got 'given'; pass n_steps= or leave it out"
        )
