"""The paper's Example: d_t^0.5 u = −4u, u(0) = 0.5, whose solution is 0.5 E_0.5(−4 t^0.5)."""

from dataclasses import dataclass

import torch

from fracdnn.caputo import mittag_leffler
from fracdnn.solver import fdeint, graded_mesh


@dataclass(frozen=True)
class Example:
    """Settings as printed in the paper; `step_sizes` adds coarser and finer ones to show the convergence."""

    order: float = 0.5
    rate: float = -4.0
    initial: float = 0.5
    final_time: float = 1.0
    step_size: float = 0.005
    step_sizes: tuple[float, ...] = (0.02, 0.01, 0.005, 0.0025)


@dataclass(frozen=True)
class Solution:
    """One numerical solution beside the exact one, at the same times."""

    step_size: float
    t: torch.Tensor
    numerical: torch.Tensor
    exact: torch.Tensor

    @property
    def error_at_end(self) -> float:
        return float((self.numerical[-1] - self.exact[-1]).abs())


def solve(example: Example, step_size: float) -> Solution:
    """The explicit L1 solution for one step size."""
    t = graded_mesh(example.final_time, round(example.final_time / step_size))
    y0 = torch.tensor(example.initial, dtype=torch.float64)
    numerical = fdeint(lambda t, u: example.rate * u, y0, t, order=example.order)
    exact = example.initial * mittag_leffler(example.rate * t**example.order, example.order)
    return Solution(step_size, t, numerical, exact)


def solve_all(example: Example) -> list[Solution]:
    """A solution for each step size, coarse to fine."""
    return [solve(example, step_size) for step_size in example.step_sizes]
