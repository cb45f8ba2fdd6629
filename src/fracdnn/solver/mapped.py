"""The default inside of `torch.func.vmap`: a batch of solves, each on a grid of its own; see `batched`."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from fracdnn.solver.solution import Solution
from fracdnn.solver.states import as_state
from fracdnn.tracing import Mapping
from fracdnn.validation import check_numbers


def solve_mapped(
    solve: Callable[..., Any], mapping: Mapping, func: Callable[..., Any], y0: Any, t: Any, order: Any, rest: Any
) -> Solution:
    """`solve` is `fdeint` itself, the `rest` what else goes with it; func is called inside of the map alone."""
    start = as_state(y0, "y0")
    rtol, atol, options, trajectory = rest
    times = t if isinstance(t, torch.Tensor) and t.is_floating_point() else check_numbers(t, "t")
    start = _each(mapping.whole, start)
    times, orders = mapping.whole(times), mapping.whole(torch.as_tensor(order))
    with mapping.left() as inner:

        def of_all(time: torch.Tensor, state: Any) -> Any:
            with inner.entered():
                return _each(inner.whole, func(inner.mapped(time), _each(inner.mapped, state)))

        sizes = {"rtol": rtol, "atol": atol, "options": options, "trajectory": trajectory}
        found = solve(of_all, start, times, order=orders, batched=True, info=True, **sizes)
    return replace(found, states=_each(partial(mapping.mapped, dim=1 if trajectory else 0), found.states))


def _each(function: Callable[[torch.Tensor], torch.Tensor], state: Any) -> Any:
    """Of a tensor, or of those of a tuple."""
    return tuple(_each(function, part) for part in state) if isinstance(state, tuple | list) else function(state)
