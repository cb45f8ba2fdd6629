"""What every implementation of the history sum offers, so that a chain of layers can use any of them."""

from abc import ABC, abstractmethod

import torch


class HistorySum(ABC):
    """A causal weighted sum over a growing sequence of states x_0, x_1, …: row n is Σ_{k<n} M_nk x_k.

    Use: `first(x_0)`, then for n = 1, 2, … `advance(n, …)`, which makes x_n of row n. The last row may also be asked
    for by itself.
    """

    @abstractmethod
    def first(self, state: torch.Tensor) -> torch.Tensor:
        """Take x_0; returns it where it is kept."""

    @abstractmethod
    def row(self, n: int) -> torch.Tensor:
        """The memory Σ_{k<n} M_nk x_k; rows come in order."""

    @abstractmethod
    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        """x_n = row n + factor · change."""

    @abstractmethod
    def advance_scaled(self, n: int, change: torch.Tensor, scale: float | torch.Tensor) -> torch.Tensor:
        """Make x_n = row n + change and return scale · x_n; x_n itself is for later rows only."""


class BufferedSum(HistorySum):
    """A sum whose rows are computed where the states will be stored, so that nothing is copied."""

    n_rows: int

    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        if change.layout is not torch.strided:  # torch would add a sparse one at another place of the buffer
            change = change.to_dense()
        row = self.row(n)
        if n == self.n_rows:  # apart, so that it does not keep the buffers alive
            return (row + factor * change).to(row.dtype)
        if isinstance(factor, float):
            return row.add_(change, alpha=factor)
        return row.addcmul_(change.to(row.dtype), factor)

    def advance_scaled(self, n: int, change: torch.Tensor, scale: float | torch.Tensor) -> torch.Tensor:
        return scale * self.advance(n, change, 1.0)


def fresh_alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a new tensor with its own version counter.

    Autograd then does not mistake the filling of later rows of a buffer for a change of this one. Each caller gets an
    alias of its own: a node of the graph takes hold of the tensor it returns, and the sum must not hold on to that.
    """
    return tensor.data


def buffer(like: torch.Tensor, *size: int) -> torch.Tensor:
    """Uninitialised memory that counts how often it is written into, which tensors made in inference mode do not."""
    if not torch.is_inference_mode_enabled():
        return like.new_empty(size)
    with torch.inference_mode(False):
        return like.new_empty(size)
