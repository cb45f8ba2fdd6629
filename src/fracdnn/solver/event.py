"""Solve until an event: find the time without a gradient, then attach it by the implicit function theorem.

With G(T, θ) = event_fn(T, u(T, θ)) the event's time obeys G = 0, so dT/dθ = −G_θ/G_T. One step of Newton's method from
the time that was found, with G_T as a constant, has that derivative as its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from operator import itemgetter
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.solver.fdeint import fdeint
from fracdnn.solver.grids import Given
from fracdnn.solver.states import each_part
from fracdnn.tracing import being_traced
from fracdnn.validation import check_count, check_flag

Event = Callable[[torch.Tensor, Any], torch.Tensor]

# Where a bracket is looked at: parts of the way from the root of the line through its ends to either of them.
_AROUND = (1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
_MAX_ROUNDS = 20
_MARGIN = 1e-3  # of a bracket, that is left at its ends
_APART = 4.0 * torch.finfo(torch.float64).eps  # of times, by which those that are looked at differ at least


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

    With `batched=True`, as `fdeint` has it, each sample has an event of its own: event_fn is given times [B] and states
    [B, …] and returns [B]; t0 and t1 are numbers or [B], and so is the time. A sample without an event raises an error;
    with `options={"failures": "nan"}` its time and state are NaN.

    `func`, `y0`, `order` and `options` are those of `fdeint`, whose grid reaches from t0 to `t1`; where the event
    comes before the first check, the solve starts anew up to the second. The gradient of time and state is exact for
    the discrete solution, in y0, order, t0 and whatever func and event_fn close over. Costs some six solves without a
    gradient and, where one is needed, three with it. `info=True` gives the time and, for the state, a `Solution`: its
    `states` is the state at the event, its grid that of the last solve, and `n_evaluations` counts those of all solves.
    """
    _check_call(event_fn, options)
    check_flag(info, "info")
    batched = check_flag(options.get("batched", False), "batched")
    begin, end = torch.broadcast_tensors(_times(t0, "t0", batched=batched), _times(t1, "t1", batched=batched).detach())
    late = ~((begin.detach() < end) & (end < math.inf))
    if bool(late.any()):
        raise InvalidArgumentError(
            f"t1 must be later than t0 and finite, got {float(end[late][0]):g} for t0 = "
            f"{float(begin.detach()[late][0]):g}; pass a later time"
        )
    solve = _Solve(func, y0, begin, event_fn, {"order": order, **options})
    with torch.no_grad():
        bracket = solve.bracket(end, check_count(n_checks, "n_checks", minimum=4))
        time = solve.root(bracket)
    (state,) = solve.at(time[None], bracket)
    value = solve.values(time[None], [state])[0]
    if value.requires_grad:
        moved = time - value / solve.slope(time, bracket)
        time = bracket.inside(moved.detach()) + (moved - moved.detach())
        (state,) = solve.at(time[None], bracket)
    time, state = bracket.marked(time), each_part(bracket.marked, state)
    if info:
        state = replace(solve.last, states=state, n_evaluations=solve.n_evaluations)
    return time if batched else time[0], state


def _check_call(event_fn: Any, options: dict[str, Any]) -> None:
    if not callable(event_fn):
        raise InvalidTypeError(
            f"event_fn must be callable as event_fn(t, y), got {type(event_fn).__name__}; pass a function"
        )
    if being_traced():
        raise InvalidArgumentError(
            "func must not be traced in fdeint_event, got a call inside of torch.compile or torch.func; "
            "find the event outside of it"
        )
    for name in ("t", "trajectory"):
        if name in options:
            raise InvalidArgumentError(f"{name} must not be given to fdeint_event, got {options[name]!r}; leave it out")
    if isinstance(options.get("grid"), Given):
        raise InvalidArgumentError(
            "grid must not be Given() for fdeint_event, which has no times, got Given(); pass n_steps= or leave it out"
        )


@dataclass(frozen=True, eq=False)
class _Bracket:
    """The checks before and after the event, with its values there; the first and the last, which make the grid.

    All are [B], of one sample without `batched`. `missing` are samples without an event, whose times are any.
    """

    first: torch.Tensor
    before: torch.Tensor
    after: torch.Tensor
    end: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    missing: torch.Tensor

    def inside(self, times: torch.Tensor) -> torch.Tensor:
        """Between the first check and the end, by a rounding at least."""
        return times.clip(torch.nextafter(self.first, self.end), torch.nextafter(self.end, self.first))

    def marked(self, values: torch.Tensor) -> torch.Tensor:
        """Not a number where there is no event; [B, …], or of one sample."""
        if not bool(self.missing.any()):
            return values
        missing = self.missing.to(values.device).reshape(-1, *[1] * (values.dim() - 1))
        return torch.where(missing, math.nan, values)


class _Solve:
    """Solves of one problem from one start, or of a batch; times are [T, B]."""

    def __init__(self, func: Any, y0: Any, begin: torch.Tensor, event_fn: Event, options: dict[str, Any]) -> None:
        self._func, self._y0, self._begin, self._event_fn, self._options = func, y0, begin, event_fn, options
        self.n_evaluations = 0
        self._batched = bool(options.get("batched"))
        self._allows_nan = self._batched and (options.get("options") or {}).get("failures") == "nan"

    def at(self, times: torch.Tensor, bracket: _Bracket) -> list[Any]:
        """States at times in a bracket, on the grid on which it was found."""
        rows = (self._begin.expand_as(bracket.end), bracket.first, *times, bracket.end)
        return self._states(torch.stack(rows))[2:-1]

    def values(self, times: torch.Tensor, states: list[Any]) -> torch.Tensor:
        """What the event is there, [T, B]."""
        return torch.stack([self._value(time, state) for time, state in zip(times, states, strict=True)])

    def bracket(self, t1: torch.Tensor, n_checks: int) -> _Bracket:
        """Around the first change of sign, and with a check between it and the start."""
        shares, end = torch.linspace(0.0, 1.0, n_checks + 1, dtype=torch.float64, device=t1.device)[:, None], t1
        for _ in range(_MAX_ROUNDS):
            t = torch.lerp(self._begin, end, shares)
            found = self.values(t, self._states(t))
            t, end = t.expand_as(found), end.expand(found.shape[1])
            change = _first_change(found)
            missing = change == len(t)
            if bool(missing.any()) and not self._allows_nan:
                raise InvalidArgumentError(self._no_change(found, t, missing))
            close = change == 1
            if not bool(close.any()):
                after = torch.where(missing, 2, change)[None]
                rows = (each.gather(0, place)[0] for each in (t, found) for place in (after - 1, after))
                before, after, low, high = rows
                return _Bracket(t[1], before, after, t[-1], low, high, missing)
            end = torch.where(close, t[2], end)  # look closer: the event is about in the middle then
        sample = int(close.nonzero()[0])
        raise InvalidArgumentError(
            f"event_fn must not come at once, got a change of sign before t = {float(end[sample]):g} for t0 = "
            f"{float(t[0, sample]):g}{self._of(sample, len(close))}; start later, or check the sign of event_fn(t0, y0)"
        )

    def root(self, bracket: _Bracket) -> torch.Tensor:
        """The times at which the event is zero, to rounding."""
        before, after, low, high = bracket.before, bracket.after, bracket.low, bracket.high
        distance = _APART * torch.maximum(after.abs(), self._begin.abs())
        parts = torch.tensor(_AROUND, dtype=torch.float64, device=after.device)[:, None]
        for _ in range(_MAX_ROUNDS):
            wide = (high != 0) & (after - before > 3.0 * len(_AROUND) / _MARGIN * distance) & ~bracket.missing
            if not bool(wide.any()):
                break
            begin, end = torch.where(wide, before, bracket.before), torch.where(wide, after, bracket.after)
            share = torch.where(wide, low / (low - high), 0.5).clip(_MARGIN, 1.0 - _MARGIN)
            shares = torch.cat([share * (1.0 - parts.flip(0)), share[None], share + (1.0 - share) * parts])
            number = torch.arange(len(shares), dtype=torch.float64, device=after.device)[:, None]
            t = begin + (end - begin) * shares + number * distance  # increasing, however they are rounded
            found = torch.cat([low[None], self.values(t, self.at(t, bracket)), high[None]])
            t = torch.cat([before[None], t, after[None]])
            place = ((found[1:] * low) <= 0).int().argmax(0)[None]
            rows = [each.gather(0, place + later)[0] for each in (t, found) for later in (0, 1)]
            pairs = zip(rows, (before, after, low, high), strict=True)
            before, after, low, high = (torch.where(wide, new, old) for new, old in pairs)
        share = torch.where(bracket.missing, 0.5, low / (low - high))
        return bracket.inside(before + share * (after - before))

    def slope(self, time: torch.Tensor, bracket: _Bracket) -> torch.Tensor:
        """Of the event by its time, a constant."""
        leaf = time.detach().requires_grad_()
        value = self.values(leaf[None], self.at(leaf[None], bracket))[0]
        (slope,) = torch.autograd.grad(value.sum(), leaf)
        bad = ~(torch.isfinite(slope) & (slope != 0)) & ~bracket.missing
        if bool(bad.any()):
            sample = int(bad.nonzero()[0])
            raise InvalidArgumentError(
                f"event_fn must cross zero with a slope, got {float(slope[sample]):g} at t = {float(time[sample]):.6g}"
                f"{self._of(sample, len(bad))}; its time has no gradient there: solve under torch.no_grad()"
            )
        return torch.where(bracket.missing, 1.0, slope)

    def _states(self, t: torch.Tensor) -> list[Any]:
        rows = t[:, 0] if t.shape[1] == 1 else t.mT.contiguous()
        solution = self.last = fdeint(self._func, self._y0, rows, info=True, **self._options)
        self.n_evaluations += solution.n_evaluations
        return [each_part(itemgetter(place), solution.states) for place in range(len(t))]

    def _value(self, time: torch.Tensor, state: Any) -> torch.Tensor:
        """At times [1] or [B]; [B]."""
        first = state[0] if isinstance(state, tuple) else state
        size = len(first) if self._batched else 1
        time = time.expand(size).to(first.device) if self._batched else time[0]
        value = self._event_fn(time, state)
        what = "one number for each sample" if self._batched else "one number"
        if not isinstance(value, torch.Tensor):
            raise InvalidArgumentError(
                f"event_fn must return a tensor of {what}, got {type(value).__name__}; "
                f"return what it computes of t and y, say y[0] - 1, without .item() or float()"
            )
        if value.numel() != size or (self._batched and value.dim() != 1):
            raise InvalidArgumentError(
                f"event_fn must return a tensor of {what}, got shape {tuple(value.shape)}; "
                f"combine several with a product or a minimum"
            )
        if not value.is_floating_point():
            raise InvalidArgumentError(
                f"event_fn must return a number that changes its sign, got dtype {value.dtype}; "
                f"return a difference such as y[0] - 1, not y[0] < 1"
            )
        bad = ~torch.isfinite(value).reshape(-1)
        if bool(bad.any()) and not self._allows_nan:
            sample = int(bad.nonzero()[0])
            raise InvalidArgumentError(
                f"event_fn must return finite numbers, got {float(value.detach().reshape(-1)[sample])} at t = "
                f"{float(time.detach().reshape(-1)[sample]):.6g}{self._of(sample, size)}; check event_fn there"
            )
        return value.reshape(-1).to(self._begin)

    def _of(self, sample: int, size: int) -> str:
        return f" in sample {sample} of {size}" if self._batched else ""

    def _no_change(self, values: torch.Tensor, times: torch.Tensor, missing: torch.Tensor) -> str:
        """Why there is no event; one at the start itself does not count."""
        sample, n_checks = int(missing.nonzero()[0]), len(values) - 1
        own, begin, end = values[:, sample].tolist(), float(times[0, sample]), float(times[-1, sample])
        where, remedy = self._of(sample, len(missing)), "pass a later t1 or a larger n_checks"
        if own[0] != 0:
            return (
                f"event_fn must change its sign between t0 = {begin:g} and t1 = {end:g}, got {own[0]:.3g} and "
                f"{own[-1]:.3g} there{where}, and no change in {n_checks} checks; {remedy}"
            )
        later = f"{own[-1]:.3g} at t1 = {end:g} with no change of sign" if any(own) else "0 at all checks"
        return (
            f"event_fn must change its sign after t0 = {begin:g}, got 0 at t0 itself{where}, where a solution may "
            f"start without that counting as the event, and then {later} ({n_checks} checks); if that is the event, "
            f"its time is t0; else {remedy}"
        )


def _first_change(values: torch.Tensor) -> torch.Tensor:
    """The first places at which signs [T, B] are no longer those of the first values that are not zero; [B].

    T where there is none.
    """
    signs = values.sign()
    start = (signs != 0).int().argmax(0)
    first, later = signs.gather(0, start[None]), torch.arange(len(values), device=values.device)[:, None] > start
    changed = later & (signs * first <= 0) & (first != 0)
    return torch.where(changed.any(0), changed.int().argmax(0), len(values))


def _times(value: Any, name: str, *, batched: bool) -> torch.Tensor:
    """[1], or of a batch [B]; float64, still attached to the caller's graph."""
    if isinstance(value, bool) or not isinstance(value, Real | torch.Tensor):
        raise InvalidTypeError(f"{name} must be a number, got {type(value).__name__}; pass a float")
    time = torch.as_tensor(value, dtype=torch.float64)
    if time.numel() != 1 and not (batched and time.dim() == 1):
        remedy = "pass one time, or one for each sample" if batched else "pass one time"
        raise InvalidArgumentError(f"{name} must be one number, got shape {tuple(time.shape)}; {remedy}")
    return time.reshape(-1)
