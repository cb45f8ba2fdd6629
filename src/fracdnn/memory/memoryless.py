"""Layers that see only the one before: order 1, Y_j = Y_{j−1} + τ_j f_{j−1}(Y_{j−1}), or no skip connections."""

import torch

from fracdnn.memory.sums import HistorySum


class MemorylessSum(HistorySum):
    """Row n is x_{n−1}; without skip connections it is 0. So x_{n−1} is all that a position needs."""

    def __init__(self, *, skip: bool) -> None:
        self._skip = skip
        self._last: torch.Tensor

    def first(self, state: torch.Tensor) -> torch.Tensor:
        self._last = state
        return state

    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        change = change.to(self._last.dtype)
        if not self._skip:
            self._last = change * factor
        elif isinstance(factor, float):
            self._last = torch.add(self._last, change, alpha=factor)
        else:
            self._last = torch.addcmul(self._last, change, factor)
        return self._last

    def follow(self, n: int, state: torch.Tensor) -> torch.Tensor:
        return state if self._skip else torch.zeros_like(state)
