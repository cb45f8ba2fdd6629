"""Fixed grids solved by the definition, `Steps`; graphs, and gradients for all there is."""

from collections.abc import Callable
from typing import Any

import torch

from fracdnn.solver.grids import Given, Spacing, make_grid
from fracdnn.solver.march import March
from fracdnn.solver.methods import METHODS
from fracdnn.solver.problem import posed_problem
from fracdnn.validation import check_times
from tests.solver.calls import grouped


def by_definition(
    func: Callable[..., Any],
    y0: Any,
    t: Any,
    *,
    order: Any,
    method: str,
    corrections: int = 1,
    trajectory: bool = True,
    **spacing: Any,
) -> Any:
    """What `fdeint` gives, in plain operations."""
    problem, times = posed_problem(func, y0, order), check_times(t)
    asked = {**dict.fromkeys(("grid", "n_steps", "rtol", "atol")), **grouped(**spacing)}
    clock = t if isinstance(t, torch.Tensor) else times
    grid = make_grid(Spacing.from_arguments(**asked), times, clock, problem.orders, None)
    scheme = METHODS[method](problem, corrections)
    tolerance = 1e-12 if problem.value.dtype == torch.float64 else 1e-7
    wanted = None
    if not isinstance(asked["grid"], Given) or not trajectory:
        wanted = times - times[0] if trajectory else times[-1:] - times[0]
    packed = March(scheme, grid, tolerance=tolerance).states(wanted)
    return problem.states.unpack(packed if trajectory else packed[-1])


def graph_of(result: torch.Tensor) -> set[str]:
    """The names of all nodes that a result came from."""
    names, left, seen = set(), [result.grad_fn], set()
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        names.add(node.name())
        left.extend(following for following, _ in node.next_functions)
    return names


def gradients(solution: Any, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Of a loss that weights every number of a solution differently."""
    parts = solution if isinstance(solution, tuple) else (solution,)
    loss = sum((part * torch.linspace(0.3, 1.7, part.numel(), dtype=part.dtype).view_as(part)).sum() for part in parts)
    found = torch.autograd.grad(loss, inputs, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(each) if got is None else got for each, got in zip(inputs, found, strict=True)]
