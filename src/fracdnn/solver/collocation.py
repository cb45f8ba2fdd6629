"""The method "collocation": panels of Radau's points, solved one after the other; see `panels`."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.checkpoint import checkpoint as recomputed

from fracdnn.caputo.modes import Modes, kernel_modes
from fracdnn.exceptions import NotConvergedError
from fracdnn.memory.recomputation import segment_length
from fracdnn.solver.arrays import Array, as_numpy, as_tensor, cast, library
from fracdnn.solver.coupled import CoupledSolver, System
from fracdnn.solver.mesh import Grid
from fracdnn.solver.panels import Weights, points
from fracdnn.solver.problem import Problem, time_text
from fracdnn.solver.rules import advance, far_weights
from fracdnn.solver.segments import Repeatable

_MAX_ITERATIONS = 40
STEEP = 0.1
FORGOTTEN = 40.0  # e^−40 of a mode
_FARTHEST = 4.0  # lengths of the panel before over which its slopes are continued


@dataclass
class Memory:
    """What a panel needs of those before: the last state [G, d], the modes at the start of the last panel, its slopes
    [G, m, d] and length.
    """

    state: Array
    far: Array | None = None
    slopes: Array | None = None
    length: Array | None = None


@dataclass
class Panel:
    """A solved panel: states and slopes [G, m, d] at its points."""

    begin: Array
    length: Array
    states: Array
    slopes: Array


class Collocation:
    """Panels of one problem; `begin` is its first time and `dtype` that of the clock.

    With weights of NumPy's, panels are apart from any graph. `enough` is a change of iterates with which to end.
    """

    def __init__(
        self,
        problem: Problem,
        weights: Weights,
        begin: torch.Tensor,
        dtype: torch.dtype,
        *,
        enough: Callable[[Array], Array] | None = None,
    ) -> None:
        self.problem, self.weights, self.points = problem, weights, weights.points
        self._begin, self.clock_dtype = begin.to(torch.float64), dtype
        self.solver = CoupledSolver(problem, _MAX_ITERATIONS, enough)
        self._orders = weights.kernel.orders
        self._sorted_rates = weights.rates.tolist()
        self.in_numpy = not isinstance(weights.rates, torch.Tensor)
        self._value, self._velocity = self._own_kind(problem.value), self._own_kind(problem.velocity)

    def _own_kind(self, values: Any) -> Array:
        return values if values is None or not self.in_numpy else as_numpy(values)

    def start(self) -> Memory:
        """Before the first panel."""
        return Memory(self._value)

    def time(self, elapsed: float) -> Array:
        """Of either kind."""
        return elapsed if self.in_numpy else self._begin.new_tensor(elapsed)

    def numbers(self, values: list[float]) -> Array:
        """The same of several."""
        return np.array(values) if self.in_numpy else self._begin.new_tensor(values)

    def remembered(self, memory: Memory, begin: Array, elapsed: Array) -> Array:
        """What the panels before `begin` and the start give at times [R] after it; [G, R, d]."""
        total = self._value[:, None] + 0.0 * cast(elapsed, self._value)[:, None]
        if self._velocity is not None:
            total = total + cast(elapsed, total)[:, None] * self._velocity[:, None]
        if memory.slopes is not None and memory.length is not None:
            scaled = self.points.later_weights(self.weights.kernel, (elapsed - begin) / memory.length)
            total = total + cast(scaled * memory.length**self._orders, total) @ memory.slopes
        if memory.far is not None and memory.length is not None:
            distance = elapsed - (begin - memory.length)
            rates, weights = self._modes(memory.far.shape[1] - 1)
            total = total + cast(far_weights(rates, weights, distance), total) @ memory.far
        return total

    def solve(self, memory: Memory, begin: Array, length: Array, guess: Array | None = None) -> Panel:
        """The panel that begins at `begin`; `guess` are its states [G, m, d], roughly."""
        elapsed = begin + length * self.points.places
        known = self.remembered(memory, begin, elapsed)
        weights = cast(self.weights.own * length**self._orders, known)
        elapsed = torch.from_numpy(elapsed) if self.in_numpy else elapsed
        clock = (self._begin + elapsed).to(self.clock_dtype)
        if self.problem.follower is not None:
            self.problem.follower.begin_panel(self, begin, elapsed, clock.unbind(0))
        system = System(
            clock.unbind(0), known, weights, lambda: f"in the panel from t = {time_text(self._begin + begin)} on"
        )
        if guess is not None:
            return Panel(begin, length, *self.solver.solve(system, guess, close=True))
        constant = memory.state[:, None] + 0.0 * system.known
        continued = self._continued(memory, system, length)
        if continued is not None:
            try:
                return Panel(begin, length, *self.solver.solve(system, continued))
            except NotConvergedError:
                pass  # where slopes cannot be continued
        try:
            return Panel(begin, length, *self.solver.solve(system, constant))
        except NotConvergedError:
            for time in system.clock:
                self.problem.check_slope(time, self.tensor(memory.state))
            raise

    def close(self, memory: Memory, panel: Panel) -> Memory:
        """What the next panel needs."""
        if self.problem.follower is not None:
            self.problem.follower.end_panel(self, memory, panel)
        far = memory.far
        if memory.slopes is not None and memory.length is not None:
            # Faster modes have died out before anybody sees them, at the end of the panel.
            count = bisect_right(self._sorted_rates, FORGOTTEN / _number(panel.length))
            rates = self.weights.rates[:count]
            absorbed = self.points.absorbed(rates, memory.length)
            fresh = cast(absorbed, memory.slopes) @ memory.slopes
            far = fresh if far is None else fresh + advance(rates, resized(far, count), memory.length)
        return Memory(panel.states[:, -1], far, panel.slopes, panel.length)

    def _modes(self, count: int) -> tuple[Array, Array]:
        """So many rates [K], and the kernel's weights [G, K + 1] of them and of t."""
        weights = self.weights.of_modes
        chosen = library(weights).concatenate([weights[:, :count], weights[:, -1:]], axis=1)
        return self.weights.rates[:count], chosen

    def found(self, memory: Memory, panel: Panel, elapsed: torch.Tensor, *, to_end: bool) -> list[torch.Tensor]:
        """The solution at times [R] of a panel, of which the last may be its end."""
        inside = elapsed[:-1] if to_end else elapsed
        states = list(self._between(memory, panel, inside).unbind(0)) if len(inside) else []
        return [*states, self.tensor(panel.states[:, -1])] if to_end else states

    def _between(self, memory: Memory, panel: Panel, elapsed: torch.Tensor) -> torch.Tensor:
        """The solution at any times [R] of a panel; [R, G, d].

        By the integral of the slopes; where these are steep functions of the states, so that their error weighs more
        than that of the states' own interpolation, which begins at the state before, by the latter.
        """
        own = points(self.points.count).to(elapsed.device).own_weights
        times, mass = self._own_kind(elapsed), panel.length**self._orders
        places = (times - panel.begin) / panel.length
        weights = self._own_kind(own(self.problem.orders, (elapsed - panel.begin) / panel.length)) * mass
        integral = self.remembered(memory, panel.begin, times) + cast(weights, panel.slopes) @ panel.slopes
        at_places, at_begin = self.points.values_at(places), self.points.values_at(0.0 * places[:1])
        missed = memory.state[:, None] - cast(at_begin, panel.states) @ panel.states
        fading = (1.0 - places[:, None] / self.points.places).prod(-1)[:, None]  # 1 at the start, 0 at the points
        through_states = cast(at_places, panel.states) @ panel.states + cast(fading, missed) * missed
        of_slopes, of_states = self.tails(panel)
        steep = (of_states < STEEP * mass[:, 0] * of_slopes)[:, None]
        return self.tensor(library(integral).where(steep, through_states, integral)).transpose(0, 1)

    def tails(self, panel: Panel) -> Array:
        """What polynomials miss of slopes and of states; [2, G, d]."""
        both = library(panel.states).concatenate([panel.slopes, panel.states])
        return self.points.tail(both).reshape(2, *panel.states[:, 0].shape)

    def tensor(self, values: Array) -> torch.Tensor:
        """In the problem's dtype."""
        return as_tensor(values, self.problem.value.dtype)

    @torch.no_grad()
    def _continued(self, memory: Memory, system: System, length: Array) -> Array | None:
        """The states, were the slopes those of the panel before, continued; None where there is none to speak of."""
        if memory.slopes is None or memory.length is None or _number(length) > _FARTHEST * _number(memory.length):
            return None
        weights = self.points.values_at(1.0 + length / memory.length * self.points.places)
        return system.states(cast(weights, memory.slopes) @ memory.slopes)


def _number(time: Array) -> float:
    return float(time.detach()) if isinstance(time, torch.Tensor) else time


def resized(far: Array, count: int) -> Array:
    """Modes [G, K + 1, d] for another number K, with 0 for those that were forgotten."""
    missing = count + 1 - far.shape[1]
    rest = [] if missing <= 0 else [library(far).stack([0.0 * far[:, 0]] * missing, axis=1)]
    return library(far).concatenate([far[:, :-1][:, :count], *rest, far[:, -1:]], axis=1)


def walk(
    scheme: Collocation,
    grid: Grid,
    elapsed: torch.Tensor,
    *,
    guesses: Sequence[torch.Tensor] = (),
    checkpoint: bool,
) -> torch.Tensor:
    """The solution at increasing times [M] from 0 on, for panels between the nodes of a grid; [M, G, d].

    `guesses` are the states of each panel, where these are known roughly; empty where they are not.
    """
    wanted = elapsed.detach()
    panel_of = (torch.searchsorted(grid.elapsed.detach(), wanted) - 1).clamp(0, grid.n_steps - 1).tolist()
    memory = scheme.start()
    at_begin = int((wanted <= 0.0).sum())
    to_end = bool(wanted[-1] == grid.elapsed[-1].detach())
    found = [memory.state] * at_begin

    def over(numbers: range, memory: Memory, part: Repeatable | None) -> tuple[Memory, list[torch.Tensor]]:
        states: list[torch.Tensor] = []
        start = memory.state
        if part is not None:
            part.begin()
        for number in numbers:
            begin = grid.elapsed[number]
            guess = guesses[number] if guesses else None
            panel = scheme.solve(memory, begin, grid.elapsed[number + 1] - begin, guess)
            scheme.solver.note_noise(panel.states, grid.clock[number])
            mine = elapsed[bisect_left(panel_of, number, at_begin) : bisect_right(panel_of, number, at_begin)]
            states.extend(scheme.found(memory, panel, mine, to_end=to_end and number == grid.n_steps - 1))
            memory = scheme.close(memory, panel)
        if part is not None:
            part.end(start, memory.state)
        return memory, states

    length = max(round(segment_length(grid.n_steps, 1.0)), 1) if checkpoint else grid.n_steps
    for first in range(0, grid.n_steps, length):
        numbers = range(first, min(first + length, grid.n_steps))
        if checkpoint:
            memory, states = recomputed(over, numbers, memory, Repeatable(scheme), use_reentrant=False)
        else:
            memory, states = over(numbers, memory, None)
        found.extend(states)
    return torch.stack(found)


def modes_for(grid: Grid, tolerance: float) -> Modes:
    """The modes that panels between the nodes of a grid need."""
    nodes = grid.elapsed.detach()
    return kernel_modes(float(nodes.diff().min()), float(nodes[-1]), tolerance)
