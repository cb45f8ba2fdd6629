"""Find a grid whose error meets a tolerance; the solve itself is then one on a known grid, with an exact gradient.

The solution is an integral of slopes, so its error is the integral of the error with which slopes are interpolated.
That is what is controlled. Up to the first requested time, errors count less, since little of them is left by then; so
a start like t^order takes few panels. The same holds after a breakpoint, where func jumps. A jump without a breakpoint
shortens panels until what is left of its error at the next output is small.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fracdnn.exceptions import InvalidArgumentError, NotConvergedError
from fracdnn.solver.panel_errors import (
    FIRST_SHRINK,
    FORGETTING,
    GROWTH,
    JUMP_CAUTION,
    MOST_SPENT,
    SAFETY,
    SHRINK,
    Fading,
)
from fracdnn.solver.panel_search import LONGER, MUCH_MORE, PanelSearch
from fracdnn.solver.problem import OutOfEvaluationsError

SMALLEST = 1e-14  # of a step, in the time so far
EARLIEST = 1e-60  # of a first step, in times until the first output: far from the smallest numbers of float64
_COARSE = 1e-6  # the shortest step, in lengths of its piece, that is long because times are rounded
_RELAXED, _TRIES = 3.0, 4  # how much more than usual may be left of errors, and how often to try
_MOST_RELAXED = 12  # times that a goal is made ten times larger
_ANOTHER = 3.0  # times a goal that could be kept: another one, to compare with
_ALIKE = 0.7  # ratio of estimates from which steps with two goals count as the same
# Noise in func is looked for after so many steps, then after twice as many, or sooner where it was found; where the
# error is what limits the steps.
_PATIENCE, _HEARD_PATIENCE, _LIMITED = 50, 10, 0.05


@dataclass(frozen=True)
class Piece:
    """A part of the span, between breakpoints; times count from the solve's start."""

    begin: float
    end: float
    output: float  # the first after the piece's start, perhaps in another piece
    shortest: float  # of its steps

    @property
    def first_output(self) -> float:
        """After the piece's start, and at its end at the latest; up to it, errors count less."""
        return min(self.output, self.end) - self.begin


@torch.no_grad()
def find_grid(
    search: PanelSearch, pieces: Sequence[Piece], outputs: Sequence[float], longest: float
) -> tuple[torch.Tensor, int]:
    """Nodes from 0 on, with one wherever a piece ends, and how many steps were tried in vain."""
    most = search.problem.max_evaluations
    if outputs[-1] / longest > most:
        raise InvalidArgumentError(
            f"max_step must leave at most max_evaluations = {most} steps from t[0] to t[-1], got {longest:g}, which "
            f"takes {outputs[-1] / longest:.6g}; pass a longer one, or a larger max_evaluations"
        )
    walk, place, account = _Walk(search, outputs, longest), 0, None
    try:
        while place < len(pieces):
            if account is None or account.is_settled:
                account = _Account(search, place, pieces[place].output, len(walk.ends))
            try:
                if walk.over(pieces[place], account):
                    place += 1
                    continue
            except NotConvergedError:
                if not account.relax():
                    raise
            place = account.place
            del walk.ends[account.n_nodes :]
            account.restore()
    except (OutOfEvaluationsError, NotConvergedError) as error:
        failed = error if isinstance(error, NotConvergedError) else NotConvergedError(walk.out_of_evaluations())
        failed.reached = walk.ends[-1]
        raise failed from None
    return search.begin.new_tensor(walk.ends), walk.n_rejected


class _Account:
    """What errors since a start or a breakpoint have become at the next output.

    They are measured by the states on the way, of which less may be left: of a pulse, or of a transient. Where they
    turn out to be too large, the steps since then are made again, each with a goal at the output.
    """

    def __init__(self, search: PanelSearch, place: int, output: float, n_nodes: int) -> None:
        self._search, self._output, self.place, self.n_nodes = search, output, place, n_nodes
        self.restore = search.save()
        search.goal = None
        self.is_settled = False
        self._tries, self._relaxed, self._limit, self._each = 0, 0, MOST_SPENT, math.inf
        # State and estimate at the output, by the steps made before, and whether the latest ones were compared with it.
        self._before: tuple[torch.Tensor, float] | None = None
        self._is_compared = False

    def next_stop(self, now: float, end: float) -> float:
        """Where a step has to end: with the piece, or when steps are made again, at the output, to compare there."""
        return self._output if self._tries and now < self._output < end else end

    def asks_for_more(self, end: float, n_nodes: int) -> bool:
        """At the end of a step: whether those since the account was opened have to be made again, more strictly."""
        if self.is_settled or end < self._output:
            return False
        spent = self._search.spent()
        if spent <= self._limit or self._agrees(end, spent):
            self.is_settled = True
            return False
        if self._limit > MOST_SPENT and not self._is_compared:
            self._search.goal = _ANOTHER * self._search.goal  # type: ignore[operator]  # relaxing has made one
            return True
        if self._tries == _TRIES or self._limit > MOST_SPENT:
            self.is_settled = True
            remedy = self._search.about_start() or "pass larger rtol and atol, or an earlier time in t as well"
            raise NotConvergedError(
                f"the estimated error at the output t = {float(self._search.begin) + self._output:.6g} must be within "
                f"the tolerances, got {spent:.2g} times as much; {remedy}"
            )
        self._tries += 1
        self._each = min(self._limit / (n_nodes - self.n_nodes), 0.3 * self._limit / spent * self._each)
        self._search.goal = self._each * self._search.tolerance_now()
        return True

    def _agrees(self, end: float, spent: float) -> bool:
        """Whether steps of another quality have led to the same state: then the estimate is too large."""
        if end != self._output or not self._tries:
            return False
        before, self._before = self._before, (self._search.state, spent)
        self._is_compared = before is not None
        if before is None or _ALIKE * max(spent, before[1]) < min(spent, before[1]):
            return False  # the same steps prove nothing
        allowed = torch.as_tensor(self._search.tolerance_now()).to(before[0])
        return bool(((self._before[0] - before[0]).abs() <= allowed).all())

    def relax(self) -> bool:
        """Whether the goal was less than can be kept: then ten times as much may do."""
        if self.is_settled or self._search.goal is None or self._relaxed == _MOST_RELAXED:
            return False
        self._relaxed += 1
        self._search.goal = 10.0 * self._search.goal
        self._limit = _RELAXED * MOST_SPENT
        return True


class _Walk:
    """The ends of the steps so far, and what makes them longer or shorter."""

    def __init__(self, search: PanelSearch, outputs: Sequence[float], longest: float) -> None:
        self._search, self._outputs, self._span, self._longest = search, outputs, outputs[-1], longest
        self.ends, self.n_rejected = [0.0], 0
        self._tried, self._patience = 0, _PATIENCE  # steps since noise was looked for, and until it is again

    def over(self, piece: Piece, account: _Account) -> bool:
        """Steps to the end of a piece, the first as if nothing had been before; False where they have to be others."""
        search, growth, first, tried_again = self._search, GROWTH, True, False
        if piece.begin:
            search.restart()
        step, end = min(piece.first_output, search.first_step(piece.end - piece.begin)), piece.begin
        while self.ends[-1] < piece.end:
            step = min(step, self._longest)
            stop = account.next_stop(self.ends[-1], piece.end)
            rest = stop - self.ends[-1]
            if step > 0.9 * rest:
                step = rest
            elif step > 0.5 * rest:
                step = rest / 2.0
            self._check(step, end, piece)
            end = stop if step == rest else self.ends[-1] + step
            may_jump = tried_again and not first and search.largest_order <= 1.0
            error = search.attempt(end, self._fading(piece, end, may_jump))
            if self._listens(step, error, piece):
                continue
            power = 1.0 if may_jump else FORGETTING + search.smallest_order if first else search.power
            factor = math.inf if error == 0.0 else 0.0
            if 0.0 < error < math.inf:
                factor = SAFETY * error ** (-1.0 / power)
            if error <= 1.0:
                search.accept()
                search.now = end
                self.ends.append(end)
                if account.asks_for_more(end, len(self.ends)):
                    return False
                step *= min(max(factor, SHRINK), growth)
                growth, first, tried_again = GROWTH, False, False
            else:
                self.n_rejected += 1
                growth, tried_again = 1.0, True
                step *= min(max(factor, FIRST_SHRINK if first else SHRINK), 0.9)
        return True

    def _listens(self, step: float, error: float, piece: Piece) -> bool:
        """Whether it was time to look for noise in func; then the step has to be tried again."""
        if self._search.problem.mass is not None:
            return False
        self._tried += 1
        longer = min(LONGER * step, piece.end - self.ends[-1])
        # Far enough from the start for a smooth func to be smooth on the longer step.
        if self._tried < self._patience or longer < MUCH_MORE * step or longer > self.ends[-1] - piece.begin:
            return False
        if not _LIMITED < error < math.inf:
            return False
        heard = self._search.heard_noise(longer)
        self.n_rejected += 1
        self._tried, self._patience = 0, _HEARD_PATIENCE if heard else 2 * self._patience
        return True

    def _fading(self, piece: Piece, end: float, may_jump: bool) -> Fading:
        """Of the errors of a step to this time.

        Of an error of the slope on this step alone, as next to a jump, the part that is left at the next output is the
        integral of the kernel over the step, over that of the whole span.
        """
        length = end - self.ends[-1]
        wait = max(self._outputs[bisect_right(self._outputs, self.ends[-1])] - end, 0.0)
        kernel = (max(wait, length) / self._span) ** (self._search.smallest_order - 1.0)
        part = min(JUMP_CAUTION * length / self._span * kernel, 1.0) if may_jump else 1.0
        return Fading(min((end - piece.begin) / piece.first_output, 1.0) ** FORGETTING, wait, part)

    def _check(self, step: float, tried: float, piece: Piece) -> None:
        search, now = self._search, self.ends[-1]
        shortest = max(piece.shortest, SMALLEST * now)
        if step >= shortest:
            return
        t0, reason = float(search.begin), search.about_start() if now == piece.begin else ""
        for time in () if reason else (now, tried):  # the last that was taken, and the last that was tried
            search.problem.check_slope(search.begin + time, search.state)
        if not reason and piece.begin and piece.shortest > _COARSE * (piece.end - piece.begin):
            raise NotConvergedError(
                f"steps after a breakpoint must be {piece.shortest:.2g} long or longer, 100 times the rounding of "
                f"times such as t[0] = {t0:.6g}, got shorter ones on the {piece.end - piece.begin:.2g} after the "
                f"breakpoint {t0 + piece.begin!r}; count t, breakpoints and the times in func from t[0], in float64"
            )
        reason = reason or (
            "the solution may end there: pass earlier times only, or larger rtol and atol; where func jumps, pass "
            "options={'breakpoints': …}; where it changes much sooner than the first output, pass an earlier time "
            "in t as well"
        )
        raise NotConvergedError(
            f"the step became shorter than {shortest:.2g} at t = {t0 + now:.6g} after {len(self.ends) - 1} steps; "
            f"{reason}"
        )

    def out_of_evaluations(self) -> str:
        """What was done with them, and what to do."""
        search, now, taken = self._search, self.ends[-1], len(self.ends) - 1
        if self._longest * taken < 2.0 * now:
            remedy = f"max_step = {self._longest:g} makes them so many: pass a longer one, or a larger max_evaluations"
        else:
            remedy = (
                "func may jump with the state, be random, or vary rapidly throughout: pass larger rtol and atol, or a "
                "larger max_evaluations"
            )
        return (
            f"the solve must need at most max_evaluations = {search.problem.max_evaluations} evaluations of func, got "
            f"no further than t = {float(search.begin) + now:.6g} with {taken} steps, {self.n_rejected} rejected; "
            f"{remedy}"
        )
