"""Tempered derivatives: a memory that fades exponentially, e^(−λ t) d_t^order (e^(λ t) u) = func(t, u)."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.solver.fdeint import fdeint
from fracdnn.solver.problem import posed_problem
from fracdnn.solver.rare_options import refuse_batched
from fracdnn.solver.solution import of_states
from fracdnn.solver.states import as_state, each_part
from fracdnn.validation import check_times

_LARGEST = 0.85  # tempering times span, in those with which e^(λ t) is no number any more


def fdeint_tempered(
    func: Callable[[torch.Tensor, Any], Any], y0: Any, t: Any, *, tempering: Any, order: Any, **options: Any
) -> Any:
    """The solution of e^(−λ t) d_t^order (e^(λ t) u) = func(t, u) at every time in `t`, with λ = `tempering` ≥ 0.

    By substitution: with g = exp(λ (t − t[0])), v = g u obeys d_t^order v = g · func(t, v/g); rtol and atol are for v.
    Orders are at most 1; `options` are those of `fdeint`. The gradient is exact for the discrete solution, in the
    tempering, too. (Source: Sabzikar, Meerschaert, Chen, "Tempered fractional calculus", 2015.)
    """
    refuse_batched(options, "fdeint_tempered")
    if isinstance(tempering, bool) or not isinstance(tempering, Real | torch.Tensor):
        raise InvalidTypeError(f"tempering must be a number, got {type(tempering).__name__}; pass a rate, 0 for none")
    times, start = check_times(t), as_state(y0, "y0")
    rate = torch.as_tensor(tempering, dtype=torch.float64).to(times.device)
    problem = posed_problem(func, start, order, (options.get("options") or {}).get("slope"))
    most = _LARGEST * math.log(torch.finfo(problem.value.dtype).max)
    if rate.numel() != 1 or not 0.0 <= float(rate.detach()) * float((times[-1] - times[0]).detach()) <= most:
        raise InvalidArgumentError(
            f"tempering must be one number, from 0 to {most:.3g} over the span, got {rate.detach().tolist()}; pass a "
            f"smaller rate, or a shorter span"
        )
    largest = float(problem.orders.detach().max())
    if largest > 1.0:
        raise InvalidArgumentError(f"order must be at most 1 with a tempering, got {largest:g}; use fdeint without one")

    def grown(state: Any, time: torch.Tensor, sign: float) -> Any:
        """A state times e^(±λ t), or states at times [T, …]."""
        factor = torch.exp(sign * rate.reshape(()) * (time.to(torch.float64) - times[0]))
        return each_part(
            lambda part: factor.to(part).reshape((*factor.shape, *(1,) * (part.dim() - factor.dim()))) * part, state
        )

    found = fdeint(lambda time, v: grown(func(time, grown(v, time, -1.0)), time, 1.0), start, t, order=order, **options)
    ends = times if options.get("trajectory", True) else times[-1]
    return of_states(lambda states: grown(states, ends, -1.0), found)
