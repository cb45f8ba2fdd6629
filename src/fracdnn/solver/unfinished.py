"""A solve that cannot go on gives what it has, where that is wanted: `fdeint(..., options={"failures": "nan"})`."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError, NotConvergedError, NotFiniteError
from fracdnn.solver.solution import Solution, Status
from fracdnn.validation import check_choice, check_times


def allows_nan(failures: Any, kind: str) -> bool:
    """Whether NaN stands for what cannot be solved, on this kind of grid."""
    if failures == "nan" and kind != "adaptive":
        raise InvalidArgumentError(
            f"failures must be 'raise' for grid={kind!r}, got 'nan'; leave it out, or leave out n_steps, step_size and "
            f"grid"
        )
    return bool(check_choice(failures, "failures", ("raise", "nan")) == "nan")


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
    parts = found.states if isinstance(found.states, tuple) else (found.states,)
    missing = len(elapsed) - max(count, 1)
    nan = (torch.full_like(part[:1].expand(missing, *part.shape[1:]), math.nan) for part in parts)
    filled = tuple(torch.cat(pair) for pair in zip(parts, nan, strict=True))
    filled = filled if trajectory else tuple(part[-1] for part in filled)
    return replace(found, states=filled if isinstance(found.states, tuple) else filled[0], status=Status.of(error))
