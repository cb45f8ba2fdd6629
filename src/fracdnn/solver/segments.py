"""Parts of a solve that are computed again in the backward pass begin and end alike."""

from collections.abc import Callable
from typing import Any

import torch

from fracdnn.memory.recomputation import SegmentEnd
from fracdnn.solver.coupled import CoupledSolver

_REMEDY = "make it a function of t, y and parameters that stay as they are, or leave out the option checkpoint"


def repeatable(scheme: Any, run: Callable[..., tuple[torch.Tensor, torch.Tensor, Any]]) -> Callable[..., Any]:
    """Return a part of a solve that is called again: `run` gives its first and last state, and the result to return.

    Each call begins with what the solvers of a scheme know now, and has to end in the same state.
    """
    solvers = [each for each in vars(scheme).values() if isinstance(each, CoupledSolver)]
    known: list[tuple[Any, dict[str, Any]]] = [(solver, dict(vars(solver))) for solver in solvers]
    # By these a problem decides whether it calls func for many points at a time.
    names = ("can_be_mapped", "is_mapped", "n_evaluations", "probe_at")
    known.append((scheme.problem, {name: getattr(scheme.problem, name) for name in names}))
    segment_end = SegmentEnd("func", _REMEDY)

    def part(*given: Any) -> Any:
        for each, state in known:
            vars(each).update(state)
        begin, end, result = run(*given)
        segment_end.check(begin, end)
        return result

    return part
