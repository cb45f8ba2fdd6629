"""Order 1: no memory but of the layer before, Y_j = Y_{j−1} + τ_j f_{j−1}(Y_{j−1}), in ordinary autograd."""

from collections.abc import Callable, Sequence

import torch

from fracdnn.memory.guard import StateGuard, Step
from fracdnn.validation import being_traced


def propagate_residual(
    step_sizes: Sequence[float],
    step: Step,
    y0: torch.Tensor,
    *,
    trajectory: bool = False,
    name: Callable[[int], str] = "step {}".format,
) -> torch.Tensor:
    """Y_N, or Y_0 … Y_N stacked: as `propagate` for order 1 and fixed steps."""
    guard = StateGuard(name, len(step_sizes))
    traced = being_traced()
    y, states = y0, [y0]
    for j, step_size in enumerate(step_sizes, 1):
        change = step(j - 1, y) if traced else guard.call(step, j - 1, y)
        y = torch.add(y, change.to(y.dtype), alpha=step_size)
        if not traced:
            guard.check(j, y)
        if trajectory:
            states.append(y)
    return torch.stack(states) if trajectory else y
