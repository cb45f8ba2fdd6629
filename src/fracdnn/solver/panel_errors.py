"""What a search allows panels to miss, and what they do: tails of their polynomials, jumps, and what func does before
their first point.

Times are numbers of the scheme's kind of arrays, or [B, 1] where each sample has its own.
"""

import math
import sys
from dataclasses import dataclass, replace

import torch

from fracdnn.caputo.weights import gamma
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.solver.arrays import Array, as_kind, cast, library, norm, sizes
from fracdnn.solver.collocation import Memory, Panel, PanelScheme, consistent_state
from fracdnn.solver.jacobians import Products

SAFETY, SHRINK = 0.9, 0.2
GROWTH = 3.0  # of a panel, at most
FIRST_SHRINK = 1e-3  # of a first panel, which may have to become much shorter
FIRST_STEP = 0.02  # in lengths of the piece, where nothing better is known
MOST_SPENT = 5.0  # tolerances that may be left of errors at the next output, by estimate
FORGETTING = 0.75  # the power of time with which errors count up to the first output
JUMP_CAUTION = 500.0  # what estimates of errors next to a jump are short of, at most
_ENOUGH = 3e-3  # of the tolerance, for iterates
# Of the first panel: in times that its slope would take to undo the state, and in spans.
_FIRST, _SHORTEST_FIRST, _LONGEST_FIRST = 0.45, 1e-3, 0.1
# What the tails of Legendre coefficients become in the solution: they oscillate, so that little of their integral is
# left; and memory keeps more of a state's error than the state itself. Measured on the problems of docs/solver.md.
_OF_SLOPES, _OF_STATES = 0.02, 4.0
_CONTINUED = 10.0  # what noise can become in the slopes at a panel's start
_CONTINUITY = 0.002  # of the distance between a panel's start and what its states make of it, that is error
_MOST_BROKEN, _BROKEN_TOLERANCES = 0.2, 3.0  # of it, in states and in tolerances, with which a panel is no solution
# Of it, that is error where the equations are unstable; of states, that is none; and of what slopes at the start make.
_OF_ROOT, _SAME_ROOT, _SLOPES = 0.1, 1e-6, 3.0
_OF_ROUNDING = 0.3  # of the rounding of the largest state, that a tolerance has to be
# Lengths of a panel, in times since the start, from which on derivatives may be less smooth there than the solution.
_NEAR_START = 0.2
STEEP_START = 0.05  # power of 1/t from which func is said to grow toward a start
STEEPEST = 0.98  # the one from which it is taken for not integrable
# Times at which func is looked at before a first point: their ratio and number, the last of them two millionths of the
# interval from the start; and the part of func below which a difference has no power to speak of.
_RATIO, _COUNT, _ROUNDING = 8.0, 7, 1e-9


@dataclass(frozen=True)
class Fading:
    """How much an error of a panel counts; of samples, each is [B, 1].

    The `factor` is for errors all over it, `wait` the time until the next output, `part` what is left of an error of
    slopes that miss a jump on this panel alone, and `calm` the time until errors grow.
    """

    factor: Array = 1.0
    wait: Array = math.inf
    part: Array = 1.0
    calm: Array = math.inf

    def until_growth(self, elapsed: Array, calm_time: Array) -> "Fading":
        """Return the same for errors that grow after a calm time since the start, of which some has elapsed."""
        left = (calm_time - elapsed) * (calm_time > elapsed)
        return replace(self, factor=(elapsed / (elapsed + left)) ** FORGETTING, calm=left)


@dataclass(frozen=True, eq=False)
class Tolerances:
    """Absolute and relative, [G, d] or such that they broadcast against that."""

    atol: torch.Tensor
    rtol: torch.Tensor

    def scale(self, states: Array) -> Array:
        """The error allowed for states [G, S, d] of these sizes; [G, d], of their kind."""
        if isinstance(states, torch.Tensor):
            allowed = self.atol + self.rtol * abs(states).amax(1)
        else:
            allowed = self.atol.numpy() + self.rtol.numpy() * abs(states).max(1)
        return allowed.clip(min=sys.float_info.min)  # not 0 where atol is: a component that is 0 has no error

    def enough(self, states: Array, rounding: float, goal: Array | None = None) -> Array:
        """Which change of states [G, S, d] is small enough for iterates, with a goal for the error as well; [G, d]."""
        allowed, of = self.scale(states), library(states)
        if goal is not None:
            allowed = of.minimum(allowed, as_kind(goal, states))
        return of.maximum(_ENOUGH * allowed, rounding * sizes(states))


class PanelErrors:
    """Estimates for the panels of a search, [G, d]. With `sensitive`, derivatives are to be as good as states."""

    def __init__(self, scheme: PanelScheme, tolerances: Tolerances, span: Array, *, sensitive: bool) -> None:
        orders, value = scheme.problem.orders.detach().unsqueeze(-1), scheme.own_kind(scheme.problem.value.detach())
        self._scheme, self._tolerances, self._span, self._sensitive = scheme, tolerances, span, sensitive
        self.orders = scheme.own_kind(orders)
        # The integral of the kernel over the whole span: what an error of the slope can become in the solution.
        self._mass = span**self.orders / scheme.own_kind(gamma(orders + 1.0))
        # The largest states so far, with those of the panel tried last, and those that were expected since a start.
        self.largest = self.reached = sizes(value[:, None])
        self.reach = 0.0 * self.largest
        self.allowed = self.largest  # the error, of the panel tried last
        # What is left, at the next output, of the error of the panel tried last, and of those taken so far.
        self.left = self.spent = self.reach
        self.misfit: Array | None = None  # what polynomials miss of slopes, on the panel tried last
        self.steepness = self.reach  # the power of 1/t with which func grows to a start

    def first_times(self, span: Array) -> Array:
        """Return how long the slopes at the start would take to undo the states, [G, d]."""
        problem = self._scheme.problem
        clock, value = self._scheme.begin.to(self._scheme.clock_dtype).squeeze(-1), problem.value.detach()
        slope = problem.packed_slope(clock, value)
        orders = problem.orders.detach().unsqueeze(-1)
        times = (_FIRST * gamma(orders + 1.0) * value.abs() / slope.abs()) ** (1.0 / orders)
        counts = (value != 0) & (slope != 0) & slope.isfinite()  # func may have no value at the start
        return torch.where(counts, times, math.inf).clip(_SHORTEST_FIRST * span, _LONGEST_FIRST * span)

    def kept(self, wait: Array, length: Array) -> Array:
        """Of an error of slopes on a panel, what is kept until the next output."""
        return library(length).maximum(wait / self._span, length / self._span) ** (self.orders - 1.0)

    def judge(
        self,
        memory: Memory,
        panel: Panel,
        fading: Fading,
        *,
        first: Array,
        unstable: Array,
        since: Array,
        counts: Array = True,
        noise: Array | None = None,
        moving: Array = 0.0,
    ) -> Array:
        """Errors of a panel in tolerances, infinite or NaN where they cannot be told.

        `since` is the time from the last start to its own. Errors that are `unstable` do not fade, they grow. `counts`
        are the samples that matter.
        """
        of = library(panel.states)
        gap = abs(cast(self._scheme.to_begin, panel.states) @ panel.states - memory.state[:, None])[:, 0]
        error, broken = self._of_polynomials(memory, panel, fading, gap, first, noise)
        factor, wait = fading.factor, of.minimum(fading.wait, fading.calm)
        error, largest = factor * error + moving, sizes(panel.states)
        self.reached = of.maximum(self.largest, largest)
        if bool((first & counts).any()):
            self.reach = of.where(first, of.maximum(self.reach, largest), self.reach)
            close = self._meets(error, largest) & first & counts
            if bool(close.any()):
                of_start, self.steepness, change = self._of_start(memory, panel, wait, close)
                self.left = of.where(close, of.maximum(self.left, of_start), self.left)
                # A state that the slopes at the start do not lead to may be another root.
                other_root = unstable & (gap > _SAME_ROOT * self.reach + _SLOPES * change)
                of_start = of.maximum(of_start, of.where(other_root, _OF_ROOT * gap, 0.0))
                error = of.where(close, of.maximum(error, of_start), error)
                # From a steep start the solution grows, or falls: the first output will tell.
                is_steep = (self.steepness > STEEP_START).any(1)[:, None]
                largest = of.where(close & is_steep, self.reach, largest)
        self.allowed = scale = self._tolerances.scale(largest[:, None])
        near = (panel.length > _NEAR_START * since) & counts
        if self._sensitive and bool((near & self._meets(error, largest)).any()):
            error = of.where(near, of.maximum(error, factor * self._of_derivatives(panel)), error)
        # What does not go on at all is no solution, however little of it will be left.
        return of.maximum(error / scale, broken / (_MOST_BROKEN * sizes(panel.states) + _BROKEN_TOLERANCES * scale))

    def _of_polynomials(
        self, memory: Memory, panel: Panel, fading: Fading, gap: Array, first: Array, noise: Array | None
    ) -> tuple[Array, Array]:
        """What they miss inside of a panel and next to the one before, and how far states do not go on from there.

        The `gap` is that between the state at a panel's start and what its states make of it.
        """
        scheme, of, orders, length = self._scheme, library(panel.states), self.orders, panel.length
        share, kept = length / self._span, self.kept(fading.wait, length)
        # Where old errors die out, that of a state is the one of its own interpolation; where they grow, at the end.
        grown = ((self._span - panel.begin) / length) ** (orders - 1.0).clip(min=0.0)
        self.misfit, of_states = scheme.tails(panel)
        of_slopes = self.misfit
        if scheme.problem.mass is not None:  # The others have no slopes.
            of_slopes = of.where(scheme.problem.mass.mask(of_slopes) > 0.0, of_slopes, math.inf)
        if noise is not None:
            of_slopes = of.where(self.misfit <= noise, 0.0, of_slopes)
        error = of.minimum(fading.part * _OF_SLOPES * self._mass * of_slopes, _OF_STATES * grown * of_states)
        broken = 0.0 * gap
        if memory.slopes is not None:
            # Where func jumps on the panel, states do not go on however short it is; but memory forgets them.
            local = (JUMP_CAUTION * kept * share ** (1.0 - orders)).clip(max=1.0)
            local = of.where(~first, of.where(fading.part < 1.0, local, 1.0), 0.0)
            # A jump of func before the first point: slopes do not go on from the panel before.
            jump = abs(cast(scheme.to_begin, panel.slopes) @ panel.slopes - memory.slopes[:, -1:])[:, 0]
            broken = gap
            if noise is not None:
                continued = _CONTINUED * noise
                broken = of.where(gap <= self._seen_mass(panel, length) * continued, 0.0, gap)
                jump = of.where(jump <= continued, 0.0, jump)
            broken = local * broken
            if scheme.problem.mass is not None:  # Another root of the constraints is no solution, however short.
                of_root = (1.0 - scheme.problem.mass.mask(gap)) * of.where(first, 0.0, gap)
                error, broken = of.maximum(error, _OF_ROOT * of_root), of.maximum(broken, of_root)
            seen = self._seen_mass(panel, length * float(scheme.points.places[0]))
            error = of.maximum(error, of.maximum(local * seen * jump, _CONTINUITY * broken))
        self.left = orders * share * kept * error
        return error, broken

    def are_rounding(self) -> Array:
        """Of which components no more is known than the rounding of what was added up: they have become very small."""
        return self.allowed < _OF_ROUNDING * sys.float_info.epsilon * self.largest

    def _meets(self, error: Array, largest: Array) -> Array:
        """Whether all components of a panel are within the tolerances, for states of these sizes."""
        good = error <= self._tolerances.scale(largest[:, None])
        return good.all(1, keepdim=True) if self._scheme.begin.dim() else good.all()

    def _seen_mass(self, panel: Panel, length: Array) -> Array:
        """The integral of the kernel over the first part of a panel, seen from where it is largest; [G, 1]."""
        near, far = length**self.orders, self.orders * length * (self._span - panel.begin) ** (self.orders - 1.0)
        return self._mass / self._span**self.orders * library(far).where(self.orders > 1.0, far, near)

    def _of_start(self, memory: Memory, panel: Panel, wait: Array, close: Array) -> tuple[Array, Array, Array]:
        """Return what is left, at the first output, of what func does before a panel's first point; its `steepness`;
        and the change of state that the slopes at the start make on the panel.

        A transient or a weak singularity lies there. Func is looked at where panels are `close` to a solution, at times
        that approach the start geometrically.
        """
        scheme, of, orders, length = self._scheme, library(panel.states), self.orders, panel.length
        interval = length * float(scheme.points.places[0])
        shortest = float(of.where(close, interval, math.inf).min())
        late = norm(scheme.begin + torch.as_tensor(panel.begin))
        finest = 16.0 * torch.finfo(scheme.clock_dtype).eps * late
        shares = [_RATIO**-number for number in range(1, _COUNT + 1) if shortest * _RATIO**-number > finest]
        if len(shares) < 3:
            return 0.0 * self.reach, 0.0 * self.reach, math.inf + self.reach
        # Between the start and the first point the state goes like t^order.
        elapsed, base = interval * scheme.numbers(shares), memory.state[:, None]
        powers = cast((elapsed / interval)[..., None] ** orders.clip(max=1.0)[..., None], base)
        states = scheme.tensor(base + (panel.states[:, :1] - base) * powers)
        clock = scheme.clock(panel.begin + elapsed)
        if scheme.problem.mass is not None:
            each = zip(clock, states.unbind(1), strict=True)
            states = torch.stack([consistent_state(scheme.problem, *pair) for pair in each], dim=1)
        slopes = scheme.own_kind(scheme.problem.slopes(clock, states))
        taken = cast(scheme.points.values_at(elapsed / length), panel.slopes) @ panel.slopes
        missed, steepness = _missed_integral(cast(elapsed, slopes), slopes, taken)
        # As it is seen from the points, then as the equations make it of that, which is less in a stiff system.
        distances = of.maximum(scheme.points.places * length, interval)[..., None] / length[..., None]
        seen = missed[:, None] * cast(distances ** (orders - 1.0)[..., None], missed)
        at_end = abs(scheme.after(seen))[:, -1]
        distance = of.where(orders > 1.0, self._span, of.maximum(of.minimum(wait, self._span), length))
        found = at_end * self._mass * orders * (distance / self._span) ** (orders - 1.0) / self._span
        return found, steepness, self._seen_mass(panel, length) * abs(slopes[:, -1])

    def _of_derivatives(self, panel: Panel) -> Array:
        """What derivatives of the solution miss, by a parameter that scales func: func's own along the states; [G, d].

        Those go into the slopes of the solution's derivatives, and may be less smooth than the slopes: at a start.
        """
        scheme = self._scheme
        clock = scheme.clock(panel.begin + panel.length * scheme.points.places)
        try:
            along = Products(scheme.problem, clock, scheme.tensor(panel.states)).of_states
        except InvalidArgumentError:  # func does not look at the state, or has no second derivatives
            return 0.0 * self._mass
        missed = self._mass * scheme.points.tail(scheme.own_kind(along))
        missed = cast(library(missed).where(abs(missed) < math.inf, missed, 0.0), panel.states)
        if scheme.problem.mass is not None:
            missed = scheme.problem.mass.derivatives(missed)
        return _OF_SLOPES * abs(scheme.after(missed[:, None] + 0.0 * panel.states))[:, -1]


def _missed_integral(times: Array, slopes: Array, taken: Array) -> tuple[Array, Array]:
    """∫ |func − polynomial| up to the first point, [G, d], and the powers p of func's growth like t^−p at its start.

    Of func and the polynomial [G, K, d] at times [K] or [G, K], the latest first. The integral is infinite where func
    is not integrable.
    """
    of = library(slopes)
    gaps, last_time = abs(slopes - taken), times[..., -1:]
    total = math.log(_RATIO) * (gaps * times[..., None]).sum(1)
    older, old, last = gaps[:, -3], gaps[:, -2], gaps[:, -1]
    tiny = float(of.finfo(gaps.dtype).tiny)
    power = of.log(of.minimum(last / old.clip(min=tiny), old / older.clip(min=tiny)).clip(min=1.0)) / math.log(_RATIO)
    power = of.where(last > _ROUNDING * abs(slopes[:, -1]), power, 0.0)
    rest = last * last_time / math.sqrt(_RATIO) / (1.0 - power).clip(min=1.0 - STEEPEST)
    missed = of.where(power >= STEEPEST, math.inf, total + rest)
    return of.where(missed == missed, missed, math.inf), power
