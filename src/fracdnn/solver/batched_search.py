"""Find panels for many samples at a time, by the rules of `adaptive` and `panel_search` for one.

Those rules are followed here as far as nothing unusual happens. A sample that needs more (very short steps, stricter
goals, a look for noise) is left to them: it comes out as not found, and is solved alone.
"""

import math
from dataclasses import dataclass, field

import torch

from fracdnn.caputo.weights import gamma
from fracdnn.solver.adaptive import FIRST_SHRINK, MOST_SPENT, SAFETY, SHRINK
from fracdnn.solver.batched_panels import BatchedPanels
from fracdnn.solver.collocation import Memory, Panel, resized
from fracdnn.solver.convergence import sizes
from fracdnn.solver.coupled import GROWING, MOST_MODES, System
from fracdnn.solver.panel_search import (
    BROKEN_TOLERANCES,
    CONTINUITY,
    FIRST,
    LONGEST_FIRST,
    MOST_BROKEN,
    NEAR_START,
    OF_ROOT,
    OF_ROUNDING,
    OF_SLOPES,
    OF_STATES,
    SAME_ROOT,
    SHORTEST_FIRST,
    STEEP_START,
    Enough,
    PanelSearch,
    of_derivatives,
    seen_mass,
)
from fracdnn.solver.problem import OutOfEvaluationsError
from fracdnn.solver.search import FIRST_STEP, FORGETTING, JUMP_CAUTION, Tolerances
from fracdnn.solver.starts import missed_integral, times_before

# Tries of a sample beyond those that nine of ten need, after which it is left: the others would wait for it.
_MORE_TRIES, _MOST_TRIES = 100, 4.0


@dataclass
class Outputs:
    """Times [B, T] from the starts on, at which solutions are noted."""

    elapsed: torch.Tensor
    _places: list[torch.Tensor] = field(default_factory=list)
    _states: list[torch.Tensor] = field(default_factory=list)

    def note(
        self, scheme: BatchedPanels, memory: Memory, panel: Panel, ends: torch.Tensor, taken: torch.Tensor
    ) -> None:
        """Those inside of the panels that samples [B] have taken, up to their ends [B, 1] where others begin."""
        wanted, bounds = self.elapsed.detach(), torch.cat([panel.begin, ends], dim=1).detach()
        first, last = torch.searchsorted(wanted, bounds, right=True).unbind(1)
        counts = torch.where(taken, last - first, 0)
        most = int(counts.max())
        if not most:
            return
        offsets = torch.arange(most, device=counts.device)
        inside = offsets < counts[:, None]
        place = (first[:, None] + offsets).clip(max=wanted.shape[1] - 1)
        times = torch.where(inside, self.elapsed.gather(1, place), ends)
        found = scheme.between(memory, panel, times)
        at_end = (times.detach() == ends.detach())[..., None]
        found = torch.where(at_end, panel.states[:, -1:], found)
        sample = torch.arange(len(counts), device=counts.device)[:, None].expand_as(place)
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


@dataclass
class Found:
    """Nodes [B, P + 1] from the starts on, each sample's last one repeated; how many panels it takes [B]; the states of
    each panel [P, B, m, d]; which samples were found [B]; and panels given up [B].
    """

    nodes: torch.Tensor
    counts: torch.Tensor
    guesses: torch.Tensor
    done: torch.Tensor
    n_rejected: torch.Tensor


class BatchedSearch:
    """Each sample's panels, one try of all samples at a time.

    Panels end at `stops` [B, K + 1], breakpoints and the end. With `sensitive`, derivatives are to be as good as
    states, and the panels are walked over again; without, outputs are noted on the way.
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
        problem, elapsed = scheme.problem, outputs.elapsed.detach()
        self._scheme, self._tolerances, self._outputs, self._longest = scheme, tolerances, outputs, longest
        self._elapsed, self._sensitive, self._stops = elapsed, sensitive, stops
        self._orders = problem.orders.detach()
        self._span = elapsed[:, -1]
        self._mass = (self._span**self._orders / gamma(self._orders + 1.0))[:, None]
        self._enough = Enough(tolerances, 8.0 * torch.finfo(problem.value.dtype).eps)
        self._memory = scheme.start()
        self._now = self._end = self._origin = torch.zeros_like(self._span)  # the last is that of the last start
        self._first_output, self._stop = self._after(elapsed, self._now), self._after(stops, self._now)
        self._active = self._first = torch.ones_like(self._span, dtype=torch.bool)
        self._failed = self._again = self._settled = ~self._active
        self._taken = self._rejected = torch.zeros_like(self._span, dtype=torch.long)
        self._largest = sizes(problem.value.detach()[:, None])
        self._reach = self._spent = torch.zeros_like(self._largest)
        self._panel: Panel | None = None
        self._nodes = [torch.zeros_like(self._span)]
        self._guesses: list[torch.Tensor] = []

    @torch.no_grad()
    def run(self) -> Found:
        """Until each sample is at its end, or left; or until func was called as often as it may be."""
        try:
            self._walk()
        except OutOfEvaluationsError:
            self._give_up(self._active)
        guesses = torch.stack(self._guesses) if self._guesses else self._span
        return Found(torch.stack(self._nodes, dim=1), self._taken, guesses, ~self._failed, self._rejected)

    def _walk(self) -> None:
        step = torch.minimum(self._first_step(), self._fades_until())
        growth = torch.full_like(step, PanelSearch.growth)
        tries = 0
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
            jumps = self._again & ~self._first & (self._orders <= 1.0)
            steep = torch.where(self._first, FORGETTING + self._orders, float(self._scheme.points.count))
            factor = SAFETY * errors ** (-1.0 / torch.where(jumps, 1.0, steep))
            factor = torch.where(errors.isfinite(), factor, 0.0)
            floor = torch.where(self._first & ~good, FIRST_SHRINK, SHRINK)
            step = step * torch.minimum(torch.maximum(factor, floor), torch.where(good, growth, 0.9))
            growth = torch.where(good, PanelSearch.growth, 1.0)
            self._again = torch.where(good, False, self._again | moves)
            self._rejected = self._rejected + (moves & ~good)
            restarted = self._accept(good)
            afresh = torch.minimum(FIRST_STEP * (self._stop - self._now), self._fades_until())
            step = torch.where(restarted, afresh, step)
            usual = float(torch.quantile((self._taken + self._rejected).double(), 0.9))
            self._give_up(self._active & (tries > _MOST_TRIES * usual + _MORE_TRIES))

    def _give_up(self, which: torch.Tensor) -> None:
        self._failed, self._active = self._failed | which, self._active & ~which

    def _first_step(self) -> torch.Tensor:
        """As long as the slopes at the start would take to undo the state, in the component that is quickest."""
        scheme, value = self._scheme, self._scheme.problem.value.detach()
        slope = scheme.problem.packed_slope(scheme.begin[:, 0].to(scheme.clock_dtype), value)
        self._give_up(slope.isnan().any(1))
        orders = self._orders[:, None]
        times = (FIRST * gamma(orders + 1.0) * value.abs() / slope.abs()) ** (1.0 / orders)
        times = torch.where((value != 0) & (slope != 0) & slope.isfinite(), times, math.inf).amin(1)
        return torch.minimum(torch.maximum(times, SHORTEST_FIRST * self._span), LONGEST_FIRST * self._span)

    def _guess(self, system: System, length: torch.Tensor) -> torch.Tensor:
        """The states of a panel that was tried and is too long, or the slopes before, continued, or the start."""
        scheme, memory = self._scheme, self._memory
        constant = memory.state[:, None] + 0.0 * system.known
        guess = torch.where(self._first[:, None, None], constant, scheme.continued(memory, system, length[:, None]))
        if self._panel is not None:
            places = length[:, None] / self._panel.length * scheme.points.places
            shorter = scheme.points.values_at(places).to(constant) @ self._panel.states
            tried = (self._again & (length < self._panel.length[:, 0]))[:, None, None] & shorter.isfinite()
            guess = torch.where(tried, shorter, guess)
        return torch.where(guess.isfinite(), guess, constant)

    def _attempt(self) -> torch.Tensor:
        """The errors of panels to `_end`, in tolerances; infinite where they cannot be made."""
        scheme, length, span = self._scheme, self._end - self._now, self._span
        system = scheme.system(self._memory, self._now[:, None], length[:, None])
        states, slopes, solved = scheme.solve(system, self._guess(system, length), self._active, self._enough)
        again = self._active & ~solved & self._again.logical_not()
        if bool(again.any()):  # where slopes cannot be continued
            constant = self._memory.state[:, None] + 0.0 * system.known
            other = scheme.solve(system, torch.where(again[:, None, None], constant, states), again, self._enough)
            won = (again & other[2])[:, None, None]
            states, slopes = torch.where(won, other[0], states), torch.where(won, other[1], slopes)
            solved = solved | other[2]
        self._panel = panel = Panel(self._now[:, None], length[:, None], states, slopes)
        orders = self._orders[:, None]
        part, wait = (length / span)[:, None], self._wait()[:, None]
        kept = torch.maximum(wait / span[:, None], part) ** (orders - 1.0)
        factor = (((self._end - self._origin) / self._fades_until()).clip(max=1.0) ** FORGETTING)[:, None]
        unstable = (factor < 1.0)[:, 0] & self._active
        if bool(unstable.any()):
            duration = (wait[:, 0] + length)[:, None, None, None] ** orders[:, :, None, None]
            unstable = unstable & _may_grow(scheme.jacobians[:, [0, -1]] * duration.to(states), self._orders)
        factor, wait = torch.where(unstable[:, None], 1.0, factor), torch.where(unstable[:, None], 0.0, wait)
        jumps = (self._again & ~self._first)[:, None] & (orders <= 1.0)
        slope_part = torch.where(jumps, (JUMP_CAUTION * part * kept).clip(max=1.0), 1.0)
        grown = ((span - self._now) / length)[:, None] ** (orders - 1.0).clip(min=0.0)
        error = torch.minimum(
            slope_part * OF_SLOPES * self._mass * scheme.points.tail(slopes),
            OF_STATES * grown * scheme.points.tail(states),
        )
        local = torch.where(slope_part == 1.0, 1.0, (JUMP_CAUTION * kept * part ** (1.0 - orders)).clip(max=1.0))
        gap = abs(scheme.to_begin.to(states) @ states - self._memory.state[:, None])[:, 0]
        later = ~self._first[:, None]
        broken = torch.where(later, local * gap, 0.0)
        jump = abs(scheme.to_begin.to(slopes) @ slopes - self._memory.slopes[:, -1:])[:, 0]
        before_first = panel.length * float(scheme.points.places[0])
        seen = seen_mass(self._mass, orders, span[:, None], (span - self._now)[:, None], before_first)
        of_jump = torch.maximum(local * seen * jump, CONTINUITY * broken)
        error = torch.maximum(error, torch.where(later, of_jump, 0.0))
        left = orders * part * kept * error
        error, largest = factor * error, sizes(states)
        if bool((self._first & self._active).any()):
            error, left, largest = self._with_start(panel, error, left, largest, wait, unstable, gap)
        self._left, self._allowed = left, self._tolerances.scale(largest[:, None])
        near = self._active & (length > NEAR_START * (self._now - self._origin))
        if self._sensitive and bool(near.any()):
            of_slopes = of_derivatives(scheme, scheme.after, system.clock, panel, self._mass)
            error = torch.where(near[:, None], torch.maximum(error, factor * of_slopes), error)
        allowed = MOST_BROKEN * sizes(states) + BROKEN_TOLERANCES * self._allowed
        errors = torch.maximum(error / self._allowed, broken / allowed).amax(1)
        return torch.where(solved & ~errors.isnan(), errors, math.inf)

    def _with_start(
        self,
        panel: Panel,
        error: torch.Tensor,
        left: torch.Tensor,
        largest: torch.Tensor,
        wait: torch.Tensor,
        unstable: torch.Tensor,
        gap: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Of first panels: with what is left, at the first output, of what func does before their first point."""
        first = self._first[:, None]
        self._reach = torch.where(first, torch.maximum(self._reach, largest), self._reach)
        close = (error / self._tolerances.scale(largest[:, None]) <= 1.0).all(1, keepdim=True) & first
        of_start, steep = self._of_start(panel, wait)
        other_root = unstable[:, None] & (gap > SAME_ROOT * self._reach)
        of_start = torch.where(other_root, torch.maximum(of_start, OF_ROOT * gap), of_start)
        error = torch.where(close, torch.maximum(error, of_start), error)
        left = torch.where(close, torch.maximum(left, of_start), left)
        return error, left, torch.where(close & steep, self._reach, largest)

    def _of_start(self, panel: Panel, wait: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scheme, orders, length = self._scheme, self._orders[:, None], panel.length
        interval = length * scheme.points.places[0]
        base, first = self._memory.state[:, None], panel.states[:, :1]
        finest = 16.0 * torch.finfo(scheme.clock_dtype).eps * float((scheme.begin[:, 0] + self._now).abs().max())
        times = times_before(torch.where(self._first[:, None], interval, interval.max()), finest)
        if not times:
            return torch.zeros_like(base[:, 0]), torch.zeros_like(self._first)[:, None]
        elapsed = torch.cat(times, dim=1)
        shares = ((elapsed / interval)[..., None] ** orders.clip(max=1.0)[..., None]).to(base)
        clock = scheme.begin + self._now[:, None] + torch.where(self._first[:, None], elapsed, 0.0)
        slopes = scheme.problem.slopes(clock.to(scheme.clock_dtype).unbind(1), base + (first - base) * shares)
        taken = scheme.points.values_at(elapsed / length).to(slopes) @ panel.slopes
        missed, powers = missed_integral(elapsed.to(slopes), slopes, taken)
        distances = torch.maximum(scheme.points.places * length, interval)[..., None] / length[..., None]
        seen = missed[:, None] * (distances ** (orders - 1.0)[..., None]).to(missed)
        at_end = abs(self._scheme.after(seen))[:, -1]
        span = self._span[:, None]
        distance = torch.where(orders > 1.0, span, torch.maximum(torch.minimum(wait, span), length))
        of_start = at_end * self._mass * orders * (distance / span) ** (orders - 1.0) / span
        return of_start, powers.amax(1, keepdim=True) > STEEP_START

    def _wait(self) -> torch.Tensor:
        """Until the next output after the start of the panel, from its end on; [B]."""
        return (self._after(self._elapsed, self._now) - self._end).clip(min=0.0)

    def _fades_until(self) -> torch.Tensor:
        """The time from the last start or breakpoint on, up to which errors count less; [B]."""
        return torch.minimum(self._first_output, self._stop) - self._origin

    @staticmethod
    def _after(times: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
        """The first of the times [B, T] after now [B], or the last."""
        place = torch.searchsorted(times, now[:, None], right=True).clip(max=times.shape[1] - 1)
        return times.gather(1, place)[:, 0]

    def _accept(self, good: torch.Tensor) -> torch.Tensor:
        """Take the panels that are good; which samples begin anew, at a breakpoint [B]."""
        assert self._panel is not None
        self._spent = self._spent + torch.where(good[:, None], self._left, 0.0)
        self._largest = torch.where(
            good[:, None], torch.maximum(self._largest, sizes(self._panel.states)), self._largest
        )
        unknown = (self._allowed < OF_ROUNDING * torch.finfo(torch.float64).eps * self._largest).any(1)
        at_output = good & ~self._settled & (self._end >= self._first_output)
        spent = (self._spent / self._tolerances.scale(self._panel.states[:, -1:])).amax(1)
        self._give_up(good & (unknown | (at_output & ~(spent <= MOST_SPENT))))
        good = good & ~self._failed
        self._settled = self._settled | at_output
        if not bool(good.any()):
            return good
        if not self._sensitive:
            self._outputs.note(self._scheme, self._memory, self._panel, self._end[:, None], good)
        self._keep(good)
        ended = good & (self._end >= self._span)
        self._active = self._active & ~ended
        goes_on = good & ~ended
        shortest = float((self._end - self._now)[goes_on].min()) if bool(goes_on.any()) else self._scheme.shortest
        others = self._active & ~goes_on  # whose modes must not be forgotten
        if bool(others.any()):
            shortest = min(shortest, float(self._memory.length[others].min()))
        closed = self._scheme.close(self._memory, self._panel, shortest)
        self._memory = merged(closed, self._memory, goes_on)
        self._now = torch.where(goes_on, self._end, self._now)
        self._first = self._first & ~goes_on
        restarted = goes_on & (self._now == self._stop)
        if bool(restarted.any()):
            self._begin_anew(restarted)
        return restarted

    def _begin_anew(self, which: torch.Tensor) -> None:
        """At a breakpoint: what was estimated before does not matter; errors count from here, if they have been met."""
        self._first, self._origin = self._first | which, torch.where(which, self._now, self._origin)
        self._first_output = torch.where(which, self._after(self._elapsed, self._now), self._first_output)
        self._stop = torch.where(which, self._after(self._stops, self._now), self._stop)
        self._reach = torch.where(which[:, None], 0.0, self._reach)
        met = which & self._settled
        self._spent, self._settled = torch.where(met[:, None], 0.0, self._spent), self._settled & ~met

    def _keep(self, good: torch.Tensor) -> None:
        """Nodes and states of the panels taken, each at its own number."""
        assert self._panel is not None
        while len(self._guesses) <= int(self._taken[good].max()):
            self._guesses.append(torch.zeros_like(self._panel.states))
            self._nodes.append(self._nodes[-1].clone())
        for number in torch.unique(self._taken[good]).tolist():
            which = good & (self._taken == number)
            self._guesses[number][which] = self._panel.states[which]
            for later in self._nodes[number + 1 :]:
                later[which] = self._end[which]
        self._taken = self._taken + good


def _may_grow(matrices: torch.Tensor, orders: torch.Tensor) -> torch.Tensor:
    """Whether a mode of these matrices [B, E, d, d] grows; see `CoupledSolver.grows`."""
    if matrices.shape[-1] > MOST_MODES:
        return torch.zeros_like(orders, dtype=torch.bool)
    bound = matrices.abs().sum(-1).amax((1, 2))  # of the modes
    may = (bound > GROWING) & bound.isfinite()
    modes = torch.linalg.eigvals(matrices[may].cpu()).to(matrices.device)  # which a GPU finds one by one
    grows = (modes.angle().abs() < 0.5 * math.pi * orders[may][:, None, None]) & (modes.abs() > GROWING)
    return may.masked_scatter(may, grows.flatten(1).any(1))


def merged(new: Memory, old: Memory, which: torch.Tensor) -> Memory:
    """The new one for these samples, the old one for the others."""
    far = new.far
    if far is not None:
        before = 0.0 * far if old.far is None else resized(old.far, far.shape[1] - 1)
        far = torch.where(which[:, None, None], far, before)
    return Memory(
        torch.where(which[:, None], new.state, old.state),
        far,
        torch.where(which[:, None, None], new.slopes, old.slopes),
        torch.where(which[:, None], new.length, old.length),
    )
