"""What every implementation of the history sum offers, so that a chain of layers can use any of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch

from fracdnn.tracing import is_batch_of_cotangents

_BLOCK = 16  # of a sum in plain operations


class HistorySum(ABC):
    """A causal weighted sum over a growing sequence of states x_0, x_1, …: row n is Σ_{k<n} M_nk x_k.

    Either `first(x_0)` and then `advance(n, …)` for n = 1, 2, …, which makes x_n of row n; or `follow(n, x_n)` or
    `exchange(n, x_n, …)` for n = 0, 1, …, which give row n + 1, of which others make the next state.
    """

    # Positions are to be had before rows that are multiples of `block`, and take so many states' worth of memory.
    block: int = 1
    states_of_a_position: int = 1

    @abstractmethod
    def first(self, state: torch.Tensor) -> torch.Tensor:
        """Take x_0; returns it where it is kept."""

    @abstractmethod
    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        """x_n = row n + factor · change, which nobody may write into until the sum is done with."""

    @abstractmethod
    def follow(self, n: int, state: torch.Tensor) -> torch.Tensor:
        """Take x_n; returns row n + 1."""

    def stored(self, n: int, state: torch.Tensor) -> torch.Tensor:
        """The latest state x_n where it is kept, next to others; the state itself where none is."""
        return state

    def exchange(
        self, n: int, state: torch.Tensor, scale: float | torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take x_n; returns row n + 1, and scale · x_n in a dtype: tensors of their own."""
        product = state * scale
        return self.follow(n, state), product if product.dtype is dtype else product.to(dtype)

    # Whether all states are kept, so that a step can be computed again at its state, by `reader`.
    keeps_all_states: bool = False

    def reader(self, n: int) -> Callable[[], torch.Tensor]:
        """Return a function that reads the latest state x_n later; it keeps the block of the state, nothing else."""
        raise NotImplementedError

    def position(self, n: int) -> tuple[torch.Tensor, ...]:
        """What row n and later ones need of the states before the last; nobody writes into it."""
        return ()

    def resume(self, n: int, state: torch.Tensor, *position: torch.Tensor) -> None:
        """Go on with row n of a forward sum, from the last state and the position there."""
        self.first(state)


class MemorylessSum(HistorySum):
    """Order 1: row n is x_{n−1}; without skip connections it is 0. So x_{n−1} is all that a position needs."""

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


class FunctionalSum(HistorySum):
    """Row n of a lower triangular matrix in plain operations, as compilers, transforms and second derivatives need it.

    Blocked like `exact`, without buffers that are written twice. Always by the full weights, whatever the depth.
    """

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


class WideSum(HistorySum):
    """A sum for states of less than single precision: weights, sums and states in it are float32.

    Rounded to 16 bits, a hundred weights that should sum to 1 are some percent off.
    """

    def __init__(self, inner: HistorySum, dtype: torch.dtype) -> None:
        self._inner, self._dtype = inner, dtype
        self.block, self.states_of_a_position = inner.block, inner.states_of_a_position
        self.keeps_all_states = inner.keeps_all_states
        self.position, self.reader = inner.position, inner.reader  # type: ignore[method-assign]
        self._lost: float | torch.Tensor = 0.0

    def resume(self, n: int, state: torch.Tensor, *position: torch.Tensor) -> None:
        self._inner.resume(n, state.to(torch.float32), *position)

    def first(self, state: torch.Tensor) -> torch.Tensor:
        return self._inner.first(state.to(torch.float32)).to(self._dtype)

    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        return self._inner.advance(n, change.to(torch.float32), factor).to(self._dtype)

    def follow(self, n: int, state: torch.Tensor) -> torch.Tensor:
        # With what the row, of which the state was made, lost on its way out.
        row = self._inner.follow(n, state + self._lost)
        rounded = row.to(self._dtype)
        self._lost = row - rounded
        return rounded


def memory_format(state: torch.Tensor) -> torch.memory_format:
    """Channels last where a state is so, which later layers can then count on; else contiguous."""
    if not state.is_contiguous():
        for n_axes, channels_last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
            if state.dim() == n_axes and state.is_contiguous(memory_format=channels_last):
                return channels_last
    return torch.contiguous_format


def as_rows(states: Sequence[torch.Tensor]) -> torch.Tensor:
    """States as a matrix, one per row, in single precision at least: sums of their products cancel.

    A view if they lie one after the other in memory, as the states of a sum do.
    """
    first, length = states[0], states[0].numel()
    plain = length and type(first) is torch.Tensor and not (torch.is_grad_enabled() or is_batch_of_cotangents(first))
    if plain and first.is_contiguous() and first.dtype is wide(first.dtype):
        storage, begin, step = first.untyped_storage(), first.data_ptr(), length * first.element_size()
        end = begin + step * len(states)
        in_storage = end <= storage.data_ptr() + storage.nbytes()
        if in_storage and [*range(begin, end, step)] == [state.data_ptr() for state in states]:
            return first.as_strided((len(states), length), (length, 1))
    rows = torch.stack(list(states)).reshape(len(states), states[0].numel())
    return rows.to(wide(rows.dtype))


def rows_as_states(rows: torch.Tensor, shape: torch.Size, layout: torch.memory_format) -> torch.Tensor:
    """A matrix of states, one a row, as [rows, *shape]; the numbers of a row are in the order of the memory format."""
    if layout is torch.contiguous_format:
        return rows.view(len(rows), *shape)
    n, channels, *space = shape
    return rows.view(len(rows), n, *space, channels).movedim(-1, 2)


def wide(dtype: torch.dtype) -> torch.dtype:
    """What memory is computed in: never less than single precision."""
    return torch.promote_types(dtype, torch.float32)
