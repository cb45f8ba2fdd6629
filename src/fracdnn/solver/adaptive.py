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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from fracdnn.caputo.weights import gamma
from fracdnn.exceptions import InvalidArgumentError, NotConvergedError
from fracdnn.solver.arrays import Array, library
from fracdnn.solver.grids import Spacing
from fracdnn.solver.mesh import FoundGrid
from fracdnn.solver.problem import Problem

_SAFETY, _SHRINK = 0.9, 0.2
_FORGETTING = 0.75  # the power of time with which errors count up to the first output
_FIRST_SHRINK = 1e-3  # of a first step, which may have to become much shorter
SMALLEST = 1e-14  # of a step, in times until the first output, or in the time so far
_MOST_STEPS = 100_000
_COARSE = 1e-6  # the shortest step, in lengths of its piece, that is long because times are rounded
_LOOK_AHEAD = 400  # steps after which the pace is taken for that of the whole
_JUMP_CAUTION = 500.0  # what estimates of errors next to a jump are short of, at most


@dataclass(frozen=True)
class Piece:
    """A part of the span, between breakpoints; times count from the solve's begin."""

    begin: float
    end: float
    first_output: float  # after the piece's begin; up to it, errors count less
    shortest: float  # of its steps


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

    @abstractmethod
    def restart(self) -> None:
        """Forget what the next step would guess from those before: func jumps here."""


@torch.no_grad()
def find_grid(
    search: Search, pieces: Sequence[Piece], outputs: Sequence[float], longest: float = math.inf
) -> FoundGrid:
    """A grid that ends a step wherever a piece ends, of steps not longer than `longest`."""
    _check_longest(outputs[-1], longest)
    places, shares, restarts = [0], [0.0], set()
    walk = _StepsTaken(search, outputs, longest)
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


class _StepsTaken:
    """The ends of the steps so far, and what makes them longer or shorter."""

    def __init__(self, search: Search, outputs: Sequence[float], longest: float) -> None:
        self._search, self._outputs, self._span, self._longest = search, outputs, outputs[-1], longest
        self.ends = [0.0]
        self.n_rejected = 0

    def bridge(self, piece: Piece) -> None:
        """A step over a jump at the piece's begin, so short that it does not matter what lies between its ends.

        Of length τ, it misplaces the jump by as much, while rounding of its weights counts like 1/τ.
        """
        length = (2.0 * sys.float_info.epsilon * self._span * piece.first_output) ** 0.5
        end = piece.begin + min(length, 0.1 * (piece.end - piece.begin))
        if math.isfinite(self._search.attempt(end)):
            self._take(end)

    def over(self, piece: Piece) -> None:
        """Steps to the end of a piece; the first of them as if nothing had been before."""
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
            error = search.attempt(end) * min((end - piece.begin) / piece.first_output, 1.0) ** _FORGETTING
            power = _FORGETTING + search.smallest_order if first else search.power
            if tried_again and not first and search.largest_order <= 1.0:  # func may jump
                error, power = error * self._left_over(end), 1.0
            if error <= 1.0:
                self._take(end)
                step *= min(max(_factor(error, power), _SHRINK), growth)
                growth, first, tried_again = search.growth, False, False
            else:
                self.n_rejected += 1
                growth, tried_again = 1.0, True
                step *= min(max(_factor(error, power), _FIRST_SHRINK if first else _SHRINK), 0.9)

    def _left_over(self, end: float) -> float:
        """How much of an error of the slope, on a step to this time alone, is left at the next output.

        In parts of what it would be, were it on the whole span: ∫ over the step of the kernel, over that of the span.
        """
        length = end - self.ends[-1]
        later = bisect_right(self._outputs, self.ends[-1])
        wait = max(self._outputs[later] - end, length)
        kernel = (wait / self._span) ** (self._search.smallest_order - 1.0)
        return min(_JUMP_CAUTION * length / self._span * kernel, 1.0)

    def _take(self, end: float) -> None:
        self._search.accept()
        self._search.now = end
        self.ends.append(end)

    def _check(self, step: float, tried: float, piece: Piece) -> None:
        search, now = self._search, self.ends[-1]
        taken = len(self.ends) - 1
        if taken > _MOST_STEPS or (taken > _LOOK_AHEAD and taken * self._span > _MOST_STEPS * now):
            raise NotConvergedError(
                f"the solve must take at most {_MOST_STEPS} steps, got no further than "
                f"t = {float(search.begin) + now:.6g} with {taken}; {self._remedy_for_pace()}"
            )
        shortest = max(piece.shortest, SMALLEST * now)
        if step < shortest:
            for time in (now, tried):  # the last that was taken, and the last that was tried
                search.problem.check_slope(search.begin + time, search.state)
            if piece.begin and piece.shortest > _COARSE * (piece.end - piece.begin):
                raise NotConvergedError(_too_coarse(float(search.begin), piece))
            raise NotConvergedError(
                f"the step became shorter than {shortest:.2g} at "
                f"t = {float(search.begin) + now:.6g} after {taken} steps; the solution may end there: "
                f"ask for earlier times only, or for larger rtol and atol; where func jumps, pass breakpoints="
            )

    def _remedy_for_pace(self) -> str:
        if self._longest * _MOST_STEPS < 2.0 * self._span:
            return f"max_step = {self._longest:g} makes them so many: pass a longer one, or n_steps="
        return (
            "func may be random, jump with the state, or be stiff for a state of more than some sixty components: "
            "use larger rtol and atol, or n_steps="
        )


def _check_longest(span: float, longest: float) -> None:
    if span / longest > _MOST_STEPS:
        raise InvalidArgumentError(
            f"max_step must leave at most {_MOST_STEPS} steps from t[0] to t[-1], got {longest:g}, which takes "
            f"{span / longest:.6g}; pass a longer one, or n_steps= for steps that are not adaptive"
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
