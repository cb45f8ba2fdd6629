"""Other packages' solvers behind one call: y(T) of d_t^order y = field(t, y) in n equal steps.

Each imports its package when called, and raises ImportError where that is missing. The first two know order 1 only;
pycaputo works in NumPy and has no gradients.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

PACKAGES = ("numba", "torchdiffeq", "fdeint", "pycaputo", "torchode")
Field = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def torchdiffeq_euler(field: Field, y0: torch.Tensor, T: float, n: int, *, all_times: bool) -> torch.Tensor:
    """Explicit Euler, by backpropagation through its steps.

    With `all_times` the solution is asked for at every step, as `fracdnn.fdeint` gives it; its writes into the output
    then make the backward pass quadratic in the steps. Without, only the end is asked for.
    """
    from torchdiffeq import odeint

    if all_times:
        return odeint(field, y0, torch.linspace(0, T, n + 1, dtype=y0.dtype), method="euler")[-1]
    ends = torch.tensor([0.0, T], dtype=y0.dtype)
    return odeint(field, y0, ends, method="euler", options={"step_size": T / n})[-1]


def torchdiffeq_midpoint(field: Field, y0: torch.Tensor, T: float, n: int) -> torch.Tensor:
    """The explicit midpoint rule, by backpropagation through its steps."""
    from torchdiffeq import odeint

    ends = torch.tensor([0.0, T], dtype=y0.dtype)
    return odeint(field, y0, ends, method="midpoint", options={"step_size": T / n})[-1]


def torchode_euler(field: Field, y0: torch.Tensor, T: float, n: int) -> torch.Tensor:
    """Explicit Euler with a fixed step, each sample a problem of its own, by backpropagation."""
    import torchode

    batch = len(y0)
    ends = torch.tensor([0.0, T], dtype=y0.dtype).expand(batch, 2)
    term = torchode.ODETerm(field)
    solver = torchode.AutoDiffAdjoint(torchode.Euler(term), torchode.FixedStepController())
    # A hair more than the step, else rounding leaves a last one that is tiny.
    step = torch.full((batch,), T / n * (1 + 1e-6), dtype=y0.dtype)
    return solver.solve(torchode.InitialValueProblem(y0=y0, t_eval=ends), term, dt0=step).ys[:, -1]


def torchode_adaptive(field: Field, y0: torch.Tensor, times: torch.Tensor, rtol: float, atol: float) -> torch.Tensor:
    """By Tsitouras's method of order 5, each sample with steps of its own, by backpropagation; [T, B, d]."""
    import torchode

    term = torchode.ODETerm(field)
    controller = torchode.IntegralController(atol=atol, rtol=rtol, term=term)
    solver = torchode.AutoDiffAdjoint(torchode.Tsit5(term), controller)
    ends = times.to(y0).expand(len(y0), -1).contiguous()
    return solver.solve(torchode.InitialValueProblem(y0=y0, t_eval=ends), term).ys.transpose(0, 1)


def fdeint_pece(field: Field, y0: torch.Tensor, T: float, n: int, order: float) -> torch.Tensor:
    """PyPI's fdeint: predictor and corrector, by backpropagation."""
    from FDEint import FDEint

    times = torch.linspace(0, T, n + 1, dtype=y0.dtype)
    return FDEint(field, times, y0, order, h=T / n, dtype=y0.dtype)[:, -1]


def pycaputo_solution(
    method: str,
    field: Callable,
    y0: tuple[np.ndarray, ...],
    T: float,
    n: int,
    order: float,
    *,
    grading: float = 1.0,
    **options: Any,
) -> np.ndarray:
    """By a method of pycaputo.fode.caputo from a value and, for an order above 1, a slope; `options` are its own."""
    from pycaputo.controller import make_fixed_controller, make_graded_controller
    from pycaputo.derivatives import CaputoDerivative
    from pycaputo.fode import caputo
    from pycaputo.stepping import evolve

    derivatives = tuple(CaputoDerivative(order) for _ in range(y0[0].size))
    if grading == 1.0:
        control, first = make_fixed_controller(T / n, tstart=0.0, tfinal=T), T / n
    else:
        control = make_graded_controller(tstart=0.0, tfinal=T, nsteps=n, r=grading)
        first = control.dtinit
    solver = getattr(caputo, method)(ds=derivatives, control=control, source=field, y0=y0, **options)
    event = None
    for event in evolve(solver, dtinit=first):  # noqa: B007
        pass
    if abs(event.t - T) > 1e-9 * T:
        raise ValueError(f"pycaputo stopped at t = {event.t}, not at {T}")
    return event.y
