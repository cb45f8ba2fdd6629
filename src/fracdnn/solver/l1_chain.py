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
from fracdnn.tracing import carries_derivative


def l1_chain(problem: Problem, grid: Grid, history: str, tolerance: float, *, trajectory: bool) -> torch.Tensor:
    """The states at all nodes, [N + 1, 1, components], or at the last one, [1, components]."""
    clock = grid.clock.unbind(0)
    start = problem.states.unpack(problem.value)
    assert isinstance(start, torch.Tensor)
    states = propagate(
        _plan(problem, grid, history, tolerance),
        lambda j, y: problem.slope(clock[j], y),
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
