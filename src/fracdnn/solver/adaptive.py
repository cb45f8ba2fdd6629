"""Find a grid whose error meets a tolerance; the solve itself is then one on a known grid, with an exact gradient.

The solution is an integral of slopes, so its error is the integral of the error with which slopes are interpolated.
That is what is controlled. Up to the first time that is asked for, errors count less, since little of them is left by
then; so a start like t^order takes few steps. The same holds after a breakpoint, where func jumps. A jump that nobody
told of makes steps shorter until what is left of its error at the next output is small.
"""

import math
import sys
from bisect import bisect_right
from collections.abc import Sequence

import torch

from fracdnn.exceptions import InvalidArgumentError, NotConvergedError
from fracdnn.solver.mesh import FoundGrid
from fracdnn.solver.problem import OutOfEvaluationsError
from fracdnn.solver.search import FORGETTING, LONGER, MUCH_MORE, Fading, Piece, Search

_SAFETY, _SHRINK = 0.9, 0.2
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
        if math.isfinite(self._search.attempt(end, Fading())):
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
            may_jump = tried_again and not first and search.largest_order <= 1.0
            error = search.attempt(end, piece.fading(end, self._left_over(end) if may_jump else 1.0))
            if self._listens(step, error, piece):
                continue
            power = 1.0 if may_jump else FORGETTING + search.smallest_order if first else search.power
            if error <= 1.0:
                self._take(end)
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
        longer = min(LONGER * step, piece.end - self.ends[-1])
        # Far enough from the begin for a smooth func to be smooth on the longer step.
        if self._tried < self._patience or longer < MUCH_MORE * step or longer > self.ends[-1] - piece.begin:
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

    def _take(self, end: float) -> None:
        self._search.accept()
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
