"""Panels of many samples at a time, each sample with an order, a start and a length of its own; see `panels`.

A sample is a group of `States`: samples are [B, d], points of a panel [B, S, d]. Func is called for all at once. Panels
are found by the rules of `adaptive` and `panel_search` for one, as far as nothing unusual happens. A sample that needs
more (very short steps, stricter goals, a look for noise) comes out as failed, and is solved alone.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from fracdnn.solver.arrays import as_numpy, sizes
from fracdnn.solver.collocation import Memory, Panel, PanelScheme, resized
from fracdnn.solver.coupled import System, calm_times
from fracdnn.solver.jacobians import slopes_with_jacobians
from fracdnn.solver.linear import attached_slopes, matrix_of
from fracdnn.solver.panel_errors import (
    FIRST_SHRINK,
    FIRST_STEP,
    FORGETTING,
    GROWTH,
    JUMP_CAUTION,
    MOST_SPENT,
    SAFETY,
    SHRINK,
    Fading,
    PanelErrors,
    Tolerances,
)
from fracdnn.solver.problem import OutOfEvaluationsError

_MAX_ITERATIONS = 20
_SLOW = 0.2  # rate of an iteration from which it needs new Jacobians
_LONGER = 1e3  # from the first change to a later one, with which an iteration diverges
# Tries of a sample beyond those that nine of ten need, after which it is left: the others would wait for it.
_MORE_TRIES, _MOST_TRIES = 100, 4.0


class BatchedPanels(PanelScheme):
    """Panels of one problem whose groups are the samples; `begin` [B, 1] are their first times.

    `jacobians` [B, S, d, d] are those of the system solved last.
    """

    jacobians: torch.Tensor
    _factors: tuple[torch.Tensor, torch.Tensor]  # of I − W J

    def start(self) -> Memory:
        """Before the first panels: a panel of slopes 0, which is far away."""
        slopes = (self.problem.value[:, None] * 0.0).expand(-1, len(self.points.places), -1)
        return Memory(self.problem.value, None, slopes, torch.full_like(self.begin, self.shortest))

    def after(self, residual: torch.Tensor) -> torch.Tensor:
        """What states [B, S, d] become of such a residual of the equations: less of it in a stiff one."""
        return torch.linalg.lu_solve(*self._factors, residual.reshape(len(residual), -1, 1)).reshape(residual.shape)

    @torch.no_grad()
    def solve(
        self,
        system: System,
        states: torch.Tensor,
        counts: torch.Tensor,
        enough: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """States and slopes [B, S, d], and which samples [B, 1] converged, of those that count; the others stay.

        `enough` is a change of iterates [B, d] with which to end; to rounding without one.
        """
        weights, known = system.weights.detach(), system.known.detach()
        epsilon, tiny = torch.finfo(known.dtype).eps, torch.finfo(known.dtype).tiny
        left, lengths, first = counts, torch.full_like(known[:, 0], math.inf), None
        slopes, found, anew, jacobians = states, counts & ~counts, True, states[..., None]
        for _ in range(_MAX_ITERATIONS):
            if anew:
                latest, jacobians = slopes_with_jacobians(self.problem, system.clock, states, apart=True)
                jacobians = torch.where(counts[..., None, None], jacobians, 0.0)
                self.jacobians = jacobians
                self._factors = torch.linalg.lu_factor_ex(matrix_of(weights[:, None], jacobians))[:2]
            else:
                latest = self.problem.slopes(system.clock, states)
            residual = states - known - weights @ latest
            change = self.after(residual)
            lost = left & ~change.flatten(1).isfinite().all(1, keepdim=True)
            before, lengths = lengths, sizes(change)
            first = lengths if first is None else first
            goal = 8.0 * epsilon * sizes(states) if enough is None else enough(states)
            rates = torch.where(before.isfinite(), lengths / before.clip(min=tiny), 1.0)
            small = (rates * lengths <= goal) & (rates * sizes(residual) <= goal)
            # What does not become shorter any more is rounding.
            small |= (rates > _SLOW) & (lengths <= 64.0 * epsilon * sizes(states)) & before.isfinite()
            done = left & small.all(1, keepdim=True) & ~lost
            # To first order the slopes at the new states; with them, the equations hold.
            corrected = latest - (jacobians @ change[..., None])[..., 0]
            slopes = torch.where(done[..., None], corrected, slopes)
            states = torch.where((left & ~lost)[..., None], states - change, states)
            lost |= left & (lengths > _LONGER * first).any(1, keepdim=True)
            found, left = found | done, left & ~done & ~lost
            if not bool(left.any()):
                break
            anew = bool(((rates > _SLOW) & before.isfinite() & ~small & left).any())
        return states, slopes, found

    def attached(
        self, system: System, states: torch.Tensor, slopes: torch.Tensor, counts: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The same states and slopes, with the derivatives of the solution."""
        with torch.no_grad():
            _, jacobians = slopes_with_jacobians(self.problem, system.clock, states, apart=True)
            jacobians = torch.where(counts[..., None, None], jacobians, 0.0)
        slopes = attached_slopes(self.problem, system, slopes, jacobians, apart=True)
        return system.states(slopes, states), slopes


@dataclass(eq=False)
class Outputs:
    """Times [B, T] from the starts on, at which solutions are noted."""

    elapsed: torch.Tensor
    _places: list[torch.Tensor] = field(default_factory=list)
    _states: list[torch.Tensor] = field(default_factory=list)

    def note(
        self, scheme: BatchedPanels, memory: Memory, panel: Panel, ends: torch.Tensor, taken: torch.Tensor
    ) -> None:
        """Those inside of the panels that samples [B, 1] have taken, up to their ends [B, 1] where others begin."""
        wanted, bounds = self.elapsed.detach(), torch.cat([panel.begin, ends], dim=1).detach()
        place = torch.arange(wanted.shape[1], device=wanted.device)
        first, last = torch.searchsorted(wanted, bounds, right=True).split(1, dim=1)
        place = first + place[: int(torch.where(taken, last - first, 0).max())]
        if not place.shape[1]:
            return
        inside, place = taken & (place < last), place.clip(max=wanted.shape[1] - 1)
        times = torch.where(inside, self.elapsed.gather(1, place), ends)
        # The end of a solve is that of its last panel; other times move apart from panels.
        at_end = (inside & (place == wanted.shape[1] - 1))[..., None]
        found = torch.where(at_end, panel.states[:, -1:], scheme.between(memory, panel, times))
        sample = torch.arange(len(wanted), device=wanted.device)[:, None]
        self._places.append((sample * wanted.shape[1] + place)[inside])
        self._states.append(found[inside])

    def states(self, start: torch.Tensor) -> torch.Tensor:
        """[B, T, d], of which those at the start are the start [B, d]; NaN where nothing was noted."""
        samples, count = self.elapsed.shape
        blank = torch.full_like(start[:, None].detach(), math.nan).expand(-1, count, -1)
        whole = torch.where((self.elapsed.detach() <= 0.0)[..., None], start[:, None], blank)
        if not self._places:
            return whole
        flat = whole.reshape(samples * count, -1)
        return flat.index_copy(0, torch.cat(self._places), torch.cat(self._states)).reshape(whole.shape)


class BatchedSearch:
    """Each sample's panels, one try of all samples at a time.

    Panels end at `stops` [B, K + 1], breakpoints and the end. With `sensitive`, derivatives are to be as good as
    states, and the panels are walked over again; without, outputs are noted on the way. What is found are `nodes`
    [B, P + 1] from the starts on, each sample's last one repeated; `guesses` and `slopes`, the states and slopes
    [B, m, d] of each panel; and of samples [B, 1] how many panels they take, `counts`, how many were `rejected`, and
    which samples `failed`.
    """

    def __init__(
        self,
        scheme: BatchedPanels,
        tolerances: Tolerances,
        outputs: Outputs,
        stops: torch.Tensor,
        longest: float,
        *,
        sensitive: bool,
    ) -> None:
        problem, self._elapsed = scheme.problem, outputs.elapsed.detach()
        self._scheme, self._tolerances, self._outputs, self._longest = scheme, tolerances, outputs, longest
        self._sensitive, self._stops, self._span = sensitive, stops, self._elapsed[:, -1:]
        self._errors = PanelErrors(scheme, tolerances, self._span, sensitive=sensitive)
        self._orders = self._errors.orders
        self._enough = partial(tolerances.enough, rounding=8.0 * torch.finfo(problem.value.dtype).eps)
        self._memory = scheme.start()
        self._now = self._end = self._origin = torch.zeros_like(self._span)  # the last is that of the last start
        self._first_output, self._stop = self._after(self._elapsed), self._after(stops)
        self._active = self._first = torch.ones_like(self._span, dtype=torch.bool)
        self.failed = self._again = self._settled = ~self._active
        self.counts = self.rejected = torch.zeros_like(self._span, dtype=torch.long)
        self._panel: Any = None
        self._nodes = [self._now]
        self.guesses: list[torch.Tensor] = []
        self.slopes: list[torch.Tensor] = []

    @property
    def nodes(self) -> torch.Tensor:
        return torch.cat(self._nodes, dim=1)

    @torch.no_grad()
    def run(self) -> None:
        """Until each sample is at its end, or left; or until func was called as often as it may be."""
        try:
            self._walk()
        except OutOfEvaluationsError:
            self._give_up(self._active)

    def _walk(self) -> None:
        first = self._errors.first_times(self._span).amin(1, keepdim=True)
        step, tries = torch.minimum(first, self._fades_until()), 0
        growth = torch.full_like(step, GROWTH)
        while bool(self._active.any()):
            step = step.clip(max=self._longest)
            rest = self._stop - self._now
            whole = step > 0.9 * rest
            step = torch.where(whole, rest, torch.where(step > 0.5 * rest, rest / 2.0, step))
            self._give_up(self._active & ~(step >= self._scheme.shortest))
            moves = self._active
            self._end = torch.where(moves, torch.where(whole, self._stop, self._now + step), self._end)
            errors = self._attempt()
            good, tries = moves & (errors <= 1.0), tries + 1
            steep = torch.where(self._first, FORGETTING + self._orders, float(len(self._scheme.points.places)))
            factor = SAFETY * errors ** (-1.0 / torch.where(self._may_jump(), 1.0, steep))
            factor = torch.where(errors.isfinite(), factor, 0.0)
            floor = torch.where(self._first & ~good, FIRST_SHRINK, SHRINK)
            step = step * torch.minimum(torch.maximum(factor, floor), torch.where(good, growth, 0.9))
            growth = torch.where(good, GROWTH, 1.0)
            self._again = torch.where(good, False, self._again | moves)
            self.rejected = self.rejected + (moves & ~good)
            restarted = self._accept(good)
            afresh = torch.minimum(FIRST_STEP * (self._stop - self._now), self._fades_until())
            step = torch.where(restarted, afresh, step)
            usual = float(torch.quantile((self.counts + self.rejected).double(), 0.9))
            self._give_up(self._active & (tries > _MOST_TRIES * usual + _MORE_TRIES))

    def _give_up(self, which: torch.Tensor) -> None:
        self.failed, self._active = self.failed | which, self._active & ~which

    def _may_jump(self) -> torch.Tensor:
        """Where func may jump on the panel that is tried."""
        return self._again & ~self._first & (self._orders <= 1.0)

    def _guess(self, system: System, length: torch.Tensor) -> torch.Tensor:
        """The states of a panel that was tried and is too long, or the slopes before, continued, or the start."""
        scheme, memory = self._scheme, self._memory
        constant = memory.state[:, None] + 0.0 * system.known
        guess = torch.where(self._first[..., None], constant, scheme.continued(memory, system, length))
        if self._panel is not None:
            places = length / self._panel.length * scheme.points.places
            shorter = scheme.points.values_at(places).to(constant) @ self._panel.states
            tried = (self._again & (length < self._panel.length))[..., None] & shorter.isfinite()
            guess = torch.where(tried, shorter, guess)
        return torch.where(guess.isfinite(), guess, constant)

    def _attempt(self) -> torch.Tensor:
        """The errors of panels to `_end`, in tolerances; infinite where they cannot be made; [B, 1]."""
        scheme, length = self._scheme, self._end - self._now
        system = scheme.system(self._memory, self._now, length)
        states, slopes, solved = scheme.solve(system, self._guess(system, length), self._active, self._enough)
        again = self._active & ~solved & ~self._again
        if bool(again.any()):  # where slopes cannot be continued
            constant = self._memory.state[:, None] + 0.0 * system.known
            other = scheme.solve(system, torch.where(again[..., None], constant, states), again, self._enough)
            won = (again & other[2])[..., None]
            states, slopes = torch.where(won, other[0], states), torch.where(won, other[1], slopes)
            solved = solved | other[2]
        self._panel = panel = Panel(self._now, length, states, slopes)
        # Until the next output after the start of the panel, from its end on.
        wait = (self._after(self._elapsed) - self._end).clip(min=0.0)
        factor = ((self._end - self._origin) / self._fades_until()).clip(max=1.0) ** FORGETTING
        unstable = (factor < 1.0) & self._active
        fading = Fading(factor, wait, calm=torch.full_like(wait, math.inf))
        if bool(unstable.any()):
            calm, ends, orders = wait + length, as_numpy(scheme.jacobians[:, [0, -1]]), as_numpy(self._orders)
            times = calm_times(ends * as_numpy(unstable)[..., None, None], orders[..., None], as_numpy(calm))
            calm, until = torch.from_numpy(times).to(calm), calm
            unstable = unstable & (calm < until)
            growing = fading.until_growth(self._end - self._origin, calm)
            fading = Fading(
                torch.where(unstable, growing.factor, factor), wait, calm=torch.where(unstable, growing.calm, math.inf)
            )
        part = (JUMP_CAUTION * length / self._span * self._errors.kept(wait, length)).clip(max=1.0)
        errors = self._errors.judge(
            self._memory,
            panel,
            replace(fading, part=torch.where(self._may_jump(), part, 1.0)),
            first=self._first,
            unstable=unstable,
            since=self._now - self._origin,
            counts=self._active,
        ).amax(1, keepdim=True)
        return torch.where(solved & ~errors.isnan(), errors, math.inf)

    def _fades_until(self) -> torch.Tensor:
        """The time from the last start or breakpoint on, up to which errors count less; [B, 1]."""
        return torch.minimum(self._first_output, self._stop) - self._origin

    def _after(self, times: torch.Tensor) -> torch.Tensor:
        """The first of the times [B, T] after now, or the last; [B, 1]."""
        place = torch.searchsorted(times, self._now, right=True).clip(max=times.shape[1] - 1)
        return times.gather(1, place)

    def _accept(self, good: torch.Tensor) -> torch.Tensor:
        """Take the panels that are good; which samples begin anew, at a breakpoint [B, 1]."""
        errors, at_output = self._errors, good & ~self._settled & (self._end >= self._first_output)
        errors.spent = errors.spent + torch.where(good, errors.left, 0.0)
        errors.largest = torch.where(good, errors.reached, errors.largest)
        spent = (errors.spent / self._tolerances.scale(self._panel.states[:, -1:])).amax(1, keepdim=True)
        unknown = errors.are_rounding().any(1, keepdim=True)
        self._give_up(good & (unknown | (at_output & ~(spent <= MOST_SPENT))))
        good = good & ~self.failed
        self._settled = self._settled | at_output
        if bool(good.any()):
            self._keep(good)
        goes_on = good & (self._end < self._span)
        self._active = self._active & (goes_on | ~good)
        if bool(goes_on.any()):
            lengths = torch.where(goes_on, self._panel.length, math.inf)
            # The modes of others must not be forgotten.
            lengths = torch.where(self._active & ~goes_on, self._memory.length, lengths)
            closed = self._scheme.close(self._memory, self._panel, float(lengths.min()))
            self._memory = merged(closed, self._memory, goes_on)
        self._now = torch.where(goes_on, self._end, self._now)
        self._first = self._first & ~goes_on
        restarted = goes_on & (self._now == self._stop)
        if bool(restarted.any()):
            self._begin_anew(restarted)
        return restarted

    def _begin_anew(self, which: torch.Tensor) -> None:
        """At a breakpoint: what was estimated before does not matter; errors count from here, if they have been met."""
        errors, met = self._errors, which & self._settled
        self._first, self._origin = self._first | which, torch.where(which, self._now, self._origin)
        self._first_output = torch.where(which, self._after(self._elapsed), self._first_output)
        self._stop = torch.where(which, self._after(self._stops), self._stop)
        errors.reach = torch.where(which, 0.0, errors.reach)
        errors.spent, self._settled = torch.where(met, 0.0, errors.spent), self._settled & ~met

    def _keep(self, good: torch.Tensor) -> None:
        """Nodes and states of the panels taken, each at its own number; and the outputs in them."""
        if not self._sensitive:
            self._outputs.note(self._scheme, self._memory, self._panel, self._end, good)
        while len(self.guesses) <= int(self.counts[good].max()):
            self.guesses.append(torch.zeros_like(self._panel.states))
            self.slopes.append(torch.zeros_like(self._panel.slopes))
            self._nodes.append(self._nodes[-1].clone())
        for number in torch.unique(self.counts[good]).tolist():
            which = good & (self.counts == number)
            self.guesses[number][which[:, 0]] = self._panel.states[which[:, 0]]
            self.slopes[number][which[:, 0]] = self._panel.slopes[which[:, 0]]
            for later in self._nodes[number + 1 :]:
                later[which] = self._end[which]
        self.counts = self.counts + good


def merged(new: Memory, old: Memory, which: torch.Tensor) -> Memory:
    """The new one for these samples [B, 1], the old one for the others."""
    far = new.far
    if far is not None:
        before = 0.0 * far if old.far is None else resized(old.far, far.shape[1] - 1)
        far = torch.where(which[..., None], far, before)
    return Memory(
        torch.where(which, new.state, old.state),
        far,
        torch.where(which[..., None], new.slopes, old.slopes),
        torch.where(which, new.length, old.length),
    )
