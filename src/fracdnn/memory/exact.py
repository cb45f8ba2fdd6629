"""The history sum, blocked: a matrix product per block of rows, so that the history is read a few times, not N times.

Rows are cut into nested blocks (64, inside them 16, 4 and single rows). When a block begins, the sum over all older
states of the enclosing block is brought in for all its rows by one matrix product. Every pair of a row and an older
state is met on exactly one level.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch

from fracdnn.memory.sums import HistorySum, memory_format, rows_as_states

# Below this many bytes of history it stays in cache and one product per row is fastest.
_SMALL_HISTORY = 2**20


class BlockedSum(HistorySum):
    """A sum whose states lie in buffers of `capacity` rows, so that products take many of them at once."""

    def __init__(self, state: torch.Tensor, n_rows: int, capacity: int) -> None:
        self.n_rows, self._capacity = n_rows, capacity
        self._shape, self._format, self._size = state.shape, memory_format(state), state.numel()
        self._like = state.new_empty(0)
        self._before = self._states = self._like  # buffers
        self._slots: tuple[torch.Tensor, ...] = ()

    def _open_block(self, n: int) -> None:
        """A buffer for x_n, x_{n+1}, …"""
        self._before = self._states
        self._states = buffer(self._like, min(self._capacity, self.n_rows + 1 - n), self._size)
        self._slots = self._as_states(self._states).unbind(0)

    def _as_states(self, rows: torch.Tensor) -> torch.Tensor:
        return rows_as_states(rows, self._shape, self._format)


class BufferedSum(BlockedSum):
    """A sum by matrix products, whose rows are computed where the states will be stored, so that nothing is copied."""

    _rows: tuple[torch.Tensor, ...]  # of the buffer, each as a matrix of one row

    @abstractmethod
    def _row(self, n: int) -> torch.Tensor:
        """Row n in the place of x_n, as a new alias."""

    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        if change.layout is not torch.strided:  # torch would add a sparse one at another place of the buffer
            change = change.to_dense()
        row = self._row(n)
        if n == self.n_rows:  # apart, so that it does not keep the buffers alive
            return (row + factor * change).to(row.dtype)
        if isinstance(factor, float):
            return row.add_(change, alpha=factor)
        return row.addcmul_(change.to(row.dtype), factor)

    def follow(self, n: int, state: torch.Tensor) -> torch.Tensor:
        if n:
            self._slots[n % self._capacity].copy_(state)
        else:
            self.first(state)
        return self._row(n + 1).clone()

    def _open_block(self, n: int) -> None:
        super()._open_block(n)
        self._rows = self._states.split(1)


@dataclass(frozen=True, eq=False)
class ExactWeights:
    """A lower triangular matrix [N, N], in the dtype and on the device of states."""

    matrix: torch.Tensor

    @cached_property
    def rows(self) -> list[torch.Tensor]:
        """Row n of the sum, [1, n], for n = 1, 2, …"""
        return [row[:, :n] for n, row in enumerate(self.matrix.split(1), 1)]


class ExactSum(BufferedSum):
    """Row n of a lower triangular matrix [N, N] (its row n−1) over one buffer for all states.

    All states are needed for every row: a position is the history itself.
    """

    def __init__(self, weights: ExactWeights, state: torch.Tensor) -> None:
        n_rows = len(weights.matrix)
        super().__init__(state, n_rows, n_rows + 1)
        self._weights = weights
        is_small = n_rows * state.numel() * state.element_size() <= _SMALL_HISTORY
        self._levels = () if is_small else (64, 16, 4)

    def position(self, n: int) -> tuple[torch.Tensor, ...]:
        return (self._as_states(fresh_alias(self._states)),)

    def first(self, state: torch.Tensor) -> torch.Tensor:
        self._open_block(0)
        return fresh_alias(self._slots[0]).copy_(state)

    def resume(self, n: int, state: torch.Tensor, *position: torch.Tensor) -> None:
        """Later states may be missing in the history, where a pass was broken off."""
        self._open_block(0)
        start, states, (history,) = 0, self._as_states(self._states), position
        for size in (*self._levels, 1):
            begin = n - n % size
            states[start:begin].copy_(history[start:begin])
            if start < begin < n:  # all of a block that began before, by the same product, to the same bits
                self._pull(begin, size, start)
            start = begin

    def stored(self, n: int, state: torch.Tensor) -> torch.Tensor:
        return self._slots[n]

    def _row(self, n: int) -> torch.Tensor:
        start = 0  # older states have been brought in
        for size in self._levels:
            if start < n and n % size == 0:
                self._pull(n, size, start)
            start = n - n % size
        if start == 0:
            torch.mm(self._weights.rows[n - 1], self._states[:n], out=self._rows[n])
        elif start < n:
            self._rows[n].addmm_(self._weights.rows[n - 1][:, start:], self._states[start:n])
        return self._slots[n].data  # a fresh alias, without a call

    def _pull(self, n: int, size: int, start: int) -> None:
        """Bring states start … n−1 into rows n … n + size − 1, as many as there are: untouched if start is 0."""
        weights, rows = self._weights.matrix[n - 1 : n - 1 + size, start:n], self._states[n : n + size]
        if start == 0:
            torch.mm(weights, self._states[:n], out=rows)
        else:
            rows.addmm_(weights, self._states[start:n])


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
