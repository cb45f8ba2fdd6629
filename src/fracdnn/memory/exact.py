"""The history sum, blocked: a matrix product per block of rows, so that the history is read a few times, not N times.

Rows are cut into nested blocks (64, inside them 8, inside them single rows). When a block begins, the sum over all
older states of the enclosing block is brought in for all its rows by one matrix product. Every pair of a row and an
older state is met on exactly one level.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch

from fracdnn.memory.sums import HistorySum, memory_format, rows_as_states

# Below this many bytes of history it stays in cache and one product per row is fastest.
_SMALL_HISTORY = 2**20


class BufferedSum(HistorySum):
    """A sum whose rows are computed where the states will be stored, so that nothing is copied."""

    n_rows: int

    @abstractmethod
    def _slot(self, n: int) -> torch.Tensor:
        """Row n, in the place of x_n."""

    @abstractmethod
    def _take(self, n: int, state: torch.Tensor) -> None:
        """Put x_n in its place."""

    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        if change.layout is not torch.strided:  # torch would add a sparse one at another place of the buffer
            change = change.to_dense()
        row = self._slot(n)
        if n == self.n_rows:  # apart, so that it does not keep the buffers alive
            return (row + factor * change).to(row.dtype)
        if isinstance(factor, float):
            return row.add_(change, alpha=factor)
        return row.addcmul_(change.to(row.dtype), factor)

    def follow(self, n: int, state: torch.Tensor) -> torch.Tensor:
        self._take(n, state)
        return self._slot(n + 1).clone()


@dataclass(frozen=True)
class ExactWeights:
    """A lower triangular matrix [N, N], in the dtype and on the device of states."""

    matrix: torch.Tensor

    @cached_property
    def rows(self) -> list[torch.Tensor]:
        """Row n of the sum, [1, n], for n = 1, 2, …"""
        return [row[:, :n] for n, row in enumerate(self.matrix.split(1), 1)]


class ExactSum(BufferedSum):
    """Row n of a lower triangular matrix [N, N] (its row n−1) over a preallocated contiguous history.

    All states are needed for every row: a position is the history itself.
    """

    def __init__(self, weights: ExactWeights, state: torch.Tensor) -> None:
        self._weights, self._matrix = weights, weights.matrix
        self.n_rows = len(self._matrix)
        is_small = self.n_rows * state.numel() * state.element_size() <= _SMALL_HISTORY
        self._levels = (1,) if is_small else (64, 8, 1)
        layout = memory_format(state)
        self._flat = buffer(state, self.n_rows + 1, state.numel())
        self._history = rows_as_states(self._flat, state.shape, layout)
        self._slots = self._history.unbind(0)
        # Then a row is one operation; autocast would take a part in it.
        self._by_rows = (
            is_small and layout is torch.contiguous_format and not torch.is_autocast_enabled(state.device.type)
        )

    def position(self, n: int) -> tuple[torch.Tensor, ...]:
        return (fresh_alias(self._history),)

    def first(self, state: torch.Tensor) -> torch.Tensor:
        self._rows = self._flat.split(1)
        return fresh_alias(self._slots[0]).copy_(state)

    def follow(self, n: int, state: torch.Tensor) -> torch.Tensor:
        if not self._by_rows:
            return super().follow(n, state)
        self._slots[n].copy_(state)
        return torch.mm(self._weights.rows[n], self._flat[: n + 1]).view_as(state)

    def resume(self, n: int, state: torch.Tensor, *position: torch.Tensor) -> None:
        """Later states may be missing in the history, where a pass was broken off."""
        start, (history,), self._rows = 0, position, self._flat.split(1)
        for size in self._levels:
            begin = n - n % size
            self._history[start:begin].copy_(history[start:begin])
            if begin < n:  # all of a block that began before, by the same product, to the same bits
                self._pull(begin, begin + size, start, begin)
            start = begin

    def _take(self, n: int, state: torch.Tensor) -> None:
        self._slots[n].copy_(state)

    def _slot(self, n: int) -> torch.Tensor:
        if self._by_rows:
            torch.mm(self._weights.rows[n - 1], self._flat[:n], out=self._rows[n])
            return self._slots[n].data  # a fresh alias, without a call
        start = 0
        for size in self._levels:
            if n % size == 0:
                self._pull(n, n + size, start, n)
            start = n - n % size
        return fresh_alias(self._slots[n])

    def _pull(self, n: int, end: int, start: int, stop: int) -> None:
        """Bring states start … stop−1 into rows n … end−1, as many as there are: untouched memory where start is 0."""
        if start == stop:
            return
        weights = self._matrix[n - 1 : end - 1, start:stop]
        if start == 0:
            torch.mm(weights, self._flat[:stop], out=self._flat[n:end])
        else:
            self._flat[n:end].addmm_(weights, self._flat[start:stop])


def fresh_alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a new tensor with its own version counter.

    Autograd then does not mistake the filling of later rows of a buffer for a change of this one. Each caller gets an
    alias of its own: a node of the graph takes hold of the tensor it returns, and the sum must not hold on to that.
    """
    return tensor.data


def buffer(like: torch.Tensor, *size: int) -> torch.Tensor:
    """Uninitialized memory that counts how often it is written into, which tensors made in inference mode do not."""
    if not torch.is_inference_mode_enabled():
        return like.new_empty(size)
    with torch.inference_mode(False):
        return like.new_empty(size)
