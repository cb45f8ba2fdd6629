"""Order 1: no memory but of the layer before, Y_j = Y_{j−1} + τ_j f_{j−1}(Y_{j−1}), in ordinary autograd or without."""

from collections.abc import Callable, Sequence

import torch

from fracdnn.memory.guard import StateGuard, Step
from fracdnn.tracing import being_traced


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


class ResidualTape:
    """What `Tape` is for others, for whoever walks forward and back by itself."""

    def __init__(self, step_sizes: Sequence[float]) -> None:
        self._step_sizes = step_sizes
        self._last: torch.Tensor

    def first(self, y0: torch.Tensor) -> torch.Tensor:
        self._last = y0
        return y0

    def advance(self, j: int, change: torch.Tensor) -> torch.Tensor:
        """Y_j."""
        self._last = torch.add(self._last, change, alpha=self._step_sizes[j - 1])
        return self._last

    def way_back(self, cotangent: torch.Tensor) -> "ResidualPass":
        return ResidualPass(self._step_sizes, torch.zeros_like(cotangent))


class ResidualPass:
    """Q_j = ∂E/∂Y_j + τ_{j+1} J_jᵀ Q_{j+1} + Q_{j+1}."""

    def __init__(self, step_sizes: Sequence[float], adjoint: torch.Tensor) -> None:
        self._step_sizes, self._adjoint = step_sizes, adjoint

    def change_cotangent(self, j: int, cotangent: torch.Tensor, saved: Sequence[torch.Tensor] = ()) -> torch.Tensor:
        """τ_j Q_j, what f_{j−1} receives."""
        self._adjoint += cotangent
        return self._step_sizes[j - 1] * self._adjoint

    def input_cotangent(self, cotangent: torch.Tensor) -> torch.Tensor:
        """Q_0."""
        return self._adjoint + cotangent
