"""Whether adaptive grids meet tolerances, and what they cost: six problems, the table of docs/solver.md.

    python -m benchmarks.adaptive

The error is the largest at five times, in units of atol + rtol · max |u| with atol = rtol/10. For "adams" the steps are
held against the fewest, on any grid of fixed steps, that reach the error which was reached: about two minutes.
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
STEP_RTOLS = (1e-3, 1e-4, 1e-5)
LARGEST_GRADING = 8.0


@dataclass(frozen=True)
class Problem:
    """A solve to a final time, in float64, and what its solution is."""

    name: str
    solve: Callable[..., Solution]
    T: float
    order: float  # the smallest of its components
    exact: Callable[[torch.Tensor], torch.Tensor]

    @cached_property
    def t(self) -> torch.Tensor:
        return torch.linspace(0, self.T, 6, dtype=FLOAT64)

    @cached_property
    def _solution(self) -> torch.Tensor:
        return self.exact(self.t)

    @torch.no_grad()
    def measured(self, unit: float, **way: Any) -> tuple[float, Solution]:
        """The error in tolerances of that `unit`, and the solve."""
        found = self.solve(self.t, info=True, **way)
        allowed = unit / 10 + unit * self._solution.abs().amax(0)
        return float(((found.states - self._solution).abs() / allowed).max()), found

    def adaptive(self, rtol: float, method: str = "auto") -> tuple[float, Solution]:
        return self.measured(rtol, method=method, rtol=rtol, atol=rtol / 10)

    def fewest_steps(self, rtol: float, error: float, method: str, most: int) -> float:
        """Of equal steps and graded ones, that reach an error; infinite where `most` are not enough."""
        gradings = {1.0, 1.0 / self.order, 2.0 / self.order}
        chosen = [grading for grading in gradings if 1.0 <= grading <= LARGEST_GRADING]
        return min(self._fewest(rtol, error, method, most, grading) for grading in chosen)

    def _fewest(self, rtol: float, error: float, method: str, most: int, grading: float) -> float:
        def reached(n: int) -> bool:
            try:
                return self.measured(rtol, method=method, n_steps=n, options={"grading": grading})[0] <= error
            except ArithmeticError:  # an explicit method with steps that are too long
                return False

        few, many = 1, max(most // 8, 2)
        while not reached(many):
            few, many = many, math.ceil(1.5 * many)
            if many > most:
                return math.inf
        while many - few > max(1, 0.03 * few):
            middle = (few + many) // 2
            few, many = (few, middle) if reached(middle) else (middle, many)
        return many


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

    return Problem(f"P1, order {order}", solve, 1.0, order, power_sum_solution(order))


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
    Problem("P6, rate 4, order 0.5", _relaxation, 1.0, 0.5, lambda t: mittag_leffler(-4.0 * t.sqrt(), 0.5)),
    Problem("P7, order 1.8", _charging, 1.0, 1.8, lambda t: t**1.8 * mittag_leffler(-(t**1.8), 1.8, 2.8)),
    Problem("Bagley and Torvik's", _plate, 2.0, 0.5, torch.square),
    Problem(
        "Brusselator, orders 0.8 and 0.7",
        _brusselator,
        5.0,
        0.7,
        lambda t: _brusselator(t, rtol=1e-12, atol=1e-13, info=True).states,
    ),
)


def main() -> None:
    torch.set_num_threads(1)
    print("| problem | rtol 1e-3 | 1e-5 | 1e-7 | 1e-9 | `adams`, 1e-3 | 1e-4 | 1e-5 |")
    print(f"| --- |{' --- |' * len(RTOLS + STEP_RTOLS)}")
    for problem in SIX:
        row = []
        for rtol in RTOLS:
            error, found = problem.adaptive(rtol)
            row.append(f"{error:.2g}, {found.n_accepted}")
        for rtol in STEP_RTOLS:
            error, found = problem.adaptive(rtol, "adams")
            fewest = problem.fewest_steps(rtol, error, "adams", most=4 * found.n_accepted)
            row.append(f"{error:.2g}, {found.n_accepted} ({found.n_accepted / fewest:.2f})")
        print(f"| {problem.name} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
