"""Find panels of such lengths that the slopes on them are polynomials, up to a tolerance; see `adaptive`."""

import math
import sys
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fracdnn.caputo.modes import kernel_modes
from fracdnn.exceptions import NotConvergedError, NotFiniteError
from fracdnn.solver.arrays import Array, cast, library, norm
from fracdnn.solver.collocation import Collocation
from fracdnn.solver.convergence import sizes
from fracdnn.solver.coupled import SMALL, CoupledSolver
from fracdnn.solver.grids import Spacing, smallest
from fracdnn.solver.panel_errors import STEEP_START, STEEPEST, Enough, PanelErrors
from fracdnn.solver.panels import MODES_TOLERANCE, Weights, constant_weights
from fracdnn.solver.problem import Problem
from fracdnn.solver.search import Fading, Search
from fracdnn.tracing import being_transformed

_POINTS = 8  # of a panel on a grid that was requested
_SHORTEST = 1e-13  # of panels that may be tried, in spans
_OF_MOVING = 10.0  # what the error is of states that func's noise keeps moving


class PanelSearch(Search):
    """Panels of such lengths that the Legendre coefficients of the slopes on them have died out.

    `outputs` are times from the start, increasing, at which the solution is noted on the way, for a solve without a
    gradient; with one, the panels are walked over again. With `sensitive`, derivatives are to be as good as states.
    """

    growth = 3.0
    slope_at_begin = False
    listens = True

    def __init__(
        self,
        problem: Problem,
        count: int,
        times: torch.Tensor,
        clock: torch.Tensor,
        spacing: Spacing,
        outputs: torch.Tensor | None,
        *,
        sensitive: bool = False,
    ) -> None:
        span = float((times[-1] - times[0]).detach())
        super().__init__(problem, times[0].detach(), spacing)
        shortest = _SHORTEST * min(float((times[1] - times[0]).detach()), span)
        weights = _weights(problem, count, shortest, span)
        self._enough = Enough(self.tolerances, 8.0 * torch.finfo(problem.value.dtype).eps)
        self._scheme = scheme = Collocation(problem, weights, times[0].detach(), clock.dtype, enough=self._enough)
        after, (self._span,) = scheme.solver.after, scheme.numbers([span])
        self._errors = PanelErrors(scheme, self.tolerances, self._span, after, sensitive=sensitive)
        self._memory = scheme.start()
        self._panel: Any = None
        self._end, self._restarted = 0.0, False
        self._origin = 0.0  # the last start or restart
        self._outputs = None if outputs is None else (outputs, outputs.tolist())
        self.guesses: list[torch.Tensor] = []  # for a walk over the same panels
        self._kept: dict[str, Any] = {}  # the same
        self.states = [problem.value for time in (self._outputs or ((), ()))[1] if time <= 0.0]

    @property
    def power(self) -> float:
        return float(len(self._scheme.points.places))

    def first_step(self, span: float) -> float:
        """As long as the slope at the start would take to undo the state, in the component that is quickest."""
        if self.now > 0.0:
            return super().first_step(span)
        times = self._errors.first_times(span)
        quickest = float(times.min()) if times.numel() else span
        if math.isnan(quickest):
            self.problem.check_slope(self.begin.to(self._scheme.clock_dtype), self.problem.value.detach())
        return quickest

    @np.errstate(all="ignore")  # what is not finite is no step
    def attempt(self, end: float, fading: Fading) -> float:
        scheme, solver, errors, orders = self._scheme, self._scheme.solver, self._errors, self._errors.orders
        first = self._memory.slopes is None or self._restarted
        begin, length, since = scheme.numbers([self.now, end - self.now, self.now - self._origin])
        guess, self._end, solver.noise = self._guess(length), end, self.noise
        if self.goal is None:
            self._enough.goal = None
        else:
            kept = errors.kept(*scheme.numbers([fading.wait, length]))
            self._enough.goal = self.goal * (length / self._span) ** (orders - 1.0) / kept
        try:
            self._panel = panel = scheme.solve(self._memory, begin, length, guess)
        except (NotConvergedError, NotFiniteError):
            self._panel = self.errors = self.misfit = None
            return math.inf
        unstable = fading.factor < 1.0 and solver.grows(orders, fading.wait + end - self.now)
        tails = scheme.tails(panel)
        tails = self.without_noise(tails[0], sizes(panel.slopes)), tails[1]
        *fadings, first, unstable = scheme.numbers([fading.factor, fading.wait, fading.part, first, unstable])
        self.errors = errors.judge(
            self._memory,
            panel,
            tails,
            Fading(*fadings),
            first=first > 0.0,
            unstable=unstable > 0.0,
            since=since,
            noise=self.noise,
            moving=0.0 if solver.moving is None else _OF_MOVING * solver.moving,
        )
        if self.goal is not None:
            self.errors = library(self.errors).maximum(self.errors, errors.left / self.goal)
        return norm(self.errors)

    def _guess(self, length: Array) -> Array | None:
        """The states of a panel that was tried and is too long, on its first part; after a jump those at its start."""
        places, state = self._scheme.points.places, self._memory.state
        if self._restarted:
            return state[:, None] + 0.0 * cast(places[:, None], state)
        if self._panel is None or float(self._panel.begin) != self.now:
            return None
        weights = self._scheme.points.values_at(places * (length / self._panel.length))
        return cast(weights, self._panel.states) @ self._panel.states

    @property
    def state(self) -> torch.Tensor:
        return self._scheme.tensor(self._memory.state)

    def accept(self) -> None:
        super().accept()
        errors = self._errors
        errors.spent, errors.largest = errors.spent + errors.left, errors.reached
        if self._outputs is None:
            self.guesses.append(self._scheme.tensor(self._panel.states))
            self._scheme.solver.keep(self._kept)
        else:
            outputs, numbers = self._outputs
            first, last = len(self.states), bisect_right(numbers, self._end)
            if last > first:
                to_end = numbers[last - 1] == self._end
                self.states += self._scheme.found(self._memory, self._panel, outputs[first:last], to_end=to_end)
        self._memory, self._restarted = self._scheme.close(self._memory, self._panel), False
        errors.reach = 0.0 * errors.reach
        if bool(errors.are_rounding().any()):
            largest = norm(errors.largest)
            raise NotConvergedError(
                f"atol must be {sys.float_info.epsilon * largest:.2g} or more where a state of size {largest:.3g} "
                f"falls as far as it has by t = {float(self.begin) + self._end:.6g}, got "
                f"{smallest(self.spacing.atol):.3g}, which is less than rounding leaves of it; pass a larger atol, "
                f"or solve for the state's logarithm"
            )

    def spent(self) -> float:
        return norm(self._errors.spent / self.tolerance_now())

    def tolerance_now(self) -> Array:
        return self.tolerances.scale(self._memory.state[:, None])

    def save(self) -> Callable[[], None]:
        errors, n_guesses, n_states = self._errors, len(self.guesses), len(self.states)
        known = self._memory, self._restarted, self._origin, self.now, errors.largest
        errors.spent = 0.0 * errors.spent

        def restore() -> None:
            self._memory, self._restarted, self._origin, self.now, errors.largest = known
            del self.guesses[n_guesses:], self.states[n_states:]
            errors.spent, errors.reach, self._panel = 0.0 * errors.spent, 0.0 * errors.reach, None

        return restore

    def about_start(self) -> str:
        steepness = norm(self._errors.steepness)
        if steepness <= STEEP_START:
            return ""
        if steepness >= STEEPEST:
            return "func grows at the start like 1/t or faster, so that no solution exists: check func, or start later"
        return (
            f"func grows at the start like t^-{steepness:.2g}: pass larger rtol and atol, or solve for what is left of "
            f"u without its singular part, a constant times t^(order - {steepness:.2g})"
        )

    def brief(self, solver: CoupledSolver) -> None:
        """Tell the solver of a walk over the same panels what has been found out about func."""
        solver.noise, solver.acceptable = self.noise, Enough(self.tolerances, 0.0)
        solver.is_stiff = self._scheme.solver.is_stiff
        solver.kept, self._kept = self._kept, {}

    def restart(self) -> None:
        self._restarted, self._origin = True, self.now


def _weights(problem: Problem, count: int, shortest: float, span: float) -> Weights:
    """Of NumPy's where a panel is small; for times rounded outward, so that like solves share them."""
    shortest, longest = 2.0 ** math.floor(math.log2(shortest)), 2.0 ** math.ceil(math.log2(span))
    orders = problem.orders.detach()
    if problem.value.device.type == "cpu" and count * problem.value.numel() <= SMALL and not being_transformed():
        return constant_weights(tuple(orders.tolist()), count, shortest, longest)
    return Weights.of(orders, count, kernel_modes(shortest, longest, MODES_TOLERANCE))


def count_for(spacing: Spacing) -> int:
    """Points of a panel: more of them where the tolerance is small."""
    return min(max(round(3.0 - math.log10(spacing.smallest_rtol)), 3), 12) if spacing.kind == "adaptive" else _POINTS
