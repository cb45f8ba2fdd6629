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
    """The same memory with its own version counter.

    Autograd then does not mistake the filling of later rows of a buffer for a change of this one.
    """
    return tensor.data
