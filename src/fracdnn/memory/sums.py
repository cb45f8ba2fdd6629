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
