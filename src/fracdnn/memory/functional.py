"""The history sum in plain tensor operations: what `torch.compile`, `torch.func` and second derivatives need.

Blocked like `exact`, without buffers that are written twice. Always by the full weights, whatever the depth.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch

_BLOCK = 16


class PlainSum(ABC):
    """What `HistorySum` is, for states that are appended one after the other and never written into."""

    @abstractmethod
    def append(self, state: torch.Tensor) -> None:
        """Take the next state."""

    @abstractmethod
    def row(self, n: int) -> torch.Tensor | None:
        """Σ_{k<n} M_nk x_k over the n states so far; None is 0."""


class LastState(PlainSum):
    """Row n is x_{n−1}, or 0 without skip connections."""

    def __init__(self, *, skip: bool) -> None:
        self._skip = skip
        self._last: torch.Tensor | None = None

    def append(self, state: torch.Tensor) -> None:
        self._last = state

    def row(self, n: int) -> torch.Tensor | None:
        return self._last if self._skip else None


class FunctionalSum(PlainSum):
    """Row n of a lower triangular matrix."""

    def __init__(self, matrix: torch.Tensor) -> None:
        self._matrix = matrix
        self._full_blocks: list[torch.Tensor] = []
        self._block: list[torch.Tensor] = []
        self._started: Sequence[torch.Tensor | None] = [None] * _BLOCK

    def append(self, state: torch.Tensor) -> None:
        self._block.append(state)
        if len(self._block) == _BLOCK:
            self._full_blocks.append(torch.stack(self._block))
            self._block = []

    def row(self, n: int) -> torch.Tensor:
        start = n - n % _BLOCK
        if n == start:
            self._started = self._older(n)
        total = self._started[n - start]
        for k, state in enumerate(self._block, start):
            term = self._matrix[n - 1, k].to(state.dtype) * state
            total = term if total is None else total + term
        assert total is not None
        return total

    def _older(self, n: int) -> Sequence[torch.Tensor]:
        states = torch.cat(self._full_blocks)
        weights = self._matrix[n - 1 : n - 1 + _BLOCK, :n].to(states.dtype)
        with torch.autocast(states.device.type, enabled=False):
            return torch.tensordot(weights, states, dims=1).unbind(0)
