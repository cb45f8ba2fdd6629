"""Whether gradients meet tolerances as well: the six problems of `adaptive`, a table of docs/solver.md.

    python -m benchmarks.adaptive_gradients

Func is taken at k u in place of u; the gradient is that of u(T) by k, at k = 1. It is held against the equation of its
own, d_t^order s = J(t, u) (s + u), solved at rtol 1e-12 without a gradient, with u as it is known or beside u: no
derivative of the solver's.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from benchmarks.adaptive import brusselator_func, power_sum_func, power_sum_solution
from fracdnn import fdeint
from fracdnn.solver import MultiTerm, Solution

FLOAT64 = torch.float64
RTOLS = (1e-3, 1e-5, 1e-7, 1e-9, 1e-10, 1e-11)
FINEST = {"rtol": 1e-12, "atol": 1e-13}
Field = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Problem:
    """d_t^order u = field(t, k u) from a start; the gradient of the sum of u(T) by k at k = 1."""

    name: str
    field: Field
    start: torch.Tensor
    order: Any
    T: float
    known: Callable[[torch.Tensor], torch.Tensor] | None = None  # the solution, where it is

    def solve(self, k: torch.Tensor, **way: Any) -> Solution:
        return fdeint(
            lambda t, u: self.field(t, k * u),
            self.start,
            [0.0, self.T],
            order=self.order,
            options=self._slope,
            info=True,
            **way,
        )

    @cached_property
    @torch.no_grad()
    def exact(self) -> float:
        """With v = s + u, which starts where u does: d_t^order v = field(t, u) + J(t, u) v."""

        def both(t: torch.Tensor, pair: torch.Tensor) -> torch.Tensor:
            u, v = pair.unbind(0) if self.known is None else (self.known(t).expand_as(self.start), pair[1])
            slope, along = torch.func.jvp(lambda u: self.field(t, u), (u,), (v,))
            return torch.stack([slope if self.known is None else 0.0 * slope, slope + along])

        start, slope = torch.stack([self.start, self.start]), self._slope
        end = fdeint(both, start, [0.0, self.T], order=self.order, options=slope, trajectory=False, **FINEST)
        u = end[0] if self.known is None else self.known(torch.tensor(self.T, dtype=FLOAT64))
        return float((end[1] - u).sum())

    @property
    def _slope(self) -> dict[str, float]:
        return {"slope": 0.0} if torch.as_tensor(self.order).max() > 1.0 else {}


class Plate(Problem):
    """Bagley and Torvik's: k is the coefficient of u, and the solution t²."""

    def solve(self, k: torch.Tensor, **way: Any) -> Solution:
        def input_at(t: torch.Tensor, lower: Any) -> torch.Tensor:
            return t**2 + 2 + 4 * (t / math.pi).sqrt()

        equation = MultiTerm([2.0, 1.5, 0.0], [torch.ones_like(k), torch.ones_like(k), k], input_at)
        return equation.solve((0.0, 0.0), [0.0, self.T], info=True, **way)

    @cached_property
    def exact(self) -> float:
        equation = MultiTerm([2.0, 1.5, 0.0], [1.0, 1.0, 1.0], lambda t, lower: -(t**2))
        with torch.no_grad():
            return float(equation.solve((0.0, 0.0), [0.0, self.T], **FINEST)[-1])


def _at(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=FLOAT64)


SIX = (
    Problem("P1, order 0.3", power_sum_func(0.3), _at(0.0), 0.3, 1.0, power_sum_solution(0.3)),
    Problem("P1, order 0.8", power_sum_func(0.8), _at(0.0), 0.8, 1.0, power_sum_solution(0.8)),
    Problem("P6, rate 4, order 0.5", lambda t, u: -4.0 * u, _at(1.0), 0.5, 1.0),
    Problem("P7, order 1.8", lambda t, u: 1.0 - u, _at(0.0), 1.8, 1.0),
    Plate("Bagley and Torvik's", lambda t, u: u, _at(0.0), 0.5, 2.0),
    Problem("Brusselator, orders 0.8 and 0.7", brusselator_func, _at(1.2, 2.8), _at(0.8, 0.7), 5.0),
)


def gradient_error(problem: Problem, rtol: float) -> tuple[float, Solution]:
    """In parts of rtol times the gradient, and the solve."""
    k = torch.ones((), dtype=FLOAT64, requires_grad=True)
    found = problem.solve(k, rtol=rtol, atol=rtol / 10)
    (gradient,) = torch.autograd.grad(found.states[-1].sum(), k)
    return abs(float(gradient) / problem.exact - 1.0) / rtol, found


def main() -> None:
    torch.set_num_threads(1)
    print(f"| problem | {' | '.join(f'rtol {rtol:.0e}' for rtol in RTOLS)} |".replace("e-0", "e-"))
    print(f"| --- |{' --- |' * len(RTOLS)}")
    for problem in SIX:
        errors = [gradient_error(problem, rtol) for rtol in RTOLS]
        print(
            f"| {problem.name} | {' | '.join(f'{error:.2g}, {found.n_accepted}' for error, found in errors)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
