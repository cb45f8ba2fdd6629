"""Find panels of such lengths that the slopes on them are polynomials, up to a tolerance; see `adaptive`."""

import math
import sys
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fracdnn.caputo.modes import kernel_modes
from fracdnn.caputo.weights import gamma
from fracdnn.exceptions import NotConvergedError, NotFiniteError
from fracdnn.solver.arrays import Array, as_numpy, cast, library, norm
from fracdnn.solver.collocation import Collocation, Panel, PanelScheme
from fracdnn.solver.convergence import sizes
from fracdnn.solver.coupled import SMALL, CoupledSolver
from fracdnn.solver.grids import Spacing, smallest
from fracdnn.solver.jacobians import slopes_along
from fracdnn.solver.panels import MODES_TOLERANCE, Weights, constant_weights
from fracdnn.solver.problem import Problem
from fracdnn.solver.search import JUMP_CAUTION, Fading, Search, Tolerances
from fracdnn.solver.starts import STEEPEST, missed_integral, times_before
from fracdnn.tracing import being_transformed

_POINTS = 8  # of a panel on a grid that was requested
_SHORTEST = 1e-13  # of panels that may be tried, in spans
# Of the first panel: in times that its slope would take to undo the state, and in spans.
FIRST, SHORTEST_FIRST, LONGEST_FIRST = 0.45, 1e-3, 0.1
_ENOUGH = 3e-3  # of the tolerance, for iterates
# What the tails of Legendre coefficients become in the solution: they oscillate, so that little of their integral is
# left; and memory keeps more of a state's error than the state itself. Measured on the problems of docs/solver.md.
OF_SLOPES, OF_STATES = 0.02, 4.0
_CONTINUED = 10.0  # what noise can become in the slopes at a panel's start
CONTINUITY = 0.002  # of the distance between a panel's start and what its states make of it, that is error
MOST_BROKEN, BROKEN_TOLERANCES = 0.2, 3.0  # of it, in states and in tolerances, with which a panel is no solution
OF_ROOT, SAME_ROOT = 0.1, 1e-6  # of it, that is error where the equations are unstable, and of states, that is none
_OF_MOVING = 10.0  # what the error is of states that func's noise keeps moving
OF_ROUNDING = 0.3  # of the largest state, that a tolerance has to be
# Lengths of a panel, in times since the start, from which on derivatives may be less smooth there than the solution.
NEAR_START = 0.2
STEEP_START = 0.05  # power of 1/t from which func is said to grow toward a start


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
        super().__init__(problem, times[0].detach(), span, spacing)
        shortest = _SHORTEST * min(float((times[1] - times[0]).detach()), span)
        weights = _weights(problem, count, shortest, span)
        self._enough = Enough(self.tolerances, 8.0 * torch.finfo(problem.value.dtype).eps)
        self._scheme = Collocation(problem, weights, times[0].detach(), clock.dtype, enough=self._enough)
        self._memory = self._scheme.start()
        self._mass = self.mass.numpy() if self._scheme.in_numpy else self.mass
        orders = problem.orders.detach().unsqueeze(-1)
        self._span, self._orders = span, orders.numpy() if self._scheme.in_numpy else orders
        self._growing = (self._orders - 1.0).clip(min=0.0)
        self._panel: Panel | None = None
        self._end, self._restarted, self._sensitive = 0.0, False, sensitive
        self._origin = 0.0  # the last start or restart
        # Of a start: the largest states that were expected of it, and the power of time with which func grows to it.
        # The largest states so far, with those of the panel tried last, and the error allowed for the latter.
        self._largest = self._reached = self._allowed = sizes(self._memory.state[:, None])
        self._reach = 0.0 * self._largest
        self._steepness = 0.0
        # What is left, at the next output, of the error of the panel tried last, and of those taken since `save`.
        self._left = self._spent = self._reach
        self._outputs = None if outputs is None else (outputs, outputs.tolist())
        self.guesses: list[torch.Tensor] = []  # for a walk over the same panels
        self._kept: dict[str, Any] = {}  # the same
        self.states = [problem.value for time in (self._outputs or ((), ()))[1] if time <= 0.0]

    @property
    def power(self) -> float:
        return float(self._scheme.points.count)

    def first_step(self, span: float) -> float:
        """As long as the slope at the start would take to undo the state, in the component that is quickest."""
        if self.now > 0.0:
            return super().first_step(span)
        time, value = self.begin.to(self._scheme.clock_dtype), self.problem.value.detach()
        slope = self.problem.packed_slope(time, value)
        if bool(slope.isnan().any()):
            self.problem.check_slope(time, value)
        order = self.problem.orders.detach().unsqueeze(-1)
        times = (FIRST * gamma(order + 1.0) * value.abs() / slope.abs()) ** (1.0 / order)
        counts = (value != 0) & (slope != 0) & slope.isfinite()
        quickest = float(times[counts].min()) if bool(counts.any()) else math.inf
        return min(max(quickest, SHORTEST_FIRST * span), LONGEST_FIRST * span)

    @np.errstate(all="ignore")  # what is not finite is no step
    def attempt(self, end: float, fading: Fading) -> float:
        begin, length = self._scheme.numbers([self.now, end - self.now])
        guess, self._end = self._guess(length), end
        self._scheme.solver.noise, part = self.noise, (end - self.now) / self._span
        kept = max(fading.wait / self._span, part) ** (self._orders - 1.0)  # of an error of slopes, at the output
        self._enough.goal = None if self.goal is None else _ENOUGH * self.goal * part ** (self._orders - 1.0) / kept
        try:
            self._panel = self._scheme.solve(self._memory, begin, length, guess)
        except (NotConvergedError, NotFiniteError):
            self._panel = self.errors = self.misfit = None
            return math.inf
        unstable = fading.factor < 1.0 and self._scheme.solver.grows(self._orders, fading.wait + end - self.now)
        if unstable:  # errors do not fade, they grow
            fading = Fading(1.0, 0.0, fading.part)
        slopes, states = self._scheme.tails(self._panel)
        # Where old errors die out, that of a state is the one of its own interpolation.
        grown = ((self._span - self.now) / (end - self.now)) ** self._growing  # where they grow, at the span's end
        of = library(states)
        error = of.minimum(
            fading.part * OF_SLOPES * self._mass * self.without_noise(slopes, sizes(self._panel.slopes)),
            OF_STATES * grown * states,
        )
        # Where func jumps on the panel, states do not go on however short it is; but memory forgets them.
        local = 1.0 if fading.part == 1.0 else (JUMP_CAUTION * kept * part ** (1.0 - self._orders)).clip(max=1.0)
        broken = local * self._broken(self._panel, end - self.now)
        error = of.maximum(error, self._of_jump(self._panel, end - self.now, local, broken))
        self._left = self._orders * part * kept * error
        error = fading.factor * error
        if self._scheme.solver.moving is not None:
            error = error + _OF_MOVING * self._scheme.solver.moving
        largest = sizes(self._panel.states)
        self._reached = of.maximum(self._largest, largest)
        if self._memory.slopes is None or self._restarted:
            self._reach = of.maximum(self._reach, largest)
            if norm(error / self.tolerances.scale(largest[:, None])) <= 1.0:
                of_start = self._of_start(self._panel, fading)
                error, self._left = of.maximum(error, of_start), of.maximum(self._left, of_start)
                if unstable:  # a state that is not the start's may be another root
                    gap = self._gap(self._panel)
                    error = of.maximum(error, of.where(gap > SAME_ROOT * self._reach, OF_ROOT * gap, 0.0))
                if self._steepness > STEEP_START:  # from it the solution grows, or falls: the first output will tell
                    largest = self._reach
        self._allowed = scale = self.tolerances.scale(largest[:, None])
        is_near = end - self.now > NEAR_START * (self.now - self._origin)
        if self._sensitive and is_near and norm(error / scale) <= 1.0:
            elapsed = torch.as_tensor(begin + length * self._scheme.points.places)
            clock = (self.begin + elapsed).to(self._scheme.clock_dtype).unbind(0)
            of_slopes = of_derivatives(self._scheme, self._scheme.solver.after, clock, self._panel, self._mass)
            error = of.maximum(error, fading.factor * of_slopes)
        # What does not go on at all is no solution, however little of it will be left.
        allowed = MOST_BROKEN * sizes(self._panel.states) + BROKEN_TOLERANCES * scale
        self.errors = of.maximum(error / scale, broken / allowed)
        if self.goal is not None:
            self.errors = of.maximum(self.errors, self._left / self.goal)
        return norm(self.errors)

    def _of_start(self, panel: Panel, fading: Fading) -> Array:
        """What is left, at the first output, of what func does before the panel's first point."""
        scheme, length, orders = self._scheme, float(panel.length), self._orders
        interval = length * float(scheme.points.places[0])
        base, first = self._memory.state[:, None], panel.states[:, :1]
        finest = 16.0 * torch.finfo(scheme.clock_dtype).eps * abs(float(self.begin) + self.now)

        missed, self._steepness = 0.0 * first[:, 0], 0.0
        if times := times_before(interval, finest):
            # Between the start and the first point the state goes like t^order.
            elapsed = scheme.numbers(times)
            shares = cast((elapsed[:, None] / interval) ** orders.clip(max=1.0)[:, None], base)
            clock = (self.begin + self.now + self.begin.new_tensor(times)).to(scheme.clock_dtype)
            slopes = scheme.solver.slopes(clock.unbind(0), base + (first - base) * shares)
            taken = cast(scheme.points.values_at(elapsed / length), panel.slopes) @ panel.slopes
            missed, powers = missed_integral(cast(elapsed, slopes), slopes, taken)
            self._steepness = norm(powers)
        # As it is seen from the points, then as the equations make it of that, which is less in a stiff system.
        distances = (scheme.points.places * length).clip(min=interval)[:, None] / length
        seen = missed[:, None] * cast(distances ** (orders - 1.0)[:, None], missed)
        at_end = abs(scheme.solver.after(seen))[:, -1]
        distance = library(orders).where(orders > 1.0, self._span, max(min(fading.wait, self._span), length))
        return at_end * self._mass * orders * (distance / self._span) ** (orders - 1.0) / self._span

    def _of_jump(self, panel: Panel, length: float, local: Array | float, broken: Array) -> Array:
        """What a jump of func before the panel's first point would cost: slopes do not go on from the panel before."""
        if self._memory.slopes is None or self._restarted:
            return 0.0 * self._mass
        gap = abs(cast(self._scheme.to_begin, panel.slopes) @ panel.slopes - self._memory.slopes[:, -1:])[:, 0]
        if self.noise is not None:
            gap = library(gap).where(gap <= _CONTINUED * self.noise, 0.0, gap)
        before_first = length * float(self._scheme.points.places[0])
        seen = seen_mass(self._mass, self._orders, self._span, self._span - self.now, before_first)
        return library(gap).maximum(local * seen * gap, CONTINUITY * broken)

    def _gap(self, panel: Panel) -> Array:
        """Between the state at the panel's start and what its states make of it; [G, d]."""
        return abs(cast(self._scheme.to_begin, panel.states) @ panel.states - self._memory.state[:, None])[:, 0]

    def _broken(self, panel: Panel, length: float) -> Array:
        """How far states do not go on from the panel before: another root, or a layer that was passed over; [G, d]."""
        if self._memory.slopes is None or self._restarted:
            return 0.0 * self._memory.state
        broken = self._gap(panel)
        if self.noise is not None:
            seen = seen_mass(self._mass, self._orders, self._span, self._span - self.now, length)
            broken = library(broken).where(broken <= _CONTINUED * seen * self.noise, 0.0, broken)
        return broken

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
        if self._panel is not None:
            self._spent = self._spent + self._left
            if self._outputs is None:
                self.guesses.append(self._scheme.tensor(self._panel.states))
                self._scheme.solver.keep(self._kept)
            else:
                outputs, numbers = self._outputs
                first, last = len(self.states), bisect_right(numbers, self._end)
                if last > first:
                    to_end = numbers[last - 1] == self._end
                    self.states += self._scheme.found(self._memory, self._panel, outputs[first:last], to_end=to_end)
            self._memory = self._scheme.close(self._memory, self._panel)
            self._largest, lasting = self._reached, sys.float_info.epsilon * self._reached
            if bool((self._allowed < OF_ROUNDING * lasting).any()):
                # Of a state that has become very small, no more is known than the rounding of what was added up.
                raise NotConvergedError(
                    f"atol must be {norm(lasting):.2g} or more where a state of size {norm(self._largest):.3g} falls "
                    f"as far as it has by t = {float(self.begin) + self._end:.6g}, got "
                    f"{smallest(self.spacing.atol):.3g}, which is less than rounding leaves of it; pass a larger atol, "
                    f"or solve for the state's logarithm"
                )
        self._restarted = False
        self._reach = 0.0 * self._reach

    def spent(self) -> float:
        return norm(self._spent / self.tolerance_now())

    def tolerance_now(self) -> Array:
        return self.tolerances.scale(self._memory.state[:, None])

    def save(self) -> Callable[[], None]:
        memory, counts, now = self._memory, (len(self.guesses), len(self.states)), self.now
        restarted, origin, largest, self._spent = self._restarted, self._origin, self._largest, 0.0 * self._spent

        def restore() -> None:
            self._memory, self._restarted, self.now, self._panel = memory, restarted, now, None
            self._origin = origin
            del self.guesses[counts[0] :], self.states[counts[1] :]
            self._spent, self._reach, self._largest = 0.0 * self._spent, 0.0 * self._reach, largest

        return restore

    def about_start(self) -> str:
        if self._steepness <= STEEP_START:
            return ""
        if self._steepness >= STEEPEST:
            return "func grows at the start like 1/t or faster, so that no solution exists: check func, or start later"
        return (
            f"func grows at the start like t^-{self._steepness:.2g}: pass larger rtol and atol, or solve for what is "
            f"left of u without its singular part, a constant times t^(order - {self._steepness:.2g})"
        )

    def brief(self, solver: CoupledSolver) -> None:
        """Tell the solver of a walk over the same panels what has been found out about func."""
        solver.noise, solver.acceptable = self.noise, Enough(self.tolerances, 0.0)
        solver.is_stiff = self._scheme.solver.is_stiff
        solver.kept, self._kept = self._kept, {}

    def restart(self) -> None:
        self._restarted, self._origin = True, self.now


@dataclass
class Enough:
    """Which change of states [G, S, d] is small enough for iterates, by tolerances and by a goal; [G, d]."""

    tolerances: Tolerances
    rounding: float
    goal: Array | None = None

    def __call__(self, states: Array) -> Array:
        allowed = _ENOUGH * self.tolerances.scale(states)
        if self.goal is not None:
            mixed = isinstance(self.goal, torch.Tensor) and not isinstance(states, torch.Tensor)
            allowed = library(states).minimum(allowed, as_numpy(self.goal) if mixed else self.goal)
        return library(states).maximum(allowed, self.rounding * sizes(states))


def seen_mass(mass: Array, orders: Array, span: Array, rest: Array, length: Array) -> Array:
    """The integral of the kernel over a panel, of a mass over the span, seen from where it is largest; [G, 1]."""
    near, far = length**orders, orders * length * rest ** (orders - 1.0)
    return mass / span**orders * library(orders).where(orders > 1.0, far, near)


def of_derivatives(
    scheme: PanelScheme, after: Callable[[Array], Array], clock: tuple[torch.Tensor, ...], panel: Panel, mass: Array
) -> Array:
    """What derivatives of the solution miss, by a parameter that scales func: func's own along the states; [G, d].

    Those go into the slopes of the solution's derivatives, and may be less smooth than the slopes: at a start.
    """
    along = slopes_along(scheme.problem, clock, scheme.tensor(panel.states))
    if along is None:
        return 0.0 * mass
    missed = mass * scheme.points.tail(scheme.own_kind(along))
    missed = cast(library(missed).where(abs(missed) < math.inf, missed, 0.0), panel.states)
    return OF_SLOPES * abs(after(missed[:, None] + 0.0 * panel.states))[:, -1]


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
