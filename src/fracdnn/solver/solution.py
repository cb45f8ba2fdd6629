"""What a solve gives besides states; and what it has where it cannot go on, with `options={"failures": "nan"}`."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import torch

from fracdnn.exceptions import FracdnnError, InvalidArgumentError, NotConvergedError, NotFiniteError
from fracdnn.solver.states import each_part
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
    `n_evaluations` the calls of func, those for finding the grid among them.

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
    # The request, and what takes its steps again for other elapsed times [M], increasing.
    _request: Any = field(default=None, repr=False, compare=False)
    _again: Any = field(default=None, repr=False, compare=False)

    def evaluate(self, t: Any) -> Any:
        """The states at other times [M] between the first and the last, in any order: shape [M, *y0.shape].

        The same steps are taken again, so that the states are those of this solution, with its gradient, at the cost of
        one more pass: give all times at once. Tolerances hold from the first time in `t` after the start on: before it,
        steps are only as short as the later states need.
        """
        packed = self._packed(self._times(t, "evaluate"))
        return self._request.problem.states.unpack(packed)

    def derivative(self, t: Any) -> Any:
        """Its derivative of the equation's order, d_t^order u = func(t, u), at times as `evaluate` takes them."""
        request, times = self._request, self._times(t, "derivative")
        rows = zip(times.to(request.clock.dtype), self._packed(times), strict=True)
        return request.problem.states.unpack(torch.stack([request.problem.packed_slope(*row) for row in rows]))

    def _packed(self, times: torch.Tensor) -> torch.Tensor:
        elapsed, places = (times - self._request.times[0]).sort()
        with without_autocast(self._request.problem.value.device.type):
            return self._again(elapsed)[places.argsort()]

    def _times(self, t: Any, name: str) -> torch.Tensor:
        if self._again is None:
            raise InvalidArgumentError(
                f"{name} must be called on a solution of fdeint without batched, or of fdeint_delay, got another one; "
                f"pass the times in t"
            )
        own = self._request.times
        first, last = (float(own[place].detach()) for place in (0, -1))
        found = check_numbers(t, "t").to(torch.float64)
        outside = ~((found.detach() >= first) & (found.detach() <= last))
        if found.dim() != 1 or not len(found) or bool(outside.any()):
            got = f"{float(found.detach()[outside][0]):.6g}" if bool(outside.any()) else f"shape {tuple(found.shape)}"
            raise InvalidArgumentError(
                f"t must hold times [M] from {first:.6g} to {last:.6g}, which were solved for, got {got}; "
                f"pass a list of such times, or solve for later ones"
            )
        return found.to(own.device)


def of_states(function: Callable[[Any], Any], found: Any) -> Any:
    """What a function makes of the states of a solve of another equation, with `info` or without."""
    if isinstance(found, Solution):
        return replace(found, states=function(found.states), _again=None)
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
