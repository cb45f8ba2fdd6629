"""The paper's Example: d_t^0.5 u = −4u, u(0) = 0.5, whose solution is 0.5 E_0.5(−4 t^0.5)."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch

from fracdnn.caputo import mittag_leffler
from fracdnn.datasets import Perfume
from fracdnn.experiments.part import Numbers, Part, Row, Table, Tick
from fracdnn.report.figures import solution_figure
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
    numerical = fdeint(lambda t, u: example.rate * u, y0, t, order=example.order, method="l1", grid="given")
    exact = example.initial * mittag_leffler(example.rate * t**example.order, example.order)
    return Solution(step_size, t, numerical, exact)


def run(example: Example, perfume: Perfume | None, tick: Tick) -> Numbers:
    solutions = [solve(example, step_size) for step_size in example.step_sizes]
    tick()
    shown = next(s for s in solutions if s.step_size == example.step_size)
    return {
        "t": shown.t.tolist(),
        "numerical": shown.numerical.tolist(),
        "exact": shown.exact.tolist(),
        "step_sizes": list(example.step_sizes),
        "at_end": [float(s.numerical[-1]) for s in solutions],
        "errors": [s.error_at_end for s in solutions],
    }


def rows(numbers: Numbers) -> list[Row]:
    shown = numbers["step_sizes"].index(0.005) if 0.005 in numbers["step_sizes"] else -1
    step, error = numbers["step_sizes"][shown], numbers["errors"][shown]
    text = f"{numbers['at_end'][shown]:.6f} (exact {numbers['exact'][-1]:.6f}, error {error:.1e})"
    return [
        Row(f"u(1) with step {step:g}", "curves coincide", text),
        Row("order of convergence at t = 1", "-", ", ".join(f"{o:.2f}" for o in _orders(numbers))),
    ]


def tables(numbers: Numbers) -> list[Table]:
    orders = ["-", *(f"{order:.2f}" for order in _orders(numbers))]
    columns = zip(numbers["step_sizes"], numbers["at_end"], numbers["errors"], orders, strict=True)
    lines = [
        [f"{step:g}", f"{value:.6f}", f"{numbers['exact'][-1]:.6f}", f"{error:.2e}", order]
        for step, value, error, order in columns
    ]
    headings = ("step size", "u(1), L1 scheme", "u(1), exact", "error", "order")
    return [Table("d_t^0.5 u = -4u, u(0) = 0.5", headings, lines)]


def _orders(numbers: Numbers) -> list[float]:
    """Slopes of the error from one step size to the next."""
    pairs = list(zip(numbers["step_sizes"], numbers["errors"], strict=True))
    return [
        math.log(error / finer_error) / math.log(step / finer)
        for (step, error), (finer, finer_error) in pairwise(pairs)
    ]


PART = Part(
    name="mittag-leffler",
    title="The example d_t^0.5 u = -4u",
    full=Example(),
    quick=Example(step_sizes=(0.02, 0.01, 0.005)),
    units=lambda settings: 1,
    run=run,
    figure=solution_figure,
    rows=rows,
    tables=tables,
)
