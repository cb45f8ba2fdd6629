"""Random linear equations of several terms with bounded solutions: none is refused, and looser tolerances agree.

Orders from 0 to 2 with positive coefficients: on the imaginary axis each term of fractional order has a positive
imaginary part, so that no mode ever grows. `python -m tests.campaign.test_multi_term COUNT SEED` prints one line each.
"""

import math
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch

from fracdnn.solver import MultiTerm
from tests.campaign.budget import cases, full, say_tried, seed_of

_MOST_TURNS = 300.0  # of the fastest oscillation over the span: each takes about one panel


@dataclass(frozen=True)
class Equation:
    orders: list[float]
    coefficients: list[float]
    initial: list[float]
    frequency: float
    span: float
    rtol: float

    def solve(self, rtol: float) -> torch.Tensor:
        """Return y at a tenth of the span and at its end."""
        equation = MultiTerm(self.orders, self.coefficients, lambda t, lower: 1.0 + torch.cos(self.frequency * t))
        times = [0.0, 0.1 * self.span, self.span]
        return equation.solve(self.initial, times, rtol=rtol, atol=1e-2 * rtol)[1:]


def draw(random: np.random.Generator, longest: float = 5e3) -> Equation:
    """Draw two to six terms, a span of 10 to 5,000 and a relative tolerance of 1e-3 to 1e-10."""
    span, highest = (
        10.0 ** random.uniform(1.0, math.log10(longest)),
        random.choice([1.0, 2.0, random.uniform(0.3, 2.0)]),
    )
    fractional = sorted(set(np.round(random.uniform(0.05, highest - 0.05, random.integers(1, 5)), 2).tolist()))
    orders = [*fractional, float(highest), 0.0]
    slowest = min(1.0, 2.0 * math.pi * _MOST_TURNS / span)
    # In units of time 1/slowest, each term has a coefficient of about 1.
    coefficients = [10.0 ** random.uniform(-1.0, 1.0) * slowest**-order for order in orders]
    initial = random.normal(size=math.ceil(highest)) * slowest ** np.arange(math.ceil(highest))
    return Equation(
        orders,
        coefficients,
        initial.tolist(),
        slowest * random.uniform(0.1, 1.0),
        span,
        10.0 ** random.uniform(-10, -3),
    )


@torch.no_grad()
def error_of(equation: Equation) -> float:
    """Return the difference from a solve with a tenth of the tolerance, or 1e-11, in tolerances."""
    found, finer = (equation.solve(rtol) for rtol in (equation.rtol, max(0.1 * equation.rtol, 1e-11)))
    return float(((found - finer).abs() / (equation.rtol * (1e-2 + finer.abs()))).max())


def test_none_is_refused():
    count = cases(2, 300)
    random = np.random.default_rng(seed_of("multi-term"))
    for _ in range(count):
        equation = draw(random, longest=5e3 if full() else 30.0)
        assert error_of(equation) <= 10.0, equation
    say_tried("equations of several terms", count)


if __name__ == "__main__":
    source = np.random.default_rng(int(sys.argv[2]))
    for number in range(int(sys.argv[1])):
        drawn, begin = draw(source), time.perf_counter()
        try:
            told = f"{error_of(drawn):.2g} tolerances"
        except Exception as error:  # every refusal is a finding
            told = f"REFUSED {error}"
        print(number, f"{time.perf_counter() - begin:.1f} s", told, drawn, flush=True)
