"""The compressed history sum for states on the CPU, by compiled operations: what `compressed` computes, faster.

A state is a tensor of its own, as in a network without memory, and is freed as soon as nobody needs it: the sums go by
addresses. `fracdnn.kernels.history` holds the operations and says why they are these two.
"""

from typing import Any

import numpy as np
import torch

from fracdnn.kernels import loading
from fracdnn.kernels.tensors import NUMPY_TYPES, is_readable
from fracdnn.memory.compressed import CompressedWeights
from fracdnn.memory.exact import buffer, fresh_alias
from fracdnn.memory.sums import ResumableSum, memory_format, rows_as_states
from fracdnn.tracing import in_dispatch_mode

# Smaller states are not worth a second thread.
_SMALLEST_SHARED = 2**14
_PIECE_UNIT = 64
# Numbers between states that lie one after the other: some lines of the cache.
_GAP = 80


def can_take(state: torch.Tensor) -> bool:
    """Whether the compiled sum can take states like this one."""
    plain = is_readable(state) and state.dtype in NUMPY_TYPES and not in_dispatch_mode()
    return plain and loading.history(state.dtype) is not None


class CompiledCompressedSum(ResumableSum):
    """Rows 1 … N with the far states as exponentials; see `fracdnn.memory.compressed` for the arithmetic.

    The table holds the far states (one more than exponentials: the first state of a forward sum, the running sum of a
    transposed one), then the states of the previous block, then those of the block itself.
    """

    def __init__(self, weights: CompressedWeights, state: torch.Tensor, n_rows: int, *, transposed: bool) -> None:
        from fracdnn.kernels.threads import Call

        kernel: Any = loading.history(state.dtype)
        self.n_rows = n_rows
        self._dtype, self._shape, self._size = state.dtype, state.shape, state.numel()
        self._format = memory_format(state)
        self._like = state.new_empty(0)
        kind, threads = NUMPY_TYPES[state.dtype], torch.get_num_threads() if self._size >= _SMALLEST_SHARED else 1
        # One piece a thread, as torch itself divides a state: what a thread has in its cache stays its own.
        self._piece = -(-self._size // (threads * _PIECE_UNIT)) * _PIECE_UNIT
        self._begin = Call(kernel.begin(kind), kernel.BEGIN, threads)
        self._finish = Call(kernel.finish(kind), kernel.FINISH, threads)
        self._transposed, self._block = transposed, weights.block
        block = weights.block
        self._far = self._rows_apart(len(weights.decay) + 1).zero_()
        self._base = self._rows_apart(block)
        self._base_table = _Table(_addresses(self._base))
        self._table = _Table(np.append(_addresses(self._far), np.zeros(2 * block, np.int64)))
        self._near = self._table.place(len(self._far) + block)
        self._states: list[torch.Tensor] = []  # of two blocks
        self._ring: tuple[torch.Tensor, ...] = ()
        self._oldest, self._own = weights.oldest.numpy(), weights.own
        nothing, one = self._like.new_zeros(1, block), self._like.new_ones(1, 1)
        self._starting = torch.cat([weights.far, nothing.T, weights.previous], dim=1).numpy()
        self._absorb = torch.cat([weights.absorb, nothing]).numpy()
        self._decay = torch.cat([weights.decay, one])
        if not transposed:  # the first state's weight is not h_m
            self._own = weights.own.clone()
            known = weights.oldest[: block - 1]
            self._own[1 : len(known) + 1, 0] = known
        self._usual_own = weights.own

    @property
    def block(self) -> int:
        return self._block

    @property
    def states_of_a_position(self) -> int:
        return len(self._far) + self._block

    def position(self, n: int) -> tuple[torch.Tensor, ...]:
        if n == 1:
            return ()
        before = self._as_states(buffer(self._like, self._block, self._size))
        torch.stack(self._states[-self._block :], out=before)
        if n == self._block:
            before[0].zero_()
        return self._as_states(buffer(self._like, *self._far.shape).copy_(self._far)), before

    def resume(self, n: int, far: torch.Tensor, before: torch.Tensor) -> None:
        """Go on with row n from a position."""
        self._as_states(self._far).copy_(far)
        for k, state in enumerate(before.detach(), n - self._block):
            self._keep(k, self._readable(state))
        if n > self._block:
            self._own = self._usual_own

    def first(self, state: torch.Tensor) -> torch.Tensor:
        first = self._new_state().copy_(state)
        self._keep(0, fresh_alias(first))
        if not self._transposed:
            self._as_states(self._far[-1:])[0].copy_(first)
        return first

    def row(self, n: int) -> torch.Tensor:
        row = self._new_state()
        self._write(n, row, 0, 0.0)
        return row

    def append(self, n: int, state: torch.Tensor) -> None:
        self._keep(n, self._readable(state))

    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        step = self._readable(change)
        state = self._new_state()
        self._write(n, state, step.data_ptr(), float(factor))
        self._keep(n, fresh_alias(state))
        return state

    def advance_scaled(self, n: int, change: torch.Tensor, scale: float | torch.Tensor) -> torch.Tensor:
        step, scaled, state = self._readable(change), self._new_state(), self._private_state(n)
        self._write(n, state, step.data_ptr(), 1.0, scaled.data_ptr(), float(scale))
        self._keep(n, state)
        return scaled

    def _keep(self, n: int, state: torch.Tensor) -> None:
        self._states.append(state)
        self._table.entries[n % self._block - self._block] = state.data_ptr()

    def _private_state(self, n: int) -> torch.Tensor:
        if not self._ring:
            self._ring = self._rows_apart(2 * self._block).unbind(0)
        return self._ring[n % (2 * self._block)]

    def _write(self, n: int, state: torch.Tensor, step: int, factor: float, scaled: int = 0, scale: float = 0) -> None:
        within = n % self._block
        if n == self.n_rows and self._transposed:
            # All of it with weights a_{N−1−k}: what is not in the running sum yet is the latest block.
            within = (n - 1) % self._block + 1
            row = self._oldest[:within][::-1].copy()
            base, weights = self._far[-1].data_ptr(), row.ctypes.data
        else:
            if within == 0:
                self._start_block(n)
            base = int(self._base_table.entries[within]) if n >= self._block else 0
            weights = self._own.data_ptr() + within * self._block * self._own.element_size()
        self._finish(
            self._size, self._piece, state.data_ptr(), base, within, self._near, weights, step, scaled, factor, scale
        )

    def _start_block(self, n: int) -> None:
        """The rows of a new block from all that is older; the far states then take in the block before it."""
        del self._states[: -self._block]
        self._table.entries[-2 * self._block : -self._block] = self._table.entries[-self._block :]
        n_rows, n_far = min(self._block, self.n_rows + 1 - n), len(self._far)
        starting, absorb = self._starting, self._absorb
        if self._transposed:
            # The last row is Σ_k a_{N−1−k} x_k: gathered block by block.
            absorb[-1] = self._oldest[self.n_rows - n : self.n_rows - n + self._block][::-1]
        else:
            starting[:n_rows, n_far - 1] = self._oldest[n - 1 : n - 1 + n_rows]
            if n == self._block:  # the first state counts through the far states
                starting, absorb = starting.copy(), absorb.copy()
                starting[:, n_far] = 0
                absorb[:, 0] = 0
                self._own = self._usual_own
        rows = (n_rows, self._base_table.place(0), 0)
        sources = (n_far + self._block, self._table.place(0), starting.ctypes.data, n_far + self._block)
        self._begin(self._size, self._piece, *rows, *sources, n_far, absorb.ctypes.data, self._decay.data_ptr())

    def _new_state(self) -> torch.Tensor:
        if self._format is torch.contiguous_format:
            return buffer(self._like, *self._shape)
        return self._as_states(buffer(self._like, 1, self._size))[0]

    def _as_states(self, rows: torch.Tensor) -> torch.Tensor:
        return rows_as_states(rows, self._shape, self._format)

    def _rows_apart(self, n: int) -> torch.Tensor:
        """Room for n states, a little apart: at distances that are powers of 2 they would meet in the cache."""
        return buffer(self._like, n, self._size + _GAP)[:, : self._size]

    def _readable(self, change: torch.Tensor) -> torch.Tensor:
        """The same numbers where the operations can read them."""
        if not is_readable(change):
            change = torch.zeros(self._shape, dtype=self._dtype) + change
        if change.dtype is self._dtype and change.is_contiguous(memory_format=self._format) and not change.is_neg():
            return change
        return change.detach().to(self._dtype).contiguous(memory_format=self._format).resolve_neg()


class _Table:
    """Addresses one after the other, which an operation is told by the place of the first."""

    def __init__(self, entries: np.ndarray) -> None:
        self.entries = entries
        self._start = entries.ctypes.data

    def place(self, n: int) -> int:
        return self._start + n * self.entries.itemsize


def _addresses(rows: torch.Tensor) -> np.ndarray:
    """Where each row of a matrix begins."""
    return rows.data_ptr() + rows.stride(0) * rows.element_size() * np.arange(len(rows), dtype=np.int64)
