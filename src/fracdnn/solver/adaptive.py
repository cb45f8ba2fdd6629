"""Find a grid whose error meets a tolerance; the solve itself is then one on a known grid, with an exact gradient.

The solution is an integral of slopes, so its error is the integral of the error with which slopes are interpolated.
That is what is controlled. Up to the first time that is asked for, errors count less, since little of them is left by
then; so a start like t^order takes few steps.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from fracdnn.caputo.weights import gamma
from fracdnn.exceptions import NotConvergedError
from fracdnn.solver.arrays import Array, library
from fracdnn.solver.grids import Spacing
from fracdnn.solver.problem import Problem

_SAFETY, _SHRINK = 0.9, 0.2
_FORGETTING = 0.75  # the power of time with which errors count up to the first output
_FIRST_SHRINK = 1e-3  # of a first step, which may have to become much shorter
_SMALLEST = 1e-14  # of a step, in spans
_MOST_STEPS = 100_000


@dataclass(frozen=True)
class FoundGrid:
    """Nodes as shares of the span, and how many steps were tried in vain."""

    shares: torch.Tensor
    n_rejected: int


class Search(ABC):
    """Steps one after the other, each tried before it is taken; times count from the begin."""

    growth: ClassVar[float]  # of a step, at most

    def __init__(self, problem: Problem, begin: torch.Tensor, span: float, spacing: Spacing) -> None:
        orders = problem.orders.detach()
        self.problem, self.begin, self.spacing = problem, begin, spacing
        # The integral of the kernel over the whole span: what an error of the slope can become in the solution.
        self.mass = (span**orders / gamma(orders + 1.0)).unsqueeze(-1)
        self.smallest_order = float(orders.min())
        self.now = 0.0

    @property
    @abstractmethod
    def power(self) -> float:
        """Of its length to which the error of a step that is not the first is proportional."""

    @property
    @abstractmethod
    def state(self) -> torch.Tensor:
        """At the end of the last step taken."""

    def first_step(self, span: float) -> float:
        """What to try first."""
        return 0.02 * span

    @abstractmethod
    def attempt(self, end: float) -> float:
        """The error of a step to that time, in tolerances; infinite or NaN where it cannot be made."""

    @abstractmethod
    def accept(self) -> None:
        """Take the step that was tried last."""

    def scale(self, states: Array) -> Array:
        """The error allowed for states [G, S, d] of these sizes; [G, d]."""
        return self.spacing.atol + self.spacing.rtol * library(states).amax(abs(states), 1)


@torch.no_grad()
def find_grid(search: Search, span: float, first_output: float) -> FoundGrid:
    """A grid for the span, where the solution is asked for from `first_output` on."""
    ends, end = [0.0], 0.0
    step, rejected, growth = min(first_output, search.first_step(span)), 0, search.growth
    while ends[-1] < span:
        rest = span - ends[-1]
        if step > 0.9 * rest:
            step = rest
        elif step > 0.5 * rest:
            step = rest / 2.0
        if len(ends) > _MOST_STEPS:
            raise NotConvergedError(
                f"the solve must take at most {_MOST_STEPS} steps, got no further than "
                f"t = {float(search.begin) + ends[-1]:.6g} with them; use method='collocation', larger rtol and atol, "
                f"or n_steps="
            )
        if step < _SMALLEST * span:
            for time in (ends[-1], end):  # the last that was taken, and the last that was tried
                search.problem.check_slope(search.begin + time, search.state)
            raise NotConvergedError(
                f"the step became shorter than {_SMALLEST:g} of the span at t = {float(search.begin) + ends[-1]:.6g} "
                f"after {len(ends) - 1} steps; the solution may end there: "
                f"ask for earlier times only, or for larger rtol and atol"
            )
        end = span if step == rest else ends[-1] + step
        first = len(ends) == 1
        error = search.attempt(end) * min(end / first_output, 1.0) ** _FORGETTING
        power = _FORGETTING + search.smallest_order if first else search.power
        if error <= 1.0:
            search.accept()
            search.now = end
            ends.append(end)
            step *= min(max(_factor(error, power), _SHRINK), growth)
            growth = search.growth
        else:
            rejected += 1
            growth = 1.0
            step *= min(max(_factor(error, power), _FIRST_SHRINK if first else _SHRINK), 0.9)
    shares = torch.tensor(ends, dtype=torch.float64, device=search.begin.device) / span
    shares[-1] = 1.0
    return FoundGrid(shares, rejected)


def _factor(error: float, power: float) -> float:
    if not math.isfinite(error):
        return 0.0
    return _SAFETY * error ** (-1.0 / power) if error > 0 else math.inf
