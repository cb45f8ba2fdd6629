"""Find panels of such lengths that the slopes on them are polynomials, up to a tolerance; see `adaptive`."""

import math
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from fracdnn.caputo.modes import kernel_modes
from fracdnn.exceptions import NotConvergedError, NotFiniteError
from fracdnn.solver.arrays import Array, cast, library, norm, sizes
from fracdnn.solver.collocation import Collocation
from fracdnn.solver.coupled import SMALL, CoupledSolver
from fracdnn.solver.grids import Spacing, smallest
from fracdnn.solver.panel_errors import FIRST_STEP, STEEP_START, STEEPEST, Fading, PanelErrors, Tolerances
from fracdnn.solver.panels import MODES_TOLERANCE, Weights, constant_weights
from fracdnn.solver.problem import Problem
from fracdnn.tracing import being_transformed

_POINTS = 8  # of a panel on a grid that was requested
_SHORTEST = 1e-13  # of panels that may be tried, in spans
_NEXT = 1e-3  # the same, in lengths of the first one
_OF_MOVING = 10.0  # what the error is of states that func's noise keeps moving
_RECENT, _VARIES = 8, 10.0  # panels that a longer one is compared with, and how much noise varies between them
# A panel longer by the first of these factors has a misfit that is larger by more than the second, unless that is
# noise: which is no larger than this part of func, since what is larger is a function that jumps or is random. Noise
# varies by some such factor from one panel to the next.
LONGER, MUCH_MORE, _LARGEST_NOISE, _NOISE_CAUTION = 8.0, 4.0, 0.02, 2.0
# The quantile of all components that is usual, where there are so many, and the part of them that has to agree.
_USUAL, _MANY_PARTS, _MOST = 0.9, 16, 0.75


class PanelSearch:
    """Panels of such lengths that the Legendre coefficients of the slopes on them have died out.

    Each is tried before it is taken; times count from the start. `outputs` are times, increasing, at which the solution
    is noted on the way, for a solve without a gradient; with one, the panels are walked over again. With `sensitive`,
    derivatives are to be as good as states.
    """

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
        keep_panels: bool = False,
    ) -> None:
        orders, span, self.begin = problem.orders.detach(), float((times[-1] - times[0]).detach()), times[0].detach()
        self.problem, self._spacing, self.power = problem, spacing, float(count)
        self.smallest_order, self.largest_order = float(orders.min()), float(orders.max())
        self._tolerances = Tolerances(
            problem.states.spread(spacing.atol, "atol").to(self.begin.device),
            problem.states.spread(spacing.rtol, "rtol").to(self.begin.device),
        )
        shortest = _SHORTEST * min(float((times[1] - times[0]).detach()), span)
        self._scheme = scheme = Collocation(problem, _weights(problem, count, shortest, span), self.begin, clock.dtype)
        (self._span,) = scheme.numbers([span])
        self._errors = PanelErrors(scheme, self._tolerances, self._span, sensitive=sensitive)
        self._memory, self._restarted = scheme.start(), False
        self._shortest = shortest  # of panels that modes are made for
        self._panel: Any = None  # tried last
        self.now = self._end = self._origin = 0.0  # the last is that of the last start or restart
        # What a panel's error may be at the next output [G, d], where more than that was found to be too much.
        self.goal: Array | None = None
        # Of the panel tried last: errors in tolerances, and the sizes of slopes; [G, d].
        self._last_errors: Array | None = None
        self._slope_sizes: Array | None = None
        self._recent: deque[tuple[Array, Array]] = deque(maxlen=_RECENT)  # misfits and sizes of those taken last
        self._noise_part: Array | None = None  # of func's values, where it has noise
        self._outputs = None if outputs is None else (outputs, outputs.tolist())
        self.guesses: list[torch.Tensor] = []  # for a walk over the same panels
        self._kept: dict[str, Any] = {}  # the same
        self.panels: list[tuple[Array, Array]] | None = [] if keep_panels else None  # states and slopes of those taken
        self.states = [problem.value for time in (self._outputs or ((), ()))[1] if time <= 0.0]

    def first_step(self, span: float) -> float:
        """As long as the slope at the start would take to undo the state, in the component that is quickest."""
        if self.now > 0.0:
            return FIRST_STEP * span
        times = self._errors.first_times(span)
        return float(times.min()) if times.numel() else span

    @np.errstate(all="ignore")  # what is not finite is no step
    def attempt(self, end: float, fading: Fading) -> float:
        """The error of a panel to that time, in tolerances; infinite or NaN where it cannot be made."""
        scheme, solver, errors, orders = self._scheme, self._scheme.solver, self._errors, self._errors.orders
        first, goal = self._memory.slopes is None or self._restarted, None
        begin, length, since = scheme.numbers([self.now, end - self.now, self.now - self._origin])
        guess, self._end, solver.noise = self._guess(length), end, self._noise
        if self.goal is not None:
            kept = errors.kept(*scheme.numbers([fading.wait, length]))
            goal = self.goal * (length / self._span) ** (orders - 1.0) / kept
        rounding = 8.0 * torch.finfo(self.problem.value.dtype).eps
        solver.enough = partial(self._tolerances.enough, rounding=rounding, goal=goal)
        try:
            self._panel = panel = scheme.solve(self._memory, begin, length, guess)
        except (NotConvergedError, NotFiniteError):
            self._panel = self._last_errors = errors.misfit = None
            return math.inf
        # What grows before the next output counts as if there were an output when it begins to.
        until, unstable = fading.wait + end - self.now, False
        if fading.factor < 1.0:
            calm = solver.calm_time(orders, until)
            unstable = calm < until
        if unstable:
            fading = fading.until_growth(end - self._origin, calm)
        self._slope_sizes = sizes(panel.slopes).clip(min=sys.float_info.min)
        fadings = scheme.numbers([fading.factor, fading.wait, fading.part, fading.calm])
        first, unstable = scheme.numbers([first, unstable])
        found = errors.judge(
            self._memory,
            panel,
            Fading(*fadings),
            first=first > 0.0,
            unstable=unstable > 0.0,
            since=since,
            noise=self._noise,
            moving=0.0 if solver.moving is None else _OF_MOVING * solver.moving,
        )
        if self.goal is not None:
            found = library(found).maximum(found, errors.left / self.goal)
        self._last_errors = found
        return norm(found)

    def _guess(self, length: Array) -> Array | None:
        """The states of a panel that was tried and is too long, on its first part; after a jump those at its start."""
        places, state = self._scheme.points.places, self._memory.state
        if self._restarted:
            return state[:, None] + 0.0 * cast(places[:, None], state)
        # A panel that is too long may have come to another root of the constraints.
        if self._panel is None or float(self._panel.begin) != self.now or self.problem.mass is not None:
            return None
        weights = self._scheme.points.values_at(places * (length / self._panel.length))
        return cast(weights, self._panel.states) @ self._panel.states

    @property
    def state(self) -> torch.Tensor:
        """At the end of the last panel taken."""
        return self._scheme.tensor(self._memory.state)

    def accept(self) -> None:
        """Take the panel that was tried last."""
        errors = self._errors
        if self._memory.slopes is None and _NEXT * self._panel.length < self._shortest:
            # The start takes shorter panels than were expected. No mode has been in use.
            shortest, scheme = _NEXT * float(self._panel.length), self._scheme
            scheme.use(_weights(self.problem, len(scheme.points.places), shortest, float(self._span)))
        self._recent.append((errors.misfit, self._slope_sizes))
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
        if self.panels is not None:
            self.panels.append((self._panel.states, self._panel.slopes))
        self._memory, self._restarted = self._scheme.close(self._memory, self._panel), False
        errors.reach = 0.0 * errors.reach
        if bool(errors.are_rounding().any()):
            largest = norm(errors.largest)
            raise NotConvergedError(
                f"atol must be {sys.float_info.epsilon * largest:.2g} or more where a state of size {largest:.3g} "
                f"falls as far as it has by t = {float(self.begin) + self._end:.6g}, got "
                f"{smallest(self._spacing.atol):.3g}, which is less than rounding leaves of it; pass a larger atol, "
                f"or solve for the state's logarithm"
            )

    def heard_noise(self, longer: float) -> bool:
        """Whether func's own noise, rather than its shape, is what limits the panels of late; then it is noted.

        Noise goes on as it was, and a much longer panel misses no more of it. Each component is compared with its own
        misfits of late, or, where there are many, with what is usual for the others, since noise varies.
        """
        if len(self._recent) < _RECENT:
            return False
        recent = [misfit / slopes for misfit, slopes in self._recent]
        of = library(recent[0])
        overall = [float(of.quantile(parts, _USUAL)) for parts in recent]
        self.attempt(self.now + longer, Fading())
        if not max(overall) <= _VARIES * min(overall) or self._last_errors is None or self._errors.misfit is None:
            return False
        usual = of.amax(of.stack(recent), 0)
        if math.prod(usual.shape) >= _MANY_PARTS:
            usual = usual.clip(min=float(of.quantile(usual, _USUAL)))
        limits, longest = ~(self._last_errors <= 1.0), self._errors.misfit / self._slope_sizes
        scatters = int((limits & (longest <= MUCH_MORE * usual)).sum()) >= _MOST * int(limits.sum())
        if not scatters or float(of.quantile(usual, 0.5)) > _LARGEST_NOISE:
            return False
        level = _NOISE_CAUTION * of.maximum(usual, of.where(limits, longest, 0.0))
        self._noise_part = level if self._noise_part is None else of.maximum(_NOISE_CAUTION * self._noise_part, level)
        self.problem.note_noise(float(of.quantile(usual, 0.5)), self.begin + self.now)
        return True

    @property
    def _noise(self) -> Array | None:
        """Of func's values at the sizes they have now, where it is known; [G, d]."""
        return None if self._noise_part is None else self._noise_part * self._slope_sizes

    def spent(self) -> float:
        """What errors since `save` have become, in tolerances of the state now."""
        return norm(self._errors.spent / self.tolerance_now())

    def tolerance_now(self) -> Array:
        return self._tolerances.scale(self._memory.state[:, None])

    def save(self) -> Callable[[], None]:
        """What brings back the state of now; called where a piece begins."""
        errors, n_guesses, n_states = self._errors, len(self.guesses), len(self.states)
        n_panels = len(self.panels or ())
        known = self._memory, self._restarted, self._origin, self.now, errors.largest
        errors.spent = 0.0 * errors.spent

        def restore() -> None:
            self._memory, self._restarted, self._origin, self.now, errors.largest = known
            del self.guesses[n_guesses:], self.states[n_states:]
            if self.panels is not None:
                del self.panels[n_panels:]
            errors.spent, errors.reach, self._panel = 0.0 * errors.spent, 0.0 * errors.reach, None

        return restore

    def about_start(self) -> str:
        """What makes the last start or breakpoint hard, and the remedy; empty where nothing is known to."""
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
        solver.noise, solver.acceptable = self._noise, partial(self._tolerances.enough, rounding=0.0)
        solver.is_stiff = self._scheme.solver.is_stiff
        solver.kept, self._kept = self._kept, {}

    def restart(self) -> None:
        """Forget what the next panel would guess from those before: func jumps here."""
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
