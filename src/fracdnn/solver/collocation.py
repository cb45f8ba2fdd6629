"""The method "collocation": panels of Radau's points, solved one after the other; see `panels`."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fracdnn.caputo.modes import Modes, kernel_modes
from fracdnn.exceptions import NotConvergedError
from fracdnn.memory.recomputation import recomputed, segment_length
from fracdnn.solver.arrays import Array, as_numpy, as_tensor, cast, library
from fracdnn.solver.constraints import MassMatrix
from fracdnn.solver.coupled import CoupledSolver, System
from fracdnn.solver.grids import Grid
from fracdnn.solver.panels import Weights
from fracdnn.solver.problem import Problem, time_text
from fracdnn.solver.rules import advance, far_weights
from fracdnn.solver.segments import repeatable
from fracdnn.tracing import carries_derivative

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
    far: Array = None
    slopes: Array = None
    length: Array = None


@dataclass
class Panel:
    """A solved panel: states and slopes [G, m, d] at its points.

    Where groups have panels of their own, as samples do, begin and length are [G, 1].
    """

    begin: Array
    length: Array
    states: Array
    slopes: Array


class PanelScheme:
    """What panels of one problem remember and integrate; `begin` is its first time and `dtype` that of the clock.

    Times are one number, or several [R], for all groups; or [G, 1] and [G, R] where each group has its own. With
    weights of NumPy's, panels are apart from any graph. `after` says what states [G, S, d] become of such a residual of
    the last system's equations: less of it in a stiff one.
    """

    after: Callable[[Array], Array]

    def __init__(self, problem: Problem, weights: Weights, begin: torch.Tensor, dtype: torch.dtype) -> None:
        self.problem, self.points = problem, weights.points
        self.begin, self.clock_dtype = begin.to(torch.float64), dtype
        self._orders = weights.orders
        self.use(weights)
        self.in_numpy = not isinstance(weights.rates, torch.Tensor)
        self.to_begin = self.points.values_at(0.0 * self.points.places[:1])  # [1, m]: values there to one at its start
        self._value, self._velocity = self.own_kind(problem.value), self.own_kind(problem.velocity)
        if problem.mass is not None:  # what is integrated
            self._value = problem.mass.times(self._value)
            self._velocity = None if self._velocity is None else problem.mass.times(self._velocity)
        orders = problem.orders  # at order 1, and with no derivative by it, nothing before a state matters after it
        self._forgets = not carries_derivative(orders) and bool((orders == 1.0).all())

    def use(self, weights: Weights) -> None:
        """Take other weights of the same points and orders, with modes for panels of other lengths."""
        self.weights, self._sorted_rates = weights, weights.rates.tolist()

    def own_kind(self, values: Any) -> Array:
        return values if values is None or not self.in_numpy else as_numpy(values)

    def tensor(self, values: Array) -> torch.Tensor:
        return as_tensor(values, self.problem.value.dtype)

    def numbers(self, values: Sequence[float]) -> Array:
        return np.array(values) if self.in_numpy else self.begin.new_tensor(values)

    def clock(self, elapsed: Array) -> tuple[torch.Tensor, ...]:
        """The times as func sees them."""
        return (self.begin + torch.as_tensor(elapsed)).to(self.clock_dtype).unbind(-1)

    @property
    def shortest(self) -> float:
        """Of panels that modes are made for."""
        return FORGOTTEN / self._sorted_rates[-1]

    def remembered(self, memory: Memory, begin: Array, elapsed: Array) -> Array:
        """What the panels before `begin` and the start give at times [R] after it; [G, R, d]."""
        if self._forgets:
            state = memory.state if self.problem.mass is None else self.problem.mass.times(memory.state)
            return state[:, None] + 0.0 * cast(elapsed, self._value)[..., None]
        own = cast(elapsed, self._value)[..., None]
        total = self._value[:, None] + own * (0.0 if self._velocity is None else self._velocity[:, None])
        if memory.slopes is not None:
            scaled = self.weights.later((elapsed - begin) / memory.length)
            total = total + cast(scaled * memory.length[..., None] ** self._orders, total) @ memory.slopes
        if memory.far is not None:
            count, weights = memory.far.shape[1] - 1, self.weights.of_modes
            weights = library(weights).concatenate([weights[:, :count], weights[:, -1:]], axis=1)
            far = far_weights(self.weights.rates[:count], weights, elapsed - (begin - memory.length))
            total = total + cast(far, total) @ memory.far
        return total

    def system(self, memory: Memory, begin: Array, length: Array) -> System:
        elapsed = begin + length * self.points.places
        known = self.remembered(memory, begin, elapsed)
        weights = cast(self.weights.own * length[..., None] ** self._orders, known)
        clock = self.clock(elapsed)
        if self.problem.follower is not None:
            self.problem.follower.begin_panel(self, begin, torch.as_tensor(elapsed), clock)

        def name() -> str:
            return f"in the panel from t = {time_text(self.begin + begin)} on"

        return System(clock, known, weights, name, self.problem.mass)

    def close(self, memory: Memory, panel: Panel, shortest: float | None = None) -> Memory:
        """What the next panel needs; `shortest` of several that have been solved."""
        if self.problem.follower is not None:
            self.problem.follower.end_panel(self, memory, panel)
        far = memory.far
        if memory.slopes is not None and not self._forgets:
            # Faster modes have died out before anybody sees them, at the end of the panel.
            count = bisect_right(self._sorted_rates, FORGOTTEN / (shortest or as_number(panel.length)))
            rates = self.weights.rates[:count]
            fresh = cast(self.points.absorbed(rates, memory.length, cast(memory.slopes, rates)), memory.slopes)
            far = fresh if far is None else fresh + advance(rates, resized(far, count), memory.length[..., None])
        return Memory(panel.states[:, -1], far, panel.slopes, panel.length)

    def between(self, memory: Memory, panel: Panel, elapsed: torch.Tensor) -> Array:
        """The solution at any times [R] of a panel; [G, R, d].

        By the integral of the slopes; where these are steep functions of the states, so that their error weighs more
        than that of the states' own interpolation, which begins at the state before, by the latter.
        """
        times, mass = self.own_kind(elapsed), panel.length[..., None] ** self._orders
        places = (times - panel.begin) / panel.length
        weights = cast(self.weights.own_at(places) * mass, panel.slopes)
        integral = self.remembered(memory, panel.begin, times) + weights @ panel.slopes
        mass_matrix = self.problem.mass
        missed = memory.state[:, None] - cast(self.to_begin, panel.states) @ panel.states
        # 1 at the start, 0 at the points
        fading = (1.0 - places[..., None] / self.points.places).prod(-1)[..., None]
        at_places = cast(self.points.values_at(places), panel.states)
        through_states = at_places @ panel.states + cast(fading, missed) * missed
        of_slopes, of_states = self.tails(panel)
        steep = (of_states < STEEP * mass[:, 0] * of_slopes)[:, None]
        if mass_matrix is None:
            return library(integral).where(steep, through_states, integral)
        integral = library(integral).where(steep, mass_matrix.times(through_states), integral)
        return mass_matrix.completed(integral, through_states)

    def tails(self, panel: Panel) -> Array:
        """What polynomials miss of slopes and of states; [2, G, d]."""
        both = library(panel.states).concatenate([panel.slopes, panel.states])
        return self.points.tail(both).reshape(2, *panel.states[:, 0].shape)

    def continued(self, memory: Memory, system: System, length: Array) -> Array:
        """The states, were the slopes those of the panel before, continued."""
        weights = self.points.values_at(1.0 + length / memory.length * self.points.places)
        constant = memory.state[:, None] + 0.0 * system.known
        return system.states(cast(weights, memory.slopes) @ memory.slopes, constant)


class Collocation(PanelScheme):
    """Panels one by one, for all groups at the same times."""

    def __init__(self, problem: Problem, weights: Weights, begin: torch.Tensor, dtype: torch.dtype) -> None:
        super().__init__(problem, weights, begin, dtype)
        self.solver = CoupledSolver(problem, _MAX_ITERATIONS)
        self.after = self.solver.after

    def start(self) -> Memory:
        return Memory(self.own_kind(self.problem.value))

    def solve(self, memory: Memory, begin: Array, length: Array, guess: Array | None = None) -> Panel:
        """The panel that begins at `begin`; `guess` are its states [G, m, d], roughly."""
        system = self.system(memory, begin, length)
        if guess is not None:
            return Panel(begin, length, *self.solver.solve(system, guess, close=True))
        constant = memory.state[:, None] + 0.0 * system.known
        if memory.slopes is not None and length <= _FARTHEST * memory.length:
            with torch.no_grad():
                continued = self.continued(memory, system, length)
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

    def found(self, memory: Memory, panel: Panel, elapsed: torch.Tensor, *, to_end: bool) -> list[torch.Tensor]:
        """The solution at times [R] of a panel, of which the last may be its end."""
        inside = elapsed[:-1] if to_end else elapsed
        states = list(self.tensor(self.between(memory, panel, inside)).unbind(1)) if len(inside) else []
        states = [*states, self.tensor(panel.states[:, -1])] if to_end else states
        if self.problem.mass is None:
            return states
        times = zip(self.clock(elapsed), states, strict=True)
        return [consistent_state(self.problem, time, state) for time, state in times]


def consistent_state(problem: Problem, time: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """Return the state [1, n] with the same derived part, mass · u, that satisfies the constraints; attached."""
    mass: Any = problem.mass
    constraints: Any = _Constraints(problem, mass)
    known = mass.times(state)[:, None]
    weights = torch.ones_like(known[..., :1])
    system = System((time,), known, weights, lambda: f"of func's constraints at t = {time_text(time)}", mass)
    return CoupledSolver(constraints, _MAX_ITERATIONS).solve(system, state.detach()[:, None])[0][:, 0]


class _Constraints:
    """A problem whose func is zero in the rows with a derivative."""

    def __init__(self, problem: Problem, mass: MassMatrix) -> None:
        self._problem, self._mass = problem, mass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._problem, name)

    def slopes(self, *arguments: Any, **options: Any) -> torch.Tensor:
        return self._mass.constraints(self._problem.slopes(*arguments, **options))

    def mapped_slope(self, time: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
        return self._mass.constraints(self._problem.mapped_slope(time, packed))

    def packed_slope(self, time: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
        return self._mass.constraints(self._problem.packed_slope(time, packed))


def as_number(time: Array) -> float:
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
    panels: list[tuple[torch.Tensor, torch.Tensor]] | None = None,
    checkpoint: bool,
) -> torch.Tensor:
    """The solution at increasing times [M] from 0 on, for panels between the nodes of a grid; [M, G, d].

    `guesses` are the states of each panel, where these are known roughly; empty where they are not. `panels` receives
    the states and slopes of each, unless they are computed again in the backward pass.
    """
    wanted = elapsed.detach()
    panel_of = (torch.searchsorted(grid.elapsed.detach(), wanted) - 1).clamp(0, grid.n_steps - 1).tolist()
    memory = scheme.start()
    at_begin = int((wanted <= 0.0).sum())
    to_end = bool(wanted[-1] == grid.elapsed[-1].detach())
    found = [memory.state] * at_begin

    def over(numbers: range, memory: Memory) -> tuple[torch.Tensor, torch.Tensor, tuple[Memory, list[torch.Tensor]]]:
        """First and last state, memory after these panels, and the solution at the times in them."""
        states: list[torch.Tensor] = []
        start = memory.state
        for number in numbers:
            begin = grid.elapsed[number]
            guess = guesses[number] if guesses else None
            panel = scheme.solve(memory, begin, grid.elapsed[number + 1] - begin, guess)
            scheme.solver.note_noise(panel.states, grid.clock[number])
            if panels is not None and not checkpoint:
                panels.append((panel.states, panel.slopes))
            mine = elapsed[bisect_left(panel_of, number, at_begin) : bisect_right(panel_of, number, at_begin)]
            states.extend(scheme.found(memory, panel, mine, to_end=to_end and number == grid.n_steps - 1))
            memory = scheme.close(memory, panel)
        return start, memory.state, (memory, states)

    length = max(round(segment_length(grid.n_steps, 1.0)), 1) if checkpoint else grid.n_steps
    for first in range(0, grid.n_steps, length):
        numbers = range(first, min(first + length, grid.n_steps))
        if checkpoint:
            memory, states = recomputed(repeatable(scheme, over), numbers, memory)
        else:
            memory, states = over(numbers, memory)[-1]
        found.extend(states)
    return torch.stack(found)


def modes_for(grid: Grid, tolerance: float) -> Modes:
    nodes = grid.elapsed.detach()
    return kernel_modes(float(nodes.diff().min()), float(nodes[-1]), tolerance)
