"""Find a grid whose error meets a tolerance; the solve itself is then one on a known grid, with an exact gradient.

The solution is an integral of slopes, so its error is the integral of the error with which slopes are interpolated.
That is what is controlled. Up to the first time that is asked for, errors count less, since little of them is left by
then; so a start like t^order takes few steps. The same holds after a breakpoint, where func jumps. A jump that nobody
told of makes steps shorter until what is left of its error at the next output is small.
"""

import math
import sys
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fracdnn.caputo.weights import gamma
from fracdnn.exceptions import InvalidArgumentError, NotConvergedError
from fracdnn.solver.arrays import Array, library
from fracdnn.solver.grids import Spacing
from fracdnn.solver.mesh import FoundGrid
from fracdnn.solver.problem import OutOfEvaluationsError, Problem

_SAFETY, _SHRINK = 0.9, 0.2
_FORGETTING = 0.75  # the power of time with which errors count up to the first output
_FIRST_SHRINK = 1e-3  # of a first step, which may have to become much shorter
SMALLEST = 1e-14  # of a step, in times until the first output, or in the time so far
_COARSE = 1e-6  # the shortest step, in lengths of its piece, that is long because times are rounded
# Tolerances that errors up to the first output may come to there, by estimates that are a thousand times too large
# where they count, and how much more may do; and the part of the tolerances below which a piece is given up.
_OVERDRAWN, _RELAXED, _STRICTEST = 1e4, 3.0, 1e-6
_JUMP_CAUTION = 500.0  # what estimates of errors next to a jump are short of, at most
_MANY = 256  # components from which a stiff func is not solved for with a matrix
# Noise in func is looked for after so many steps, then after twice as many, or sooner where it was found; where the
# error is what limits the steps.
_PATIENCE, _HEARD_PATIENCE, _LIMITED = 50, 10, 0.05
_RECENT, _VARIES = 8, 10.0  # steps that a longer one is held against, and how much noise varies between them
# A step longer by the first of these factors has a misfit that is larger by more than the second, unless that is noise:
# which is no larger than this part of func, since what is larger is a function that jumps or is random. Noise varies by
# some such factor from one step to the next.
_LONGER, _MUCH_MORE, _LARGEST_NOISE, _NOISE_CAUTION = 8.0, 4.0, 0.02, 2.0
# The quantile of all components that is usual, where there are so many, and the part of them that has to agree.
_USUAL, _MANY_PARTS, _MOST = 0.9, 16, 0.75


@dataclass(frozen=True)
class Piece:
    """A part of the span, between breakpoints; times count from the solve's begin."""

    begin: float
    end: float
    first_output: float  # after the piece's begin; up to it, errors count less
    shortest: float  # of its steps

    def fading(self, end: float) -> "Fading":
        """Of the errors of a step to that time."""
        taken = end - self.begin
        return Fading(min(taken / self.first_output, 1.0) ** _FORGETTING, max(self.first_output - taken, 0.0))


@dataclass(frozen=True)
class Fading:
    """How much an error of a step counts: the `factor` for errors of slopes all over it, and how long it is until the
    first output, for errors at its begin.
    """

    factor: float
    wait: float


@dataclass(frozen=True)
class Tolerances:
    """Absolute and relative, [G, d] or such that they broadcast against that."""

    atol: torch.Tensor
    rtol: torch.Tensor

    def scale(self, states: Array) -> Array:
        """The error allowed for states [G, S, d] of these sizes; [G, d], of their kind."""
        numbers = isinstance(states, torch.Tensor)
        atol, rtol = (self.atol, self.rtol) if numbers else (self.atol.numpy(), self.rtol.numpy())
        # Not 0 where atol is: a component that is 0 has no error.
        return (atol + rtol * library(states).amax(abs(states), 1)).clip(min=sys.float_info.min)


class Search(ABC):
    """Steps one after the other, each tried before it is taken; times count from the begin."""

    growth: ClassVar[float]  # of a step, at most
    # Whether a node's slope counts on both sides of it, so that a jump takes two nodes.
    slope_at_begin: ClassVar[bool]
    listens: ClassVar[bool]  # for noise in func

    def __init__(self, problem: Problem, begin: torch.Tensor, span: float, spacing: Spacing) -> None:
        orders = problem.orders.detach()
        self.problem, self.begin, self.spacing = problem, begin, spacing
        # The integral of the kernel over the whole span: what an error of the slope can become in the solution.
        self.mass = (span**orders / gamma(orders + 1.0)).unsqueeze(-1)
        self.smallest_order, self.largest_order = float(orders.min()), float(orders.max())
        self.tolerances = Tolerances(
            problem.states.spread(spacing.atol, "atol").to(begin.device),
            problem.states.spread(spacing.rtol, "rtol").to(begin.device),
        )
        self.now = 0.0
        self.strictness = 1.0  # the part of the tolerances that errors may take, up to the first output
        # Of the step tried last: errors in tolerances, how far slopes are from what the step takes them for, and their
        # sizes; [G, d].
        self.errors: Array | None = None
        self.misfit: Array | None = None
        self.slope_sizes: Array | None = None
        self._recent: deque[tuple[Array, Array]] = deque(maxlen=_RECENT)  # misfits and sizes of the steps taken last
        self._noise_part: Array | None = None  # of func's values, where it has noise

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
    def attempt(self, end: float, fading: "Fading") -> float:
        """The error of a step to that time, in tolerances; infinite or NaN where it cannot be made."""

    def accept(self, part: float = 1.0) -> None:
        """Take the step that was tried last, of whose error such a part counts."""
        if self.misfit is not None:
            self._recent.append((self.misfit, self.slope_sizes))

    @abstractmethod
    def restart(self) -> None:
        """Forget what the next step would guess from those before: func jumps here."""

    def overdrawn(self) -> float:
        """Errors since a piece began, in tolerances at the end of the last step; 0 where nobody keeps account."""
        return 0.0

    def save(self) -> Callable[[], None]:
        """What brings back the state of now; called where a piece begins."""
        return lambda: None

    def why_so_short(self) -> str:
        """The reason and the remedy where no step is short enough; empty where they are not known."""
        return ""

    def heard_noise(self, longer: float) -> bool:
        """Whether func's own noise, rather than its shape, is what limits the steps of late; then it is noted.

        Noise goes on as it was, and a much longer step misses no more of it. Each component is held against its own
        misfits of late, or, where there are many, against what is usual for the others, since noise varies.
        """
        if len(self._recent) < _RECENT:
            return False
        recent = [misfit / slopes for misfit, slopes in self._recent]
        of = library(recent[0])
        overall = [float(of.quantile(parts, _USUAL)) for parts in recent]
        self.attempt(self.now + longer, Fading(1.0, math.inf))
        if not max(overall) <= _VARIES * min(overall) or self.errors is None or self.misfit is None:
            return False
        usual = of.amax(of.stack(recent), 0)
        if math.prod(usual.shape) >= _MANY_PARTS:
            usual = usual.clip(min=float(of.quantile(usual, _USUAL)))
        limits, longest = ~(self.errors <= 1.0), self.misfit / self.slope_sizes
        scatters = int((limits & (longest <= _MUCH_MORE * usual)).sum()) >= _MOST * int(limits.sum())
        if not scatters or float(of.quantile(usual, 0.5)) > _LARGEST_NOISE:
            return False
        level = _NOISE_CAUTION * of.maximum(usual, of.where(limits, longest, 0.0))
        self._noise_part = level if self._noise_part is None else of.maximum(_NOISE_CAUTION * self._noise_part, level)
        self.problem.note_noise(float(of.quantile(usual, 0.5)), self.begin + self.now)
        return True

    @property
    def noise(self) -> Array | None:
        """Of func's values at the sizes they have now, where it is known; [G, d]."""
        return None if self._noise_part is None else self._noise_part * self.slope_sizes

    def without_noise(self, misfit: Array, slopes: Array) -> Array:
        """A misfit, 0 where it is no more than the noise of slopes of these sizes."""
        self.misfit, self.slope_sizes = misfit, slopes.clip(min=sys.float_info.min)
        return misfit if self.noise is None else library(misfit).where(misfit <= self.noise, 0.0, misfit)


@torch.no_grad()
def find_grid(
    search: Search, pieces: Sequence[Piece], outputs: Sequence[float], longest: float = math.inf
) -> FoundGrid:
    """A grid that ends a step wherever a piece ends, of steps not longer than `longest`."""
    _check_longest(outputs[-1], longest, search.problem.max_evaluations)
    walk = _StepsTaken(search, outputs, longest)
    try:
        return _walked(walk, search, pieces)
    except OutOfEvaluationsError:
        raise NotConvergedError(walk.out_of_evaluations()) from None


def _walked(walk: "_StepsTaken", search: Search, pieces: Sequence[Piece]) -> FoundGrid:
    places, shares, restarts = [0], [0.0], set()
    for place, piece in enumerate(pieces):
        if place:
            if search.slope_at_begin:
                walk.bridge(piece)
            search.restart()
            restarts.add(len(walk.ends) - 1)
        walk.over(piece)
        made = walk.ends[len(shares) :]
        places += [place] * len(made)
        shares += [(end - piece.begin) / (piece.end - piece.begin) for end in made[:-1]] + [1.0]
    device = search.begin.device
    return FoundGrid(
        torch.tensor(places, device=device),
        torch.tensor(shares, dtype=torch.float64, device=device),
        frozenset(restarts),
        walk.n_rejected,
    )


class _Account:
    """Errors up to a piece's first output, which are measured by larger states than are left there of a pulse.

    Where they turn out to be too large, the piece is solved again with a part of the tolerances; with more of them
    where that is less than rounding allows.
    """

    def __init__(self, search: Search, piece: Piece) -> None:
        self._search, self._first_output = search, piece.begin + piece.first_output
        self.restore = search.save()
        # After a breakpoint, errors are measured by what will be left of the states.
        self._open, self._limit = piece.begin == 0.0, _OVERDRAWN

    def is_overdrawn(self, end: float) -> bool:
        """At the end of a step: whether the piece has to be solved again, and from then on more strictly."""
        if not self._open or end < self._first_output:
            return False
        overdrawn, strictness = self._search.overdrawn(), self._search.strictness
        self._search.strictness = 1.0
        if overdrawn <= self._limit:
            self._open = False
            return False
        if strictness < _STRICTEST or self._limit > _OVERDRAWN:
            self._open = False
            raise NotConvergedError(
                f"the start must be solved to the tolerances at the first output, t = "
                f"{float(self._search.begin) + self._first_output:.6g}, got {overdrawn:.2g} of them by estimate; pass "
                f"larger rtol and atol, or an earlier time in t as well"
            )
        self._search.strictness = 0.3 * _OVERDRAWN * strictness / overdrawn
        return True

    def relax(self) -> bool:
        """Whether a part of the tolerances was less than can be kept: then ten times as much may do."""
        if not self._open or self._search.strictness >= 1.0:
            return False
        self._search.strictness = min(10.0 * self._search.strictness, 1.0)
        self._limit = _RELAXED * _OVERDRAWN
        return True


class _StepsTaken:
    """The ends of the steps so far, and what makes them longer or shorter."""

    def __init__(self, search: Search, outputs: Sequence[float], longest: float) -> None:
        self._search, self._outputs, self._span, self._longest = search, outputs, outputs[-1], longest
        self.ends = [0.0]
        self.n_rejected = 0
        self._tried, self._patience = 0, _PATIENCE  # steps since noise was looked for, and until it is again

    def bridge(self, piece: Piece) -> None:
        """A step over a jump at the piece's begin, so short that it does not matter what lies between its ends.

        Of length τ, it misplaces the jump by as much, while rounding of its weights counts like 1/τ.
        """
        length = (2.0 * sys.float_info.epsilon * self._span * piece.first_output) ** 0.5
        end = piece.begin + min(length, 0.1 * (piece.end - piece.begin))
        if math.isfinite(self._search.attempt(end, Fading(1.0, math.inf))):
            self._take(end)

    def over(self, piece: Piece) -> None:
        """Steps to the end of a piece, if need be more than once."""
        account, count = _Account(self._search, piece), len(self.ends)
        while True:
            try:
                if self._went_over(piece, account):
                    return
            except NotConvergedError:
                if not account.relax():
                    raise
            account.restore()
            del self.ends[count:]

    def _went_over(self, piece: Piece, account: _Account) -> bool:
        """Steps to the end of a piece, the first as if nothing had been before; False where they have to be others."""
        search, growth, first, tried_again = self._search, self._search.growth, True, False
        step, end = min(piece.first_output, search.first_step(piece.end - piece.begin)), piece.begin
        while self.ends[-1] < piece.end:
            step = min(step, self._longest)
            rest = piece.end - self.ends[-1]
            if step > 0.9 * rest:
                step = rest
            elif step > 0.5 * rest:
                step = rest / 2.0
            self._check(step, end, piece)
            end = piece.end if step == rest else self.ends[-1] + step
            error = search.attempt(end, piece.fading(end))
            if self._listens(step, error, piece):
                continue
            power = _FORGETTING + search.smallest_order if first else search.power
            part = 1.0
            if tried_again and not first and search.largest_order <= 1.0:  # func may jump
                part, power = self._left_over(end), 1.0
            error *= part
            if error <= 1.0:
                self._take(end, part)
                if account.is_overdrawn(end):
                    return False
                step *= min(max(_factor(error, power), _SHRINK), growth)
                growth, first, tried_again = search.growth, False, False
            else:
                self.n_rejected += 1
                growth, tried_again = 1.0, True
                step *= min(max(_factor(error, power), _FIRST_SHRINK if first else _SHRINK), 0.9)
        return True

    def _listens(self, step: float, error: float, piece: Piece) -> bool:
        """Whether it was time to look for noise in func; then the step has to be tried again."""
        self._tried += 1
        longer = min(_LONGER * step, piece.end - self.ends[-1])
        # Far enough from the begin for a smooth func to be smooth on the longer step.
        if self._tried < self._patience or longer < _MUCH_MORE * step or longer > self.ends[-1] - piece.begin:
            return False
        if not self._search.listens or not _LIMITED < error < math.inf:
            return False
        heard = self._search.heard_noise(longer)
        self.n_rejected += 1
        self._tried, self._patience = 0, _HEARD_PATIENCE if heard else 2 * self._patience
        return True

    def _left_over(self, end: float) -> float:
        """How much of an error of the slope, on a step to this time alone, is left at the next output.

        In parts of what it would be, were it on the whole span: ∫ over the step of the kernel, over that of the span.
        """
        length = end - self.ends[-1]
        later = bisect_right(self._outputs, self.ends[-1])
        wait = max(self._outputs[later] - end, length)
        kernel = (wait / self._span) ** (self._search.smallest_order - 1.0)
        return min(_JUMP_CAUTION * length / self._span * kernel, 1.0)

    def _take(self, end: float, part: float = 1.0) -> None:
        self._search.accept(part)
        self._search.now = end
        self.ends.append(end)

    def _check(self, step: float, tried: float, piece: Piece) -> None:
        search, now = self._search, self.ends[-1]
        shortest = max(piece.shortest, SMALLEST * now)
        if step < shortest:
            reason = search.why_so_short()
            for time in () if reason else (now, tried):  # the last that was taken, and the last that was tried
                search.problem.check_slope(search.begin + time, search.state)
            if not reason and piece.begin and piece.shortest > _COARSE * (piece.end - piece.begin):
                raise NotConvergedError(_too_coarse(float(search.begin), piece))
            reason = reason or (
                "the solution may end there: pass earlier times only, or larger rtol and atol; where func jumps, pass "
                "breakpoints=; where it changes much sooner than the first output, pass an earlier time in t as well"
            )
            raise NotConvergedError(
                f"the step became shorter than {shortest:.2g} at t = {float(search.begin) + now:.6g} after "
                f"{len(self.ends) - 1} steps; {reason}"
            )

    def out_of_evaluations(self) -> str:
        """What was done with them, and what to do."""
        search, now, taken = self._search, self.ends[-1], len(self.ends) - 1
        return (
            f"the solve must need at most max_evaluations = {search.problem.max_evaluations} evaluations of func, got "
            f"no further than t = {float(search.begin) + now:.6g} with {taken} steps, {self.n_rejected} more in vain; "
            f"{self._remedy_for_pace()}"
        )

    def _remedy_for_pace(self) -> str:
        if self._longest * (len(self.ends) - 1) < 2.0 * self.ends[-1]:
            return f"max_step = {self._longest:g} makes them so many: pass a longer one, or a larger max_evaluations"
        reason = "func may jump with the state, be random"
        if self._search.problem.value.numel() > _MANY:
            reason += ", be stiff for a state of so many components"
        return f"{reason}, or change all along: pass larger rtol and atol, or a larger max_evaluations"


def _check_longest(span: float, longest: float, most: float) -> None:
    if span / longest > most:
        raise InvalidArgumentError(
            f"max_step must leave at most max_evaluations = {most} steps from t[0] to t[-1], got {longest:g}, which "
            f"takes {span / longest:.6g}; pass a longer one, or a larger max_evaluations"
        )


def _too_coarse(t0: float, piece: Piece) -> str:
    return (
        f"steps after a breakpoint must be {piece.shortest:.2g} long or longer, a hundred roundings of times such as "
        f"t[0] = {t0:.6g}, got shorter ones on the {piece.end - piece.begin:.2g} after the breakpoint "
        f"{t0 + piece.begin!r}; count t, breakpoints and the times in func from t[0], in float64"
    )


def _factor(error: float, power: float) -> float:
    if not math.isfinite(error):
        return 0.0
    return _SAFETY * error ** (-1.0 / power) if error > 0 else math.inf
