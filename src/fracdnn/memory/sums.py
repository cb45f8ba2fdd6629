"""What every implementation of the history sum offers, so that a chain of layers can use any of them."""

from abc import ABC, abstractmethod

import torch


class Continuation(ABC):
    """What makes states one after the other."""

    @abstractmethod
    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        """x_n = row n + factor · change."""


class HistorySum(Continuation):
    """A causal weighted sum over a growing sequence of states x_0, x_1, …: row n is Σ_{k<n} M_nk x_k.

    Use: `first(x_0)`, then for n = 1, 2, … either `advance(n, …)`, which makes x_n of row n, or `row(n)`, after which
    `append(n, x_n)` takes whatever was made of it. The last row may also be asked for by itself.
    """

    @abstractmethod
    def first(self, state: torch.Tensor) -> torch.Tensor:
        """Take x_0; returns it where it is kept."""

    @abstractmethod
    def row(self, n: int) -> torch.Tensor:
        """The memory Σ_{k<n} M_nk x_k, a tensor of its own; rows come in order."""

    @abstractmethod
    def append(self, n: int, state: torch.Tensor) -> None:
        """Take x_n, which nobody may write into until the sum is done with."""

    @abstractmethod
    def advance_scaled(self, n: int, change: torch.Tensor, scale: float | torch.Tensor) -> torch.Tensor:
        """Make x_n = row n + change and return scale · x_n; x_n itself is for later rows only."""


class ResumableSum(HistorySum):
    """A forward sum that can be gone on with from where it stood at some row, see `MemoryPlan.resumed_sum`."""

    @property
    @abstractmethod
    def block(self) -> int:
        """Positions are to be had before rows that are multiples of it."""

    @property
    @abstractmethod
    def states_of_a_position(self) -> int:
        """How many states' worth of memory a position takes."""

    @abstractmethod
    def position(self, n: int) -> tuple[torch.Tensor, ...]:
        """What row n and later ones need of the states before; nobody writes into it."""


class FusedSum(ResumableSum):
    """A sum that takes a state and makes the next row in one operation."""

    @abstractmethod
    def exchange(
        self, n: int, state: torch.Tensor, scale: float | torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Take x_n, for n = 0 as `first` does; returns row n + 1, and scale · x_n in a dtype."""


class WideSum(ResumableSum):
    """A sum for states of less than single precision: weights, sums and states in it are float32.

    Rounded to 16 bits, a hundred weights that should sum to 1 are some percent off.
    """

    def __init__(self, inner: HistorySum, dtype: torch.dtype) -> None:
        self._inner, self._dtype = inner, dtype
        self._lost: float | torch.Tensor = 0.0

    @property
    def block(self) -> int:
        return self._resumable.block

    @property
    def states_of_a_position(self) -> int:
        return self._resumable.states_of_a_position

    def position(self, n: int) -> tuple[torch.Tensor, ...]:
        return self._resumable.position(n)

    @property
    def _resumable(self) -> ResumableSum:
        assert isinstance(self._inner, ResumableSum)
        return self._inner

    def first(self, state: torch.Tensor) -> torch.Tensor:
        return self._inner.first(state.to(torch.float32)).to(self._dtype)

    def row(self, n: int) -> torch.Tensor:
        row = self._inner.row(n)
        rounded = row.to(self._dtype)
        self._lost = row - rounded
        return rounded

    def append(self, n: int, state: torch.Tensor) -> None:
        self._inner.append(n, state + self._lost)  # what the row, of which the state was made, lost on its way out

    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        return self._inner.advance(n, change.to(torch.float32), factor).to(self._dtype)

    def advance_scaled(self, n: int, change: torch.Tensor, scale: float | torch.Tensor) -> torch.Tensor:
        return self._inner.advance_scaled(n, change.to(torch.float32), scale).to(self._dtype)


def memory_format(state: torch.Tensor) -> torch.memory_format:
    """Channels last where a state is so, which later layers can then count on; else contiguous."""
    if not state.is_contiguous():
        for n_axes, channels_last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
            if state.dim() == n_axes and state.is_contiguous(memory_format=channels_last):
                return channels_last
    return torch.contiguous_format


def rows_as_states(rows: torch.Tensor, shape: torch.Size, layout: torch.memory_format) -> torch.Tensor:
    """A matrix of states, one a row, as [rows, *shape]; the numbers of a row are in the order of the memory format."""
    if layout is torch.contiguous_format:
        return rows.view(len(rows), *shape)
    n, channels, *space = shape
    return rows.view(len(rows), n, *space, channels).movedim(-1, 2)


def wide(dtype: torch.dtype) -> torch.dtype:
    """What memory is computed in: never less than single precision."""
    return torch.promote_types(dtype, torch.float32)
