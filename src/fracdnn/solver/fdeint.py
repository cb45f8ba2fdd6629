"""Solve d_t^order u = func(t, u) with memory, differentiably."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.memory import HISTORIES
from fracdnn.solver.adaptive import find_grid
from fracdnn.solver.grids import Spacing, make_grid
from fracdnn.solver.l1_chain import l1_chain
from fracdnn.solver.march import Wanted, interpolated, march
from fracdnn.solver.mesh import Grid
from fracdnn.solver.methods import METHODS, Method, Options
from fracdnn.solver.methods.l1 import L1
from fracdnn.solver.problem import Problem, posed_problem
from fracdnn.validation import check_choice, check_count, check_flag, check_positive, check_times

# Of far weights, by the state's dtype; see `fracdnn.caputo.modes`.
_TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-7}


@dataclass(frozen=True)
class Solution:
    """What `fdeint(..., info=True)` gives: the states, and how they came about.

    `grid` holds the times of the nodes, `n_rejected` counts the steps that an adaptive grid tried and gave up, and
    `n_evaluations` the calls of func, those for finding the grid among them.
    """

    states: Any
    method: str
    grid: torch.Tensor
    n_accepted: int
    n_rejected: int
    n_evaluations: int


def fdeint(
    func: Callable[[torch.Tensor, Any], Any],
    y0: Any,
    t: Any,
    *,
    order: Any,
    method: str = "auto",
    stiff: bool = False,
    grid: str | None = None,
    step_size: float | None = None,
    n_steps: int | None = None,
    grading: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    corrections: int = 1,
    history: str = "auto",
    tolerance: float | None = None,
    checkpoint: bool = False,
    trajectory: bool = True,
    info: bool = False,
) -> Any:
    """The solution of d_t^order u = func(t, u), u(t[0]) = y0, at every time in `t`; shape [len(t), *y0.shape].

    `func(t, y)` is given a time and a state like y0 and returns a tensor, or tuple, like it. `y0` is a tensor of any
    shape or a tuple of tensors; for orders above 1 a pair of such, the value and its slope. `t` are increasing times,
    the first of them the initial one.

    `order` lies in (0, 2]: one number; or a tensor that broadcasts against the state, an order for each component; or,
    for a tuple state, a sequence of one for each tensor.

    `method="auto"` is "adams", explicit and of second order, and "trapezoidal" where `stiff`; docs/solver.md has all.
    `corrections` is how often "adams" and "pece" correct their prediction.

    `grid` says where the solver's own nodes lie. "adaptive", the default: steps of such lengths that the error stays
    about `atol` + `rtol` · |u| (1e-8 and 1e-5 unless given). "uniform", the default where `n_steps` or `step_size`, the
    longest step, is given; "graded": finer toward the begin, like (j/N)^`grading` (2/order unless given), which keeps
    second order for solutions like t^order. "given": `t` itself.

    `history="exact"` sums over all pairs of nodes; "auto" and "compressed" sum far nodes through modes, to the relative
    `tolerance` (1e-12 in float64, else 1e-7), in O(N) time. `checkpoint=True` computes parts of the forward pass again
    in the backward pass: memory like √N instead of N. `trajectory=False` gives the solution at the last time alone, in
    the shape of y0, and `info=True` a `Solution`: the states, the grid that was used, and counts.

    The gradient is that of the discrete solution on the grid that was used: exact with respect to y0, order, t and
    whatever func closes over. An adaptive grid's nodes are constants, as shares of the time from first to last.
    """
    check_choice(method, "method", ("auto", *METHODS))
    check_choice(history, "history", HISTORIES)
    for flag, name in ((stiff, "stiff"), (checkpoint, "checkpoint"), (trajectory, "trajectory"), (info, "info")):
        check_flag(flag, name)
    if not callable(func):
        raise InvalidTypeError(f"func must be callable as func(t, y), got {type(func).__name__}; pass a function")
    times = check_times(t)
    problem = posed_problem(func, y0, order)
    scheme = _method(method, stiff, problem, Options(corrections=check_count(corrections, "corrections", minimum=1)))
    spacing = Spacing.asked_for(scheme, grid, step_size, n_steps, grading, rtol, atol)
    times = times.to(problem.value.device)
    # In their own dtype: rounded to that of the state, late times would be others.
    clock = (t if isinstance(t, torch.Tensor) and t.is_floating_point() else times).to(problem.value.device)
    elapsed = (times - times[0]) if trajectory else (times - times[0])[-1:]
    shares, rejected = None, 0
    if spacing.kind == "adaptive":
        found = find_grid(scheme, times, clock, first_output=float(elapsed[elapsed > 0][0]), spacing=spacing)
        shares, rejected = found.shares, found.n_rejected
    nodes = make_grid(spacing, t, times, clock, problem.orders, shares)
    if tolerance is not None:
        check_positive(tolerance, "tolerance")
    packed = _solved(scheme, nodes, elapsed, spacing, history, tolerance, checkpoint=checkpoint, trajectory=trajectory)
    states = problem.states.unpack(packed)
    if not info:
        return states
    return Solution(states, scheme.name, nodes.clock.detach(), nodes.n_steps, rejected, problem.n_evaluations)


def _method(name: str, stiff: bool, problem: Problem, options: Options) -> Method:
    if name == "auto":
        name = "trapezoidal" if stiff else "adams"
    method = METHODS[name]
    if stiff and not method.implicit:
        raise InvalidArgumentError(
            f"method must be an implicit one where stiff=True, got {name!r}; leave it out, or pass 'trapezoidal'"
        )
    largest = problem.largest_order
    if largest is not None and largest > method.largest_order:
        raise InvalidArgumentError(
            f"order must not exceed {method.largest_order:g} for method {name!r}, got {largest:g}; "
            f"use 'adams', 'pece' or 'trapezoidal'"
        )
    return method(problem, options)


def _solved(
    scheme: Method,
    nodes: Grid,
    elapsed: torch.Tensor,
    spacing: Spacing,
    history: str,
    tolerance: float | None,
    *,
    checkpoint: bool,
    trajectory: bool,
) -> torch.Tensor:
    """[len(t), groups, components], or the last of these."""
    problem = scheme.problem
    whole = spacing.kind == "given" and trajectory
    one_tensor = len(problem.orders) == 1 and not problem.states.is_tuple
    if isinstance(scheme, L1) and one_tensor and not checkpoint:
        only_last = not trajectory
        states = l1_chain(problem, nodes, history, tolerance, trajectory=not only_last)
        return states if whole or only_last else interpolated(states, nodes, elapsed)
    wanted = None if whole else Wanted.on(nodes, elapsed)
    if tolerance is None:
        tolerance = _TOLERANCES.get(problem.value.dtype, 1e-7)
    packed = march(scheme, nodes, wanted, exact=history == "exact", tolerance=tolerance, checkpoint=checkpoint)
    return packed if trajectory else packed[-1]
