"""Solve until an event: a root of event_fn along the stored solution, with an implicit gradient.

With G(T, θ) = event_fn(T, u(T, θ)) the event's time satisfies G = 0, so dT/dθ = −G_θ/G_T. One step of Newton's method
from the root, with G_T as a constant, has that derivative as its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from operator import itemgetter
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.solver.fdeint import fdeint
from fracdnn.solver.grids import Given
from fracdnn.solver.solution import Solution
from fracdnn.solver.states import each_part
from fracdnn.tracing import being_traced
from fracdnn.validation import check_count, check_flag

# A bracket is divided at the root of the line through its ends, and at these parts of the way from there to either end.
_AROUND = (1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1)
_MAX_ROUNDS = 20
_MARGIN = 1e-3  # part of a bracket that is left at its ends
_APART = 4.0 * torch.finfo(torch.float64).eps  # relative width of a bracket that is not divided further
_MAX_SOLVES = 20  # each with a first output that is (n_checks − 1)² times earlier


def fdeint_event(
    func: Callable[[torch.Tensor, Any], Any],
    y0: Any,
    t0: float | torch.Tensor,
    *,
    event_fn: Callable[[torch.Tensor, Any], torch.Tensor],
    t1: float,
    order: Any,
    n_checks: int = 64,
    info: bool = False,
    **options: Any,
) -> tuple[torch.Tensor, Any]:
    """Find the first time after t0, a float64 number, at which `event_fn(t, y)` is zero, and the solution there.

    `event_fn` is given a time and a state like y0, as func is: the time in the dtype of `t0` where that is a
    floating-point tensor, else in the state's. It returns one number, which changes its sign at the event. It is
    evaluated at `n_checks` times from t0 to `t1`: an event that comes and goes between two of them is not seen. A
    solution that starts at an event, with the value 0, does not count.

    With `batched=True`, as `fdeint` has it, each sample has an event of its own: event_fn is given times [B] and states
    [B, …] and returns [B]; t0 and t1 are numbers or [B], and so is the time. A sample without an event raises an error;
    with `options={"failures": "nan"}` its time and state are NaN.

    `func`, `y0`, `order` and `options` are those of `fdeint`, whose grid reaches from t0 to `t1`. The event is a root
    of the solution between its outputs, so that one solve is enough; where it comes before the first check, more checks
    are placed there and the equation is solved again. The gradient of time and state is exact for the discrete
    solution, in y0, order, t0 and whatever func and event_fn close over. `info=True` returns the time and a `Solution`
    whose `states` is the state at the event; `n_evaluations` counts the evaluations of func in all solves.
    """
    _check_call(event_fn, options)
    check_flag(info, "info")
    batched = check_flag(options.get("batched", False), "batched")
    begin, end = _span(t0, t1, batched=batched)
    clock_dtype = t0.dtype if isinstance(t0, torch.Tensor) and t0.is_floating_point() else None
    allows_nan = batched and (options.get("options") or {}).get("failures") == "nan"
    event = _EventFunction(event_fn, batched, allows_nan, clock_dtype)
    solve = partial(fdeint, func, y0, order=order, info=True, **options)
    shares = torch.linspace(0.0, 1.0, check_count(n_checks, "n_checks", minimum=4) + 1, dtype=torch.float64)
    t, n_evaluations = event.rounded(torch.lerp(begin, end, shares.to(end.device)[:, None])), 0
    for _ in range(_MAX_SOLVES):
        solution = solve(event.times(t))
        t = t.to(solution.grid.device)
        with torch.no_grad():
            bracket = event.bracket(t.detach(), solution)
            root = event.root(solution, bracket)
        n_evaluations += solution.n_evaluations
        is_coarse = solution.is_coarse(root[:, None] if batched else root).reshape(-1) & ~bracket.missing
        closer = event.rounded(torch.where(is_coarse, bracket.closer(t), t))
        if not bool(is_coarse.any()) or not bool((closer.detach().diff(dim=0) > 0).all()):
            break
        t = closer
    if bool(is_coarse.any()):
        event.refuse_at_once(t, is_coarse & (bracket.before <= t[0]))
    time, state = event.attached(solution, root, bracket)
    if info:
        state = replace(solution, states=state, n_evaluations=n_evaluations)
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
    """The checks before and after each event, with its values there; [B], of one sample without `batched`.

    `missing` are samples without an event, whose times are any.
    """

    before: torch.Tensor
    after: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    missing: torch.Tensor

    def closer(self, t: torch.Tensor) -> torch.Tensor:
        """Return as many checks [T, B], of which all but the first and the last lie in the bracket, denser at first."""
        number = torch.arange(1, len(t) - 1, dtype=torch.float64, device=t.device)[:, None]
        parts = torch.where(self.after < t[-1].detach(), len(t) - 2.0, len(t) - 1.0)
        first, last = (each.expand_as(self.before)[None] for each in (t[0], t[-1]))
        return torch.cat([first, self.before + (self.after - self.before) * (number / parts) ** 2, last])

    def masked(self, values: torch.Tensor) -> torch.Tensor:
        """Return values [B, …] with NaN where there is no event."""
        if not bool(self.missing.any()):
            return values
        missing = self.missing.to(values.device).reshape(-1, *[1] * (values.dim() - 1))
        return torch.where(missing, math.nan, values)


@dataclass(frozen=True, eq=False)
class _EventFunction:
    """The event function along a solution; of samples with `batched`, where NaN may be allowed.

    `clock_dtype` is that of t0, of the times that func and the event function get; None for that of the state.
    """

    function: Callable[[torch.Tensor, Any], torch.Tensor]
    batched: bool
    allows_nan: bool
    clock_dtype: torch.dtype | None

    def rounded(self, t: torch.Tensor) -> torch.Tensor:
        """Return float64 times that the clock's dtype can hold."""
        return t if self.clock_dtype is None else t.to(self.clock_dtype).to(torch.float64)

    def times(self, t: torch.Tensor) -> Any:
        """Return times [T, B] as `fdeint` takes them: a list, for which func gets times in the state's dtype."""
        own = t[:, 0] if t.shape[1] == 1 else t.mT.contiguous()
        return own.tolist() if self.clock_dtype is None else own.to(self.clock_dtype)

    def bracket(self, t: torch.Tensor, solution: Solution) -> _Bracket:
        """Return the checks around the first change of sign, of outputs at times t [T, B]."""
        states = (each_part(itemgetter(row), solution.states) for row in range(len(t)))
        values = torch.stack([self._value(*pair) for pair in zip(t, states, strict=True)])
        t, change = t.to(values.device).expand_as(values), _first_change(values)
        missing = change == len(t)
        if bool(missing.any()) and not self.allows_nan:
            raise InvalidArgumentError(self._no_change(values, t, missing))
        after = torch.where(missing, 2, change)[None]
        before, after, low, high = (each.gather(0, row)[0] for each in (t, values) for row in (after - 1, after))
        return _Bracket(before, after, low, high, missing)

    def root(self, solution: Solution, bracket: _Bracket) -> torch.Tensor:
        """Return the times [B] at which the event is zero, to rounding."""
        before, after, low, high = bracket.before, bracket.after, bracket.low, bracket.high
        distance = _APART * torch.maximum(after.abs(), before.abs())
        parts = torch.tensor(_AROUND, dtype=torch.float64, device=after.device)[:, None]
        for _ in range(_MAX_ROUNDS):
            wide = (high != 0) & (low != 0) & (after - before > distance) & ~bracket.missing
            if not bool(wide.any()):
                break
            share = torch.where(wide, low / (low - high), 0.5).clip(_MARGIN, 1.0 - _MARGIN)
            shares = torch.cat([share * (1.0 - parts.flip(0)), share[None], share + (1.0 - share) * parts])
            inner = before + (after - before) * shares
            states = solution.interpolated(inner.mT.contiguous() if self.batched else inner[:, 0])
            pairs = ((time, each_part(itemgetter(row), states)) for row, time in enumerate(inner))
            values = torch.stack([low, *(self._value(*pair) for pair in pairs), high])
            place = ((values[1:] * low) <= 0).int().argmax(0)[None]
            t = torch.cat([before[None], inner, after[None]])
            rows = [each.gather(0, place + later)[0] for each in (t, values) for later in (0, 1)]
            ends = zip(rows, (before, after, low, high), strict=True)
            before, after, low, high = (torch.where(wide, new, old) for new, old in ends)
        return before + torch.where(bracket.missing | (low == high), 0.5, low / (low - high)) * (after - before)

    def attached(self, solution: Solution, root: torch.Tensor, bracket: _Bracket) -> tuple[torch.Tensor, Any]:
        """Return times and states of the event with their gradients."""
        time, state = root, self._state(solution, root)
        value = self._value(root, state)
        if value.requires_grad:
            leaf = root.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self._value(leaf, self._state(solution, leaf)).sum(), leaf)
            is_flat = ~(torch.isfinite(slope) & (slope != 0)) & ~bracket.missing
            if bool(is_flat.any()):
                sample = int(is_flat.nonzero()[0])
                raise InvalidArgumentError(
                    f"event_fn must cross zero with a slope, got {float(slope[sample]):g} at t = "
                    f"{float(root[sample]):.6g}{self._of(sample, len(root))}; its time has no gradient there: solve "
                    f"under torch.no_grad()"
                )
            change = value / torch.where(bracket.missing, 1.0, slope)
            time = root - (change - change.detach())
            state = self._state(solution, time)
        return bracket.masked(time), each_part(bracket.masked, state)

    def refuse_at_once(self, t: torch.Tensor, at_once: torch.Tensor) -> None:
        """Raise an error if an event is so close to the start that no first output lies before it."""
        if bool(at_once.any()):
            sample = int(at_once.nonzero()[0])
            raise InvalidArgumentError(
                f"event_fn must not come at once, got a change of sign before t = {float(t[1, sample]):g} for t0 = "
                f"{float(t[0, sample]):g}{self._of(sample, len(at_once))}; start later, or check the sign of "
                f"event_fn(t0, y0)"
            )

    def _state(self, solution: Solution, time: torch.Tensor) -> Any:
        return each_part(itemgetter(0), solution.interpolated(time[:, None] if self.batched else time))

    def _value(self, time: torch.Tensor, state: Any) -> torch.Tensor:
        """Return the event function's values [B] at times [1] or [B]."""
        first = state[0] if isinstance(state, tuple) else state
        size = len(first) if self.batched else 1
        time = time.expand(size).to(first.device) if self.batched else time[0]
        clock_dtype = self.clock_dtype or torch.promote_types(first.dtype, torch.float32)
        value = self.function(time.to(clock_dtype), state)
        what = "one number for each sample" if self.batched else "one number"
        if not isinstance(value, torch.Tensor):
            raise InvalidArgumentError(
                f"event_fn must return a tensor of {what}, got {type(value).__name__}; "
                f"return what it computes of t and y, say y[0] - 1, without .item() or float()"
            )
        if value.numel() != size or (self.batched and value.dim() != 1):
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
        if bool(bad.any()) and not self.allows_nan:
            sample = int(bad.nonzero()[0])
            raise InvalidArgumentError(
                f"event_fn must return finite numbers, got {float(value.detach().reshape(-1)[sample])} at t = "
                f"{float(time.detach().reshape(-1)[sample]):.6g}{self._of(sample, size)}; check event_fn there"
            )
        return value.reshape(-1).to(time.device, torch.float64)

    def _of(self, sample: int, size: int) -> str:
        return f" in sample {sample} of {size}" if self.batched else ""

    def _no_change(self, values: torch.Tensor, times: torch.Tensor, missing: torch.Tensor) -> str:
        """Say why there is no event; one at the start itself does not count."""
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


def _span(t0: Any, t1: Any, *, batched: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both as float64 tensors of one shape, [1] or [B]; the first is still attached to the caller's graph."""
    begin, end = _times(t0, "t0", batched=batched), _times(t1, "t1", batched=batched).detach()
    begin, end = torch.broadcast_tensors(begin, end.to(begin.device))
    late = ~((begin.detach() < end) & (end < math.inf))
    if bool(late.any()):
        raise InvalidArgumentError(
            f"t1 must be later than t0 and finite, got {float(end[late][0]):g} for t0 = "
            f"{float(begin.detach()[late][0]):g}; pass a later time"
        )
    return begin, end


def _times(value: Any, name: str, *, batched: bool) -> torch.Tensor:
    """[1], or of a batch [B]; float64, still attached to the caller's graph."""
    if isinstance(value, bool) or not isinstance(value, Real | torch.Tensor):
        raise InvalidTypeError(f"{name} must be a number, got {type(value).__name__}; pass a float")
    time = torch.as_tensor(value, dtype=torch.float64)
    if time.numel() != 1 and not (batched and time.dim() == 1):
        remedy = "pass one time, or one for each sample" if batched else "pass one time"
        raise InvalidArgumentError(f"{name} must be one number, got shape {tuple(time.shape)}; {remedy}")
    return time.reshape(-1)
