"""Equations with a constant mass matrix that may be singular: M d_t^order u = func(t, u), as circuits have them."""

from collections.abc import Callable
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError, NotConvergedError
from fracdnn.solver.collocation import consistent_state
from fracdnn.solver.constraints import MassFunction
from fracdnn.solver.fdeint import fdeint
from fracdnn.solver.problem import posed_problem, time_text
from fracdnn.solver.rare_options import refuse_batched
from fracdnn.validation import check_floating, check_times


def fdeint_mass(
    func: Callable[[torch.Tensor, Any], Any], y0: Any, t: Any, *, mass: torch.Tensor, order: Any, **options: Any
) -> Any:
    """Return the solution of mass · d_t^order u = func(t, u) at every time in `t`; shape [len(t), *y0.shape].

    `mass` is a constant matrix [d, d] on the state's last dimension, of any rank above 0; a row of zeros makes a row of
    func a constraint. Constraints must determine the components that the rest of the equations does not (index 1). They
    hold at t[0], too: of y0 counts mass · y0, and constraints, solved from y0 as a guess, give the rest.

    `order` is one number. `options` are those of `fdeint`. A singular mass is solved by collocation, on an adaptive or
    a fixed grid; a regular one by every method. The gradient is exact for the discrete solution; in the mass, among
    masses of the same rank.
    """
    refuse_batched(options, "fdeint_mass")
    if isinstance(order, tuple | list) or (isinstance(order, torch.Tensor) and order.numel() != 1):
        raise InvalidArgumentError(f"order must be one number with a mass, got {order}; pass a float")
    posed = posed_problem(func, y0, 1.0)
    state = posed.states.unpack(posed.value)
    if not isinstance(state, torch.Tensor) or not state.dim():
        kind = "a tuple" if isinstance(state, tuple) else "one number"
        raise InvalidArgumentError(f"y0 must be one tensor [..., d] with a mass, got {kind}; stack its components")
    d = state.shape[-1]
    if not isinstance(mass, torch.Tensor) or mass.shape != (d, d):
        shape = tuple(mass.shape) if isinstance(mass, torch.Tensor) else type(mass).__name__
        raise InvalidArgumentError(
            f"mass must be a tensor [{d}, {d}], of the state's last dimension, got {shape}; pass a square matrix"
        )
    reduced = MassFunction(func, check_floating(mass, "mass").to(state))
    if reduced.is_regular:
        return fdeint(reduced.apart(), state, t, order=order, **options)
    if options.setdefault("method", "collocation") not in ("auto", "collocation"):
        raise InvalidArgumentError(
            f"method must be 'collocation' for a singular mass, got {options['method']!r}; leave it out"
        )
    return fdeint(reduced, _consistent_start(reduced, state, t, options), t, order=order, **options)


def _consistent_start(func: MassFunction, state: torch.Tensor, t: Any, options: dict[str, Any]) -> Any:
    """Return the state with the same mass · u in which the constraints hold at the start."""
    problem, start = posed_problem(func, state, 1.0), check_times(t).to(state.device)[0]
    clock = start.to(problem.clock_dtype(t))
    breakpoints = (options.get("options") or {}).get("breakpoints")
    if breakpoints is not None:  # func is evaluated as the right limit
        problem.jumps_at(check_times(breakpoints, "breakpoints", minimum=0), start, clock.dtype)
    try:
        return problem.states.unpack(consistent_state(problem, clock, problem.value))
    except NotConvergedError:
        raise NotConvergedError(
            f"func's constraints must determine the components that mass leaves open, got no solution by Newton's "
            f"method at t = {time_text(clock)}; start from a closer y0, or check that the system has index 1"
        ) from None
