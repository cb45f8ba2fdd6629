"""The history sum in plain tensor operations: what `torch.compile`, `torch.func` and second derivatives need.

Blocked like `exact`, without buffers that are written twice. Always by the full weights, whatever the depth.
"""

from collections.abc import Sequence

import torch

from fracdnn.memory.sums import HistorySum

_BLOCK = 16


class FunctionalSum(HistorySum):
    """Row n of a lower triangular matrix over states that nobody writes into."""

    def __init__(self, matrix: torch.Tensor) -> None:
        self._matrix = matrix
        self._full_blocks: list[torch.Tensor] = []
        self._block: list[torch.Tensor] = []
        self._started: Sequence[torch.Tensor | None] = [None] * _BLOCK

    def first(self, state: torch.Tensor) -> torch.Tensor:
        self._block.append(state)
        return state

    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        row = self._row(n)
        return self.first(row + (factor * change).to(row.dtype))

    def follow(self, n: int, state: torch.Tensor) -> torch.Tensor:
        self.first(state)
        return self._row(n + 1)

    def _row(self, n: int) -> torch.Tensor:
        start = n - n % _BLOCK
        if n == start:
            self._started = self._older(n)
        total = self._started[n - start]
        for k, state in enumerate(self._block, start):
            term = self._matrix[n - 1, k].to(state.dtype) * state
            total = term if total is None else term + total
        assert total is not None
        return total

    def _older(self, n: int) -> Sequence[torch.Tensor]:
        """What the states of all blocks so far, now that the last is full, bring to the rows of the next."""
        latest = self._block[-1]
        self._full_blocks.append(torch.stack(self._block))
        self._block = []
        states = torch.cat(self._full_blocks)
        weights = self._matrix[n - 1 : n - 1 + _BLOCK, :n].to(states.dtype)
        with torch.autocast(states.device.type, enabled=False):
            first, *others = torch.tensordot(weights, states, dims=1).unbind(0)
        # In the memory format of the states, that of the first term; to the other rows, states are added anyway.
        return [torch.zeros_like(latest) + first, *others]
