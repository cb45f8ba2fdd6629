"""Whether adaptive grids meet tolerances, and what they cost: six problems, the table of docs/solver.md.

    python -m benchmarks.adaptive

The error is the largest at five times, in units of atol + rtol · max |u| with atol = rtol/10.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from fracdnn import fdeint
from fracdnn.caputo import mittag_leffler
from fracdnn.solver import MultiTerm, Solution

FLOAT64 = torch.float64
RTOLS = (1e-3, 1e-5, 1e-7, 1e-9)


@dataclass(frozen=True)
class Problem:
    """A solve to a final time, in float64, and what its solution is."""

    name: str
    solve: Callable[..., Solution]
    T: float
    exact: Callable[[torch.Tensor], torch.Tensor]

    @cached_property
    def t(self) -> torch.Tensor:
        return torch.linspace(0, self.T, 6, dtype=FLOAT64)

    @cached_property
    def _solution(self) -> torch.Tensor:
        return self.exact(self.t)

    @torch.no_grad()
    def adaptive(self, rtol: float) -> tuple[float, Solution]:
        """The error in tolerances, and the solve."""
        found = self.solve(self.t, info=True, rtol=rtol, atol=rtol / 10)
        allowed = rtol / 10 + rtol * self._solution.abs().amax(0)
        return float(((found.states - self._solution).abs() / allowed).max()), found


def power_sum_func(order: float) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """P1 of Diethelm, Ford and Freed, 2004."""
    half = order / 2

    def func(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        forcing = (
            40320 / math.gamma(9 - order) * t ** (8 - order)
            - 3 * math.gamma(5 + half) / math.gamma(5 - half) * t ** (4 - half)
            + 2.25 * math.gamma(order + 1)
        )
        return forcing + (1.5 * t**half - t**4) ** 3 - y.abs() ** 1.5

    return func


def power_sum_solution(order: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: t**8 - 3 * t ** (4 + order / 2) + 2.25 * t**order


def power_sum(order: float) -> Problem:
    func = power_sum_func(order)

    def solve(t: torch.Tensor, **way: Any) -> Solution:
        return fdeint(func, 0.0, t, order=order, **way)

    return Problem(f"P1, order {order}", solve, 1.0, power_sum_solution(order))


def _relaxation(t: torch.Tensor, **way: Any) -> Solution:
    return fdeint(lambda t, u: -4.0 * u, 1.0, t, order=0.5, **way)


def _charging(t: torch.Tensor, **way: Any) -> Solution:
    return fdeint(lambda t, u: 1.0 - u, (0.0, 0.0), t, order=1.8, **way)


def _plate(t: torch.Tensor, **way: Any) -> Solution:
    equation = MultiTerm([2.0, 1.5, 0.0], [1.0, 1.0, 1.0], lambda t, lower: t**2 + 2 + 4 * (t / math.pi).sqrt())
    return equation.solve((0.0, 0.0), t, **way)


def brusselator_func(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    x, y = u.unbind(-1)
    return torch.stack([1 - 4 * x + x * x * y, 3 * x - x * x * y], dim=-1)


def _brusselator(t: torch.Tensor, **way: Any) -> Solution:
    return fdeint(brusselator_func, [1.2, 2.8], t, order=torch.tensor([0.8, 0.7], dtype=FLOAT64), **way)


SIX = (
    power_sum(0.3),
    power_sum(0.8),
    Problem("P6, rate 4, order 0.5", _relaxation, 1.0, lambda t: mittag_leffler(-4.0 * t.sqrt(), 0.5)),
    Problem("P7, order 1.8", _charging, 1.0, lambda t: t**1.8 * mittag_leffler(-(t**1.8), 1.8, 2.8)),
    Problem("Bagley and Torvik's", _plate, 2.0, torch.square),
    Problem(
        "Brusselator, orders 0.8 and 0.7",
        _brusselator,
        5.0,
        lambda t: _brusselator(t, rtol=1e-12, atol=1e-13, info=True).states,
    ),
)


def main() -> None:
    torch.set_num_threads(1)
    print("| problem | rtol 1e-3 | 1e-5 | 1e-7 | 1e-9 |")
    print(f"| --- |{' --- |' * len(RTOLS)}")
    for problem in SIX:
        row = []
        for rtol in RTOLS:
            error, found = problem.adaptive(rtol)
            row.append(f"{error:.2g}, {found.n_accepted}")
        print(f"| {problem.name} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
