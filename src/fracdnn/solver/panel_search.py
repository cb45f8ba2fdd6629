"""Find panels of such lengths that the slopes on them are polynomials, up to a tolerance; see `adaptive`."""

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
import torch

from fracdnn.caputo.modes import kernel_modes
from fracdnn.exceptions import NotConvergedError, NotFiniteError
from fracdnn.solver.adaptive import Search, Tolerances
from fracdnn.solver.arrays import Array, cast, library, norm
from fracdnn.solver.collocation import Collocation, Panel
from fracdnn.solver.convergence import sizes
from fracdnn.solver.coupled import DENSE
from fracdnn.solver.grids import Spacing
from fracdnn.solver.panels import MODES_TOLERANCE, Weights, constant_weights
from fracdnn.solver.problem import Problem
from fracdnn.tracing import being_transformed

_POINTS = 8  # of a panel on a grid that was asked for
_SHORTEST = 1e-13  # of panels that may be tried, in spans
# Of the first panel: in times that its slope would take to undo the state, and in spans.
_FIRST, _SHORTEST_FIRST, _LONGEST_FIRST = 0.45, 1e-3, 0.1
_ENOUGH = 3e-3  # of the tolerance, for iterates
# What the tails of Legendre coefficients become in the solution: they oscillate, so that little of their integral is
# left; and memory keeps more of a state's error than the state itself. Measured on the problems of docs/solver.md.
_OF_SLOPES, _OF_STATES = 0.02, 4.0


class PanelSearch(Search):
    """Panels of such lengths that the Legendre coefficients of the slopes on them have died out.

    `outputs` are times from the begin, increasing, at which the solution is noted on the way, for a solve without a
    gradient; with one, the panels are walked over again.
    """

    growth = 3.0
    slope_at_begin = False

    def __init__(
        self,
        problem: Problem,
        count: int,
        times: torch.Tensor,
        clock: torch.Tensor,
        spacing: Spacing,
        outputs: torch.Tensor | None,
    ) -> None:
        span = float((times[-1] - times[0]).detach())
        super().__init__(problem, times[0].detach(), span, spacing)
        shortest = _SHORTEST * min(float((times[1] - times[0]).detach()), span)
        weights = _weights(problem, count, shortest, span)
        enough = _Enough(self.tolerances, 8.0 * torch.finfo(problem.value.dtype).eps)
        self._scheme = Collocation(problem, weights, times[0].detach(), clock.dtype, enough=enough)
        self._memory = self._scheme.start()
        places = self._scheme.points.places
        self._to_begin = self._scheme.points.values_at(0.0 * places[:1])
        self._mass = self.mass.numpy() if self._scheme.in_numpy else self.mass
        orders = problem.orders.detach().unsqueeze(-1)
        self._span, self._orders = span, orders.numpy() if self._scheme.in_numpy else orders
        self._growing = (self._orders - 1.0).clip(min=0.0)
        self._panel: Panel | None = None
        self._end, self._restarted = 0.0, False
        self._outputs = None if outputs is None else (outputs, outputs.tolist())
        self.guesses: list[torch.Tensor] = []  # for a walk over the same panels
        self.states = [problem.value for time in (self._outputs or ((), ()))[1] if time <= 0.0]

    @property
    def power(self) -> float:
        return float(self._scheme.points.count)

    def first_step(self, span: float) -> float:
        """As long as the slope at the begin would take to undo the state."""
        if self.now > 0.0:
            return super().first_step(span)
        value, orders = self.problem.value, self.problem.orders.tolist()
        size, speed = norm(value), norm(self.problem.packed_slope(self.begin.to(self._scheme.clock_dtype), value))
        if not size or not speed:
            return _LONGEST_FIRST * span
        time = min((_FIRST * math.gamma(order + 1.0) * size / speed) ** (1.0 / order) for order in orders)
        return min(max(time, _SHORTEST_FIRST * span), _LONGEST_FIRST * span)

    def attempt(self, end: float) -> float:
        begin, length = self._scheme.time(self.now), self._scheme.time(end - self.now)
        guess, self._end = self._guess(length), end
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                self._panel = self._scheme.solve(self._memory, begin, length, guess)
        except (NotConvergedError, NotFiniteError):
            self._panel = None
            return math.inf
        slopes, states = self._scheme.tails(self._panel)
        # Where old errors die out, that of a state is the one of its own interpolation.
        grown = ((self._span - self.now) / (end - self.now)) ** self._growing  # where they grow, at the span's end
        of = library(states)
        error = of.minimum(_OF_SLOPES * self._mass * slopes, _OF_STATES * grown * states)
        error = of.maximum(error, self._of_jump(self._panel, end - self.now))
        return norm(error / self.tolerances.scale(self._panel.states))

    def _of_jump(self, panel: Panel, length: float) -> Array:
        """What a jump of func before the panel's first point would cost: slopes do not go on from the panel before."""
        if self._memory.slopes is None or self._restarted:
            return 0.0 * self._mass
        gap = cast(self._to_begin, panel.slopes) @ panel.slopes - self._memory.slopes[:, -1:]
        return self._mass_of(length * float(self._scheme.points.places[0])) * abs(gap[:, 0])

    def _mass_of(self, length: float) -> Array:
        """The integral of the kernel over a panel, seen from where it is largest."""
        orders, rest = self._orders, self._span - self.now
        near, far = length**orders, orders * length * rest ** (orders - 1.0)
        return self._mass / self._span**orders * library(orders).where(orders > 1.0, far, near)

    def _guess(self, length: Array) -> Array | None:
        """The states of a panel that was tried and is too long, on its first part; after a jump those at its begin."""
        if self._restarted:
            like = self._scheme.points.places[:, None]
            return self._memory.state[:, None] + 0.0 * cast(like, self._memory.state)
        if self._panel is None or float(self._panel.begin) != self.now:
            return None
        weights = self._scheme.points.values_at(self._scheme.points.places * (length / self._panel.length))
        return cast(weights, self._panel.states) @ self._panel.states

    @property
    def state(self) -> torch.Tensor:
        return self._scheme.tensor(self._memory.state)

    def accept(self) -> None:
        self._restarted = False
        if self._panel is None:
            return
        if self._outputs is None:
            self.guesses.append(self._scheme.tensor(self._panel.states))
        else:
            self._note(self._panel, *self._outputs)
        self._memory = self._scheme.close(self._memory, self._panel)

    def restart(self) -> None:
        self._restarted = True

    def _note(self, panel: Panel, outputs: torch.Tensor, numbers: list[float]) -> None:
        first, last = len(self.states), bisect_right(numbers, self._end)
        if last > first:
            to_end = numbers[last - 1] == self._end
            self.states += self._scheme.found(self._memory, panel, outputs[first:last], to_end=to_end)


@dataclass(frozen=True)
class _Enough:
    """Which change of states [G, S, d] is small enough; [G, d]."""

    tolerances: Tolerances
    rounding: float

    def __call__(self, states: Array) -> Array:
        of = library(states)
        return of.maximum(_ENOUGH * self.tolerances.scale(states), self.rounding * sizes(states))


def _weights(problem: Problem, count: int, shortest: float, span: float) -> Weights:
    """Of NumPy's where a panel is small; for times rounded outward, so that like solves share them."""
    shortest, longest = 2.0 ** math.floor(math.log2(shortest)), 2.0 ** math.ceil(math.log2(span))
    orders = problem.orders.detach()
    if problem.value.device.type == "cpu" and count * problem.value.numel() <= DENSE and not being_transformed():
        return constant_weights(tuple(orders.tolist()), count, shortest, longest)
    return Weights.of(orders, count, kernel_modes(shortest, longest, MODES_TOLERANCE))


def count_for(spacing: Spacing) -> int:
    """Points of a panel: more of them where the tolerance is small."""
    return min(max(round(3.0 - math.log10(spacing.smallest_rtol)), 3), 12) if spacing.kind == "adaptive" else _POINTS
