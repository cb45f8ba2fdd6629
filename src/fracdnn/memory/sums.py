"""What every implementation of the history sum offers, so that a chain of layers can use any of them."""

from abc import ABC, abstractmethod

import torch


class HistorySum(ABC):
    """A causal weighted sum over a growing sequence of states x_0, x_1, …: row n is Σ_{k<n} M_nk x_k.

    Use: `first(x_0)`, then for n = 1, 2, … `row(n)` and `fill(…)` of that row to turn it into x_n. The rows live
    where the states will, so a row is read and filled once and nothing is copied.
    """

    @abstractmethod
    def first(self, state: torch.Tensor) -> torch.Tensor:
        """Take x_0; returns it where it is kept."""

    @abstractmethod
    def row(self, n: int) -> torch.Tensor:
        """The memory Σ_{k<n} M_nk x_k, in the place of x_n; rows come in order."""


def fresh_alias(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory as a new tensor with its own version counter.

    Autograd then does not mistake the filling of later rows of a buffer for a change of this one. Each caller gets an
    alias of its own: a node of the graph takes hold of the tensor it returns, and the sum must not hold on to that.
    """
    return tensor.data


def buffer(like: torch.Tensor, *size: int) -> torch.Tensor:
    """Uninitialised memory, an ordinary tensor in inference mode too: those count how often they are written into."""
    with torch.inference_mode(False):
        return like.new_empty(*size)
