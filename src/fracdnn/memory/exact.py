"""The history sum in blocks: a matrix product per block of rows, so that the history is read a few times, not N times.

Rows are cut into nested blocks (64, inside them 16, 4 and single rows). When a block begins, the sum over all older
states of the enclosing block is added to all its rows by one matrix product. Every pair of a row and an older state is
met on exactly one level.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from fracdnn.memory.sums import HistorySum, memory_format, rows_as_states

# A smaller history, in bytes, stays in the processor's cache: there one product per row is fastest.
_SMALL_HISTORY = 2**20
# Rows of a block that is released as a whole once its steps have been recomputed.
_RELEASED_ROWS = 16


class BlockedSum(HistorySum):
    """A sum whose states lie in buffers of `capacity` rows, so that products take many of them at once."""

    def __init__(self, state: torch.Tensor, n_rows: int, capacity: int) -> None:
        self.n_rows, self._capacity = n_rows, capacity
        self._shape, self._format, self._size = state.shape, memory_format(state), state.numel()
        self._like = state.new_empty(0)
        self._before = self._states = self._like  # buffers
        self._slots: tuple[torch.Tensor, ...] = ()

    def _open_block(self, n: int) -> None:
        """Make a buffer for x_n, x_{n+1}, …"""
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
        """Return row n in the place of x_n, as a new alias."""

    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        if change.layout is not torch.strided:  # torch would add a sparse one at another place of the buffer
            change = change.to_dense()
        row = self._row(n)
        if n == self.n_rows:  # a tensor of its own, so that the result does not keep the buffers alive
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


@dataclass(frozen=True)
class Keep:
    """The way in which an exact sum keeps its states.

    `released`: in separate blocks, each of which is released when nothing else refers to it, so that multipliers can
    take the place of states in the backward pass. `dtype`: finished blocks are converted to it, where it is not None.
    """

    released: bool = False
    dtype: torch.dtype | None = None


class Block:
    """States of one block: a buffer while it is filled, later perhaps a copy in a dtype of fewer bits."""

    def __init__(self, begin: int, rows: torch.Tensor) -> None:
        self.begin, self.rows = begin, rows


class ExactSum(BufferedSum):
    """Row n of a lower triangular matrix [N, N] (its row n−1) over blocks that hold all states, mostly a single one."""

    keeps_all_states = True

    def __init__(self, weights: ExactWeights, state: torch.Tensor, keep: Keep) -> None:
        n_rows = len(weights.matrix)
        is_small = n_rows * state.numel() * state.element_size() <= _SMALL_HISTORY
        in_blocks = keep.dtype is not None or (keep.released and not is_small)
        super().__init__(state, n_rows, _RELEASED_ROWS if in_blocks else n_rows + 1)
        self._weights, self._dtype = weights, keep.dtype
        self._levels = (4,) if in_blocks else () if is_small else (64, 16, 4)
        self._blocks: list[Block] = []

    def first(self, state: torch.Tensor) -> torch.Tensor:
        self._open_block(0)
        return fresh_alias(self._slots[0]).copy_(state)

    def stored(self, n: int, state: torch.Tensor) -> torch.Tensor:
        in_block = n >= self._blocks[-1].begin
        return self._slots[n % self._capacity] if in_block else state

    def reader(self, n: int) -> Callable[[], torch.Tensor]:
        block, as_states, dtype = self._blocks[-1], self._as_states, self._like.dtype
        row = n - block.begin
        return lambda: as_states(block.rows[row : row + 1].to(dtype))[0]

    def _open_block(self, n: int) -> None:
        if self._dtype is not None and n:
            self._blocks[-1].rows = self._states.to(self._dtype)
        super()._open_block(n)
        self._before = self._like  # `_blocks` has it
        self._blocks.append(Block(n, self._states))
        for block in self._blocks[:-1]:
            weights = self._weights.matrix[
                n - 1 : n - 1 + len(self._states), block.begin : block.begin + self._capacity
            ]
            states = block.rows.to(self._like.dtype)
            if block.begin == 0:
                torch.mm(weights, states, out=self._states)
            else:
                self._states.addmm_(weights, states)

    def _row(self, n: int) -> torch.Tensor:
        begin = n - n % self._capacity
        if n == begin:
            self._open_block(n)
        start = begin  # older states have been added
        for size in self._levels:
            if start < n and n % size == 0:
                self._pull(n, size, start)
            start = n - n % size
        weights = self._weights.rows[n - 1]
        if start == 0:
            torch.mm(weights, self._states[:n], out=self._rows[n])
        elif start < n:
            self._rows[n - begin].addmm_(weights[:, start:], self._states[start - begin : n - begin])
        return self._slots[n - begin].data  # a fresh alias, without a call

    def _pull(self, n: int, size: int, start: int) -> None:
        """Add states start … n−1 to rows n … n + size − 1, as many as there are; overwrite these if start is 0."""
        begin = n - n % self._capacity
        weights = self._weights.matrix[n - 1 : n - 1 + size, start:n]
        rows = self._states[n - begin : n - begin + size]
        states = self._states[start - begin : n - begin]
        if start == 0:
            torch.mm(weights[: len(rows)], states, out=rows)
        else:
            rows.addmm_(weights[: len(rows)], states)


def fresh_alias(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same memory as a new tensor with its own version counter.

    Autograd then does not mistake the filling of later rows of a buffer for a change of this one. Each caller gets an
    alias of its own: a node of the graph takes hold of the tensor it returns, and the sum must not hold on to that.
    """
    return tensor.data


def buffer(like: torch.Tensor, *size: int) -> torch.Tensor:
    """Return uninitialized memory that counts how often it is written into, also in inference mode."""
    if not torch.is_inference_mode_enabled():
        return like.new_empty(size)
    with torch.inference_mode(False):
        return like.new_empty(size)
