"""Equations with delays: d_t^order u = func(t, u(t), u(t − τ_1), …), in panels no longer than the shortest delay.

So a delayed state lies in a panel that is already solved, or before the start, where `past` gives it. The solution is
not smooth at the start, nor at the breaking points that follow from it, t_0 + sums of delays: panels end there.
(The method of steps; source: Bellen, Zennaro, "Numerical Methods for Delay Differential Equations", 2003.)
"""

import inspect
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError, StateChangedError
from fracdnn.solver.collocation import Collocation, Memory, Panel, as_number
from fracdnn.solver.fdeint import fdeint
from fracdnn.solver.grids import ROUNDING, Adaptive, Spacing, Tolerance
from fracdnn.solver.problem import Problem, posed_problem, state_like, time_text
from fracdnn.solver.rare_options import MAX_EVALUATIONS, OPTIONS, rare_options
from fracdnn.solver.states import State, each_part
from fracdnn.tracing import being_transformed, versions
from fracdnn.validation import check_positive_tensor, check_times

# With each delay the solution becomes smoother by the order. Up to this many derivatives panels end at breaking points,
# and at no more of them than this; a search for panels finds the others, which are weak.
_SMOOTH, _MOST_POINTS = 8.0, 256
_NARROWEST = 2e-9  # time between two of them, in spans
_SHORTEST = 1e-5  # delay, in spans
_PER_PANEL = 200  # calls of func that are allowed for each panel of the shortest delay
_NAMES = ("breakpoints", "slope", "compress", "compress_tol", "max_evaluations", "failures")


def fdeint_delay(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *,
    order: Any,
    delays: Any,
    past: Any = None,
    rtol: Tolerance | None = None,
    atol: Tolerance | None = None,
    grid: Adaptive | None = None,
    options: dict[str, Any] | None = None,
    trajectory: bool = True,
    info: bool = False,
) -> Any:
    """The solution of d_t^order u = func(t, u(t), u(t − delays[0]), u(t − delays[1]), …) at every time in `t`.

    `delays` are positive constants: one number, a sequence of numbers and tensors, or a 1-D tensor. `past(t)` is the
    state before t[0], a function of a time that returns a state like y0, or a constant one; without it, y0. It may end
    in another state than y0, where the solution starts.

    The rest is as in `fdeint` with its default method on an adaptive grid; `options` are breakpoints, slope, compress,
    compress_tol, max_evaluations and failures. Breakpoints before t[0] are times at which past jumps. Panels
    are no longer than the shortest delay, so that the cost is at least proportional to (t[-1] − t[0]) / min(delays).

    The gradient is exact for the discrete solution, in delays, y0, order, t and what func and past close over.
    """
    times = check_times(t)
    lags = [lag.to(times.device) for lag in _checked_delays(delays)]
    _check_call(func, len(lags))
    rare = rare_options(options, {name: OPTIONS[name] for name in _NAMES}, " for fdeint_delay", "leave it out")
    span, shortest = float((times[-1] - times[0]).detach()), min(as_number(lag) for lag in lags)
    if shortest < _SHORTEST * span:
        raise InvalidArgumentError(
            f"delays must be at least {_SHORTEST:g} of the span from t[0] to t[-1], got {shortest:g} for {span:g}, "
            f"which takes {span / shortest:.2g} panels; solve for a shorter time, or without so short a delay"
        )
    problem = posed_problem(lambda t, y: y, y0, order, rare["slope"])
    jumps = rare["breakpoints"]
    jumps = times[:0] if jumps is None else check_times(jumps, "breakpoints", minimum=0).to(times.device)
    points = breaking_points(times, jumps, lags, float(problem.orders.detach().min()))
    rare["breakpoints"] = torch.stack(points) if points else None
    spacing = Spacing.from_arguments(grid, None, rtol, atol)
    if not isinstance(spacing.choice, Adaptive):
        raise InvalidArgumentError(
            f"grid must be Adaptive(…) for fdeint_delay, got {spacing.choice}; pass grid=Adaptive(rtol=…, max_step=…)"
        )
    adaptive = replace(spacing.choice, max_step=min(spacing.max_step, shortest))
    if rare["max_evaluations"] is None:
        rare["max_evaluations"] = MAX_EVALUATIONS + math.ceil(_PER_PANEL * (span / shortest + len(points)))
    looked_up = DelayedFunction(func, past, lags, times[0], problem)
    return fdeint(looked_up, y0, t, order=order, grid=adaptive, options=rare, trajectory=trajectory, info=info)


class DelayedFunction:
    """func(t, y, *delayed) as a function of t and y, which looks up delayed states in the panels solved so far."""

    follows_panels = True

    def __init__(
        self, func: Callable[..., Any], past: Any, delays: Sequence[torch.Tensor], begin: torch.Tensor, problem: Problem
    ) -> None:
        self._func, self._delays, self._layout = func, delays, problem.states
        self._begin = begin.to(problem.value.device)
        start = problem.states.unpack(problem.value)
        constant = start if past is None or callable(past) else state_like(past, start, "past")
        self._past: Callable[[torch.Tensor], State] = lambda time: (
            state_like(past(time), start, f"past({time_text(time)})") if callable(past) else constant
        )
        self._panels: list[tuple[Collocation, Memory, Panel]] = []
        self._begins: list[float] = []
        self._ready: dict[float, tuple[State, ...]] = {}  # delayed states, by times of the panel being solved

    def begin_panel(self, scheme: Any, begin: Any, elapsed: torch.Tensor, clock: Sequence[torch.Tensor]) -> None:
        """Drop what another try has left from here on, and look up the delayed states of all points at once."""
        count = bisect_left(self._begins, as_number(begin))
        del self._panels[count:], self._begins[count:]
        beside = [scheme.problem.beside_jump(time) for time in clock]
        moved = torch.stack(beside).detach().double() - torch.stack(tuple(clock)).detach().double()
        self._ready.clear()
        self._make_ready(beside, elapsed + moved)

    def expect(self, times: Sequence[torch.Tensor]) -> None:
        """Look up all of them at once, which takes hardly longer than one."""
        missing = [time for time in times if as_number(time) not in self._ready]
        if missing:
            self._make_ready(missing, torch.stack(missing).to(torch.float64) - self._begin)

    def _make_ready(self, times: Sequence[torch.Tensor], elapsed: torch.Tensor) -> None:
        found = [self._solution(elapsed - delay.to(elapsed.device), times[0].dtype) for delay in self._delays]
        self._ready.update(zip(map(as_number, times), zip(*found, strict=True), strict=True))

    def end_panel(self, scheme: Any, memory: Any, panel: Any) -> None:
        self._panels.append((scheme, memory, panel))
        self._begins.append(as_number(panel.begin))

    def __call__(self, time: torch.Tensor, state: Any) -> Any:
        self.expect([time])
        delayed = self._ready[as_number(time)]
        if not torch.is_grad_enabled():
            delayed = each_part(torch.Tensor.detach, delayed)
        if being_transformed():
            return self._func(time, state, *each_part(torch.clone, delayed))
        parts = [part for each in delayed for part in self._layout.parts(each)]
        before = versions(parts)
        slope = self._func(time, state, *delayed)
        if versions(parts) != before:
            raise StateChangedError(
                f"func must not change the delayed states it is given, but it wrote into one at t = {time_text(time)}; "
                f"return a new tensor, without operations such as y.mul_() or y += …"
            )
        return slope

    def _solution(self, elapsed: torch.Tensor, dtype: torch.dtype) -> list[State]:
        """At times [R] from the start, before or after it."""
        places = [bisect_left(self._begins, now) - 1 for now in elapsed.detach().tolist()]
        states: list[State] = []
        for place, group in groupby(places):
            mine = elapsed[len(states) :][: len(list(group))]
            if place < 0:
                times = (self._begin + mine.clip(max=0.0)).to(dtype)
                states.extend(self._past(time) for time in times.unbind(0))
                continue
            scheme, memory, panel = self._panels[place]
            states.extend(map(self._layout.unpack, scheme.found(memory, panel, mine, to_end=False)))
        return states


def breaking_points(
    times: torch.Tensor, jumps: torch.Tensor, delays: Sequence[torch.Tensor], order: float
) -> list[torch.Tensor]:
    """Jumps, and sums of delays after them and after the first time, between first and last time; increasing.

    Of two that are the same but for rounding, the one that follows from fewer delays.
    """
    begin, end = float(times[0].detach()), float(times[-1].detach())
    apart = max(_NARROWEST * (end - begin), 2.0 * ROUNDING * max(abs(begin), abs(end)))
    found: dict[float, torch.Tensor] = {}
    level = [times[0], *jumps.unbind(0)]
    for n_delays in range(math.ceil(_SMOOTH / order) + 1):
        fresh: dict[float, torch.Tensor] = {}
        for point in level:
            number = as_number(point)
            if number < end - apart and all(abs(number - other) > apart for other in (*found, *fresh)):
                fresh[number] = point
        if not fresh or (n_delays > 1 and len(found) + len(fresh) > _MOST_POINTS):
            break
        found.update((number, point) for number, point in fresh.items() if number > begin + apart)
        level = [point + delay for point in fresh.values() for delay in delays]
    return [found[number] for number in sorted(found)]


def _checked_delays(delays: Any) -> list[torch.Tensor]:
    """Positive, float64, still attached to the caller's graph."""
    listed = list(delays) if isinstance(delays, tuple | list) or getattr(delays, "ndim", False) else [delays]
    if not listed:
        raise InvalidArgumentError("delays must hold at least one number, got none; without a delay use fdeint")
    checked = []
    for place, delay in enumerate(listed):
        name = f"delays[{place}]"
        value = check_positive_tensor(delay, name, remedy="pass how far back func looks, as a positive time")
        if value.numel() != 1:
            raise InvalidArgumentError(
                f"{name} must be one number, got shape {tuple(value.shape)}; pass one for each delayed state of func"
            )
        checked.append(value.reshape(()))
    return checked


def _check_call(func: Any, count: int) -> None:
    called = f"func(t, y, {', '.join(f'delayed_{number + 1}' for number in range(count))})"
    if not callable(func):
        raise InvalidTypeError(f"func must be callable as {called}, got {type(func).__name__}; pass a function")
    try:
        signature = inspect.signature(func)
    except ValueError:  # of a function that is not Python's
        return
    try:
        signature.bind(*range(2 + count))
    except TypeError:
        raise InvalidArgumentError(
            f"func must be callable as {called}, with one state for each of the {count} delays, got func{signature}; "
            f"take as many arguments, or pass as many delays"
        ) from None
