"""The explicit L1 scheme with one order as a chain of layers: the paper's network is its solver (`fracdnn.memory`)."""

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory import (
    MemoryPlan,
    choose_block,
    choose_history,
    equal_steps_plan,
    grid_plan,
    propagate,
)
from fracdnn.solver.mesh import Grid
from fracdnn.solver.problem import Problem, time_text
from fracdnn.solver.stability import Stability
from fracdnn.tracing import being_traced, carries_derivative

_LOOK = 32  # steps after which a solution is looked at


def l1_chain(problem: Problem, grid: Grid, history: str, tolerance: float, *, trajectory: bool) -> torch.Tensor:
    """The states at all nodes, [N + 1, 1, components], or at the last one, [1, components]."""
    clock = grid.clock.unbind(0)
    start = problem.states.unpack(problem.value)
    assert isinstance(start, torch.Tensor)
    stability, traced = Stability(problem, grid, "l1"), being_traced()
    seen: list[torch.Tensor] = []

    def layer(number: int, state: torch.Tensor) -> torch.Tensor:
        if number and not traced:
            seen.append(state.detach())
            if number % _LOOK == 0 or number == grid.n_steps - 1:
                stability.see(number - len(seen), seen)
                seen.clear()
        return problem.slope(clock[number], state)

    states = propagate(
        _plan(problem, grid, history, tolerance),
        layer,
        start,
        trajectory=trajectory,
        name=lambda j: f"func at t = {time_text(clock[j])}",
    )
    shape = problem.value.shape
    return states.reshape(grid.n_steps + 1, *shape) if trajectory else states.reshape(shape)


def _plan(problem: Problem, grid: Grid, history: str, tolerance: float) -> MemoryPlan:
    order, state = problem.orders[0], problem.value
    uniform = grid.step is not None
    history = choose_history(history, grid.n_steps, state, equal_steps=uniform, learned=carries_derivative(order))
    if grid.step is not None:
        block = choose_block(state)
        return equal_steps_plan(order, grid.step, grid.n_steps, history=history, tolerance=tolerance, block=block)
    if history == "compressed":
        raise InvalidArgumentError(
            "history must be 'exact' or 'auto' for unequal or learned steps, got 'compressed'; "
            "its exponentials need equal steps"
        )
    return grid_plan(order.to(grid.elapsed.device), grid.elapsed)
