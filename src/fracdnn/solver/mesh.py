"""Time grids."""

from dataclasses import dataclass

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.validation import check_count, check_positive


@dataclass(frozen=True)
class Grid:
    """Times of the nodes: from 0 in float64, as func sees them, and the step's length where steps are equal.

    After the nodes `restarts`, where func has jumped, steps continue nothing.
    """

    elapsed: torch.Tensor
    clock: torch.Tensor
    step: torch.Tensor | None = None
    restarts: frozenset[int] = frozenset()

    @property
    def n_steps(self) -> int:
        """N, for N + 1 nodes."""
        return len(self.elapsed) - 1


@dataclass(frozen=True)
class FoundGrid:
    """Nodes as shares of the pieces they lie in, and how many steps were tried in vain.

    `restarts` are the nodes after which a step knows nothing of those before.
    """

    pieces: torch.Tensor
    shares: torch.Tensor
    restarts: frozenset[int]
    n_rejected: int


def graded_mesh(T: float, n: int, grading: float = 1.0) -> torch.Tensor:
    """t_j = T (j/n)^grading for j = 0, …, n, float64: fine near 0 where solutions behave like t^order.

    A grading of 1 is uniform; with 1/order the explicit L1 scheme is of first order at all times, t = 0 included, for a
    solution like t^order (tested at order 0.5).
    """
    T = check_positive(T, "T", remedy="T is the final time")
    n = check_count(n, "n", minimum=1)
    grading = check_positive(grading, "grading")
    if grading < 1:
        raise InvalidArgumentError(f"grading must be at least 1, got {grading}; 1 is uniform, larger is finer near 0")
    times = T * torch.linspace(0, 1, n + 1, dtype=torch.float64) ** grading
    if not bool((times.diff() > 0).all()):
        raise InvalidArgumentError(
            f"grading must leave the steps above the smallest float, got {grading} with n={n}; use a smaller grading"
        )
    return times
