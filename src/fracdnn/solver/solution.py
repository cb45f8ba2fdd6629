"""What a solve gives besides states; and what it has where it cannot go on, with `options={"failures": "nan"}`."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import torch

from fracdnn.exceptions import FracdnnError, InvalidArgumentError, NotConvergedError, NotFiniteError
from fracdnn.solver.dense import DensePanels
from fracdnn.solver.states import States, each_part
from fracdnn.validation import check_numbers, check_times


class Status(Enum):
    """How a solve ended; the value says what to do about it."""

    SOLVED = "the states are within the tolerances: nothing is to be done"
    NOT_CONVERGED = (
        "no steps keep the tolerances: pass larger rtol and atol, times before the solution ends, or, where func "
        "jumps, options={'breakpoints': …}"
    )
    NOT_FINITE = "func gives NaN or infinity on the way: check it there, or the sample's parameters and start"

    @classmethod
    def of(cls, error: FracdnnError) -> "Status":
        return cls.NOT_FINITE if isinstance(error, NotFiniteError) else cls.NOT_CONVERGED


def without_autocast(kind: str) -> AbstractContextManager[Any]:
    """For the solver's own sums on a kind of device; func is called with it."""
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


@dataclass(frozen=True, eq=False)
class Solution:
    """What `fdeint(..., info=True)` gives: the states, and how they came about.

    `grid` holds the times of the nodes, `n_rejected` counts the steps that an adaptive grid tried and gave up, and
    `n_evaluations` the pairs of a time and a state, or of B times and states with `batched=True`, at which func was
    evaluated, those for finding the grid among them. These are the calls of func, but for one call inside of
    `torch.func.vmap`, as an adaptive grid makes it for all points of a panel, which counts each of them.

    With `batched=True` there are a row of `grid` (the last time repeated), a number of steps and a `status` for each
    sample; a sample solved alone has a row of NaN.
    """

    states: Any
    method: str
    grid: torch.Tensor
    n_accepted: Any
    n_rejected: Any
    n_evaluations: int
    status: Any = Status.SOLVED
    _panels: DensePanels | None = field(default=None, repr=False, compare=False)
    _times: Any = field(default=None, repr=False, compare=False)  # first and last; [2], or [B, 2] of samples
    # The request, and the solution between outputs where no panels are stored, at increasing elapsed times [M]; and
    # a solve with further outputs. All three call func, and are left behind when a solution is pickled.
    _request: Any = field(default=None, repr=False, compare=False)
    _again: Any = field(default=None, repr=False, compare=False)
    _refined: Any = field(default=None, repr=False, compare=False)

    def evaluate(self, t: Any) -> Any:
        """Return the states at other times [M] between the first and the last, in any order: [M, *y0.shape].

        Computed from stored panels without calling func, with the solution's gradient. A solution on a fixed grid of
        an explicit method takes its steps again. Between the start (or a breakpoint) and the next time in `t`, steps
        are only as short as later states need: there the equation is solved again, with `t` among the outputs.
        With `batched=True`, times are [M] or [B, M].
        """
        packed = self._packed(self._checked(t, "evaluate"))
        return self._layout.unpack(packed)

    def derivative(self, t: Any) -> Any:
        """Return d_t^order u = func(t, u), the derivative of the equation's order, at times as `evaluate` takes them.

        After pickling, the slopes that were integrated, which are func to about the tolerance.
        """
        request, times = self._request, self._checked(t, "derivative")
        if request is None and self._panels is not None:
            return self._layout.unpack(self._panels.at(times - self._times[..., :1], slopes=True))
        rows = zip(times.to(request.clock.dtype), self._packed(times), strict=True)
        return self._layout.unpack(torch.stack([request.problem.packed_slope(*row) for row in rows]))

    @property
    def _layout(self) -> States:
        return self._request.problem.states if self._panels is None else self._panels.layout

    def interpolated(self, times: torch.Tensor) -> Any:
        """Return the states at times as `evaluate` takes them, without solving again where steps are long."""
        return self._layout.unpack(self._computed(times - self._times[..., :1]))

    def is_coarse(self, times: torch.Tensor) -> torch.Tensor:
        """Return True for times at which `interpolated` may miss the tolerances; of the shape [M] or [B, M]."""
        elapsed = times - self._times[..., :1]
        return torch.zeros_like(elapsed, dtype=torch.bool) if self._panels is None else self._panels.is_coarse(elapsed)

    def _computed(self, elapsed: torch.Tensor) -> torch.Tensor:
        with without_autocast(elapsed.device.type):
            if self._panels is not None:
                return self._panels.at(elapsed)
            elapsed, places = elapsed.sort()
            return self._again(elapsed)[places.argsort()]

    def _packed(self, times: torch.Tensor) -> torch.Tensor:
        elapsed, coarse = times - self._times[..., :1], self.is_coarse(times)
        packed = self._computed(elapsed)
        if not bool(coarse.any()):
            return packed
        if self._refined is None:
            raise InvalidArgumentError(
                f"t must not lie between the start or a breakpoint and the next requested time, where steps are too "
                f"long for the tolerances, got {float(times.detach().expand_as(coarse)[coarse][0]):.6g}; solve with an "
                f"output soon after it in t"
            )
        with without_autocast(elapsed.device.type):
            better = self._refined(elapsed.detach()[coarse].unique()).at(elapsed[coarse])
        return packed.index_copy(0, coarse.nonzero()[:, 0], better)

    def _checked(self, t: Any, name: str) -> torch.Tensor:
        own = self._times
        if own is None or (self._again is None and self._panels is None):
            raise InvalidArgumentError(
                f"{name} must be called on a solution of fdeint or fdeint_delay, with panels where it was pickled, got "
                f"another one; pass the times in t"
            )
        first, last = own.detach()[..., :1], own.detach()[..., 1:]
        times = check_numbers(t, "t").to(own)
        outside = ~((times.detach() >= first) & (times.detach() <= last))
        if times.dim() not in (1, own.dim()) or not times.numel() or bool(outside.any()):
            got = f"{float(times.detach().expand_as(outside)[outside][0]):.6g}" if bool(outside.any()) else None
            raise InvalidArgumentError(
                f"t must hold times [M] from {float(first.min()):.6g} to {float(last.max()):.6g}, which were solved "
                f"for, got {got or f'shape {tuple(times.shape)}'}; pass a list of such times, or solve for later ones"
            )
        return times

    def __getstate__(self) -> dict[str, Any]:
        state = vars(self) | dict.fromkeys(("_request", "_again", "_refined"))
        state["states"] = each_part(torch.Tensor.detach, self.states)
        state["_panels"] = self._panels and self._panels.detached()
        state["_times"] = None if self._times is None else self._times.detach()
        return state


def of_states(function: Callable[[Any], Any], found: Any) -> Any:
    """What a function makes of the states of a solve of another equation, with `info` or without."""
    if isinstance(found, Solution):
        return replace(found, states=function(found.states), _again=None, _panels=None)
    return function(found)


def solved_as_far(
    build: Callable[[Any], Any], solve: Callable[[Any], Solution], t: Any, *, trajectory: bool
) -> Solution:
    """Of the request that `build` makes of times: up to the last time that can be reached, and NaN from there on."""
    times = check_times(t)
    elapsed, count, error = (times - times[0]).detach(), len(times), None
    found: Solution | None = None
    while count > 1 and found is None:
        try:
            found = solve(build(t[:count]))
        except (NotConvergedError, NotFiniteError) as failed:
            error = error or failed
            reached = int((elapsed <= failed.reached).sum()) if isinstance(failed, NotConvergedError) else count
            count = min(count - 1, reached) if trajectory else 1
    if error is None:
        return found  # type: ignore[return-value]  # no error, so that there is one
    if found is None:  # nothing but the start
        problem = build(t).problem
        states = problem.states.unpack(problem.value[None])
        found = Solution(states, "collocation", times[:1].detach(), 0, 0, problem.n_evaluations)
    missing = len(elapsed) - max(count, 1)

    def filled(part: torch.Tensor) -> torch.Tensor:
        whole = torch.cat([part, torch.full_like(part[:1].expand(missing, *part.shape[1:]), math.nan)])
        return whole if trajectory else whole[-1]

    return replace(found, states=each_part(filled, found.states), status=Status.of(error))
