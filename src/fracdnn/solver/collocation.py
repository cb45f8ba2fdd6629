"""The method "collocation": panels of Radau's points, solved one after the other; see `panels`."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils.checkpoint import checkpoint as recomputed

from fracdnn.caputo.modes import Modes, kernel_modes
from fracdnn.exceptions import NotConvergedError, NotFiniteError
from fracdnn.solver.adaptive import Search
from fracdnn.solver.grids import Spacing
from fracdnn.solver.implicit import (
    accelerated,
    attached,
    attached_by_iteration,
    done,
    jacobian,
    norm,
    within_rounding,
)
from fracdnn.solver.mesh import Grid
from fracdnn.solver.panels import Points, points
from fracdnn.solver.problem import Problem, time_text
from fracdnn.solver.rules import advance, far_weights
from fracdnn.tracing import being_transformed

_POINTS = 8  # of a panel on a grid that was asked for
MODES_TOLERANCE = 1e-12
_SHORTEST = 1e-13  # of panels that a search may try, in spans
# Unknowns up to which a panel is solved by Newton's method with a dense matrix.
_DENSE = 512
_MAX_ITERATIONS = 40
_ENOUGH = 1e-3  # of the tolerance, for the iterates of a search
# What the tails of Legendre coefficients become in the solution: they oscillate, so that little of their integral is
# left; and memory keeps more of a state's error than the state itself. Measured on the problems of docs/solver.md.
_OF_SLOPES, _OF_STATES = 0.02, 4.0
_STEEP = 0.1
_SLOW = 0.3  # a matrix that reduces the change of an iterate less than this is made anew


@dataclass
class Memory:
    """What a panel needs of those before: the modes at the begin of the last one, its slopes [G, m, d] and length."""

    far: torch.Tensor | None
    slopes: torch.Tensor | None
    length: torch.Tensor | None


@dataclass
class Panel:
    """A solved panel: states and slopes [G, m, d] at its points."""

    begin: torch.Tensor
    length: torch.Tensor
    states: torch.Tensor
    slopes: torch.Tensor


class Collocation:
    """Panels of one problem, with m points each."""

    def __init__(
        self,
        problem: Problem,
        count: int,
        modes: Modes,
        clock_begin: torch.Tensor,
        dtype: torch.dtype,
        *,
        enough: float = 0.0,
    ) -> None:
        device = problem.value.device
        self.problem = problem
        self.points: Points = points(count).to(device)
        self._modes = modes.to(device)
        self._enough = enough  # a change of an iterate after which it is taken as it is
        self._begin, self._clock_dtype = clock_begin.to(torch.float64), dtype
        self._kernel = self._modes.weights(problem.orders)
        self._own = self.points.own_weights(problem.orders, self.points.places)

    def remembered(self, memory: Memory, begin: torch.Tensor, elapsed: torch.Tensor) -> torch.Tensor:
        """What the panels before `begin` and the start give at times [R] after it; [G, R, d]."""
        total = self.problem.without_memory(elapsed).transpose(0, 1)
        if memory.slopes is not None and memory.length is not None:
            scaled = self.points.later_weights(self.problem.orders, (elapsed - begin) / memory.length)
            weights = scaled * memory.length ** self.problem.orders.view(-1, 1, 1)
            total = total + torch.bmm(weights.to(total.dtype), memory.slopes)
        if memory.far is not None and memory.length is not None:
            distance = elapsed - (begin - memory.length)
            weights = far_weights(self._modes, self._kernel, distance)
            total = total + torch.bmm(weights.to(total.dtype), memory.far)
        return total

    def solve(self, memory: Memory, begin: torch.Tensor, length: torch.Tensor, guess: torch.Tensor) -> Panel:
        """The panel that begins at `begin`; `guess` is a state [G, d], or one for each point [G, m, d]."""
        elapsed = begin + length * self.points.places
        known = self.remembered(memory, begin, elapsed)
        weights = (self._own * length ** self.problem.orders.view(-1, 1, 1)).to(known.dtype)
        clock = (self._begin + elapsed).to(self._clock_dtype).unbind(0)
        name = f"in the panel from t = {time_text(self._begin + begin)} on"
        with torch.no_grad():
            try:
                solution = self._solution(known.detach(), weights.detach(), clock, guess.detach(), name)
            except NotConvergedError:
                for time in clock:
                    self.problem.check_slope(time, guess if guess.dim() == 2 else guess[:, -1])
                raise
        if not torch.is_grad_enabled() and not being_transformed():
            return Panel(begin, length, *self._evaluate(clock, solution))
        return Panel(begin, length, *self._evaluate(clock, self._attached(known, weights, clock, solution, name)))

    def close(self, memory: Memory, panel: Panel) -> Memory:
        """What the next panel needs."""
        far = memory.far
        if memory.slopes is not None and memory.length is not None:
            absorbed = self.points.absorbed(self._modes, memory.length).to(memory.slopes.dtype)
            fresh = torch.matmul(absorbed, memory.slopes)
            far = fresh if far is None else fresh + advance(self._modes, far, memory.length)
        return Memory(far, panel.slopes, panel.length)

    def between(self, memory: Memory, panel: Panel, elapsed: torch.Tensor) -> torch.Tensor:
        """The solution at any times [R] of a panel; [R, G, d].

        By the integral of the slopes; where these are steep functions of the states, so that their error weighs more
        than that of the states' own interpolation, by the latter.
        """
        places, orders = (elapsed - panel.begin) / panel.length, self.problem.orders
        mass = panel.length ** orders.view(-1, 1, 1)
        weights = self.points.own_weights(orders, places) * mass
        own = torch.bmm(weights.to(panel.slopes.dtype), panel.slopes)
        integral = self.remembered(memory, panel.begin, elapsed) + own
        through_states = torch.matmul(self.points.values_at(places).to(panel.states.dtype), panel.states)
        of_slopes = mass.detach().squeeze(-1) * tail(self.points, panel.slopes.detach())
        steep = (tail(self.points, panel.states.detach()) < _STEEP * of_slopes).unsqueeze(1)
        return torch.where(steep, through_states, integral).transpose(0, 1)

    def _evaluate(self, clock: tuple[torch.Tensor, ...], states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pairs = [self.problem.evaluate(time, state) for time, state in zip(clock, states.unbind(1), strict=True)]
        return torch.stack([seen for seen, _ in pairs], dim=1), torch.stack([slope for _, slope in pairs], dim=1)

    def _solution(
        self,
        known: torch.Tensor,
        weights: torch.Tensor,
        clock: tuple[torch.Tensor, ...],
        guess: torch.Tensor,
        name: str,
    ) -> torch.Tensor:
        def image(states: torch.Tensor) -> torch.Tensor:
            return known + torch.bmm(weights, self._evaluate(clock, states)[1])

        states = (guess if guess.dim() == known.dim() else guess.unsqueeze(1).expand_as(known)).contiguous()
        if known.numel() > _DENSE and not being_transformed():
            return accelerated(image, states, _MAX_ITERATIONS, lambda residual: _not_converged(name, residual))
        # Newton's method with one Jacobian for all points, at the end of the panel before; anew where that is slow.
        matrix, size, fresh = None, math.inf, False
        for _ in range(_MAX_ITERATIONS):
            residual = states - image(states)
            if done(residual, states):
                return states
            if matrix is None:
                jacobians = self._jacobians(clock, states, everywhere=fresh)
                matrix = torch.linalg.lu_factor(_matrix(weights, jacobians))
            change = _by_points(torch.linalg.lu_solve(*matrix, _flat(residual)), states)
            if not bool(torch.isfinite(change).all()):
                break
            states = states - change
            if norm(change) <= self._enough or done(change, states):
                return states
            if norm(change) > _SLOW * size:
                if fresh and within_rounding(change, states):
                    return states
                matrix, fresh = None, True
            size = norm(change)
        raise _not_converged(name, change)

    def _jacobians(self, clock: tuple[torch.Tensor, ...], states: torch.Tensor, *, everywhere: bool) -> torch.Tensor:
        """[m, n, n] with n = G · d."""

        def at(k: int) -> torch.Tensor:
            return jacobian(lambda state: self.problem.packed_slope(clock[k], state), states[:, k])

        if everywhere:
            return torch.stack([at(k) for k in range(len(clock))])
        one = at(len(clock) - 1)
        return one.expand(len(clock), *one.shape)

    def _attached(
        self,
        known: torch.Tensor,
        weights: torch.Tensor,
        clock: tuple[torch.Tensor, ...],
        solution: torch.Tensor,
        name: str,
    ) -> torch.Tensor:
        """The solution with its derivatives, by one more step of Newton's."""

        def image(states: torch.Tensor) -> torch.Tensor:
            return known + torch.bmm(weights, self._evaluate(clock, states)[1])

        once = image(solution)
        if not once.requires_grad and not being_transformed():
            return solution
        if known.numel() <= _DENSE or being_transformed():
            matrix = _matrix(weights.detach(), self._jacobians(clock, solution, everywhere=True)).detach()
            return attached(
                lambda states: _by_points(torch.linalg.solve(matrix, _flat(states - image(states))), states), solution
            )
        transposed = weights.detach().transpose(1, 2)
        return attached_by_iteration(
            once,
            solution,
            lambda states: self._evaluate(clock, states)[1],
            lambda adjoint: torch.bmm(transposed, adjoint),
            _MAX_ITERATIONS,
            lambda residual: _not_converged(name, residual),
        )


def _matrix(weights: torch.Tensor, jacobians: torch.Tensor) -> torch.Tensor:
    """I − W J, [m n, m n], where the unknowns of a point come together."""
    groups, m, _ = weights.shape
    n = jacobians.shape[-1]
    by_component = weights.repeat_interleave(n // groups, dim=0)  # [n, m, m]
    product = torch.einsum("cij,jcx->icjx", by_component, jacobians)
    return torch.eye(m * n, dtype=weights.dtype, device=weights.device) - product.reshape(m * n, m * n)


def _flat(states: torch.Tensor) -> torch.Tensor:
    return states.transpose(0, 1).reshape(-1, 1)


def _by_points(flat: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    groups, m, d = like.shape
    return flat.reshape(m, groups, d).transpose(0, 1)


def _not_converged(name: str, residual: torch.Tensor) -> NotConvergedError:
    return NotConvergedError(
        f"the iteration did not converge in {_MAX_ITERATIONS} steps {name}: the last change is {norm(residual):.3g}; "
        f"use shorter panels (step_size, n_steps), or check that func is smooth there"
    )


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
    memory, last = Memory(None, None, None), scheme.problem.value
    at_begin = int((wanted <= 0.0).sum())
    found = [last] * at_begin

    def over(numbers: range, memory: Memory, last: torch.Tensor) -> tuple[Memory, torch.Tensor, list[torch.Tensor]]:
        states: list[torch.Tensor] = []
        for number in numbers:
            begin = grid.elapsed[number]
            guess = guesses[number] if guesses else last
            panel = scheme.solve(memory, begin, grid.elapsed[number + 1] - begin, guess)
            mine = elapsed[bisect_left(panel_of, number, at_begin) : bisect_right(panel_of, number, at_begin)]
            if len(mine):
                states.extend(scheme.between(memory, panel, mine).unbind(0))
            memory, last = scheme.close(memory, panel), panel.states[:, -1]
        return memory, last, states

    length = max(round(grid.n_steps**0.5), 1) if checkpoint else grid.n_steps
    for first in range(0, grid.n_steps, length):
        numbers = range(first, min(first + length, grid.n_steps))
        if checkpoint:
            memory, last, states = recomputed(over, numbers, memory, last, use_reentrant=False)
        else:
            memory, last, states = over(numbers, memory, last)
        found.extend(states)
    return torch.stack(found)


class PanelSearch(Search):
    """Panels of such lengths that the Legendre coefficients of the slopes on them have died out."""

    growth = 3.0
    slope_at_begin = False

    def __init__(
        self, problem: Problem, count: int, times: torch.Tensor, clock: torch.Tensor, spacing: Spacing
    ) -> None:
        span = float((times[-1] - times[0]).detach())
        super().__init__(problem, times[0].detach(), span, spacing)
        modes = kernel_modes(_SHORTEST * min(float((times[1] - times[0]).detach()), span), span, MODES_TOLERANCE)
        enough = _ENOUGH * (spacing.smallest_atol + spacing.smallest_rtol * norm(problem.value))
        self._scheme = Collocation(problem, count, modes, times[0].detach(), clock.dtype, enough=enough)
        self.states: list[torch.Tensor] = []
        self._memory, self._last = Memory(None, None, None), problem.value
        self._panel: Panel | None = None

    @property
    def power(self) -> float:
        return float(self._scheme.points.count)

    def attempt(self, end: float) -> float:
        begin = self.begin.new_tensor(self.now)
        try:
            self._panel = self._scheme.solve(self._memory, begin, begin.new_tensor(end - self.now), self._last)
        except (NotConvergedError, NotFiniteError):
            return math.inf
        slopes, states = (tail(self._scheme.points, values) for values in (self._panel.slopes, self._panel.states))
        # Where old errors die out, that of a state is the one of its own interpolation.
        error = torch.minimum(_OF_SLOPES * self.mass * slopes, _OF_STATES * states)
        return norm(error / self.scale(*self._panel.states.unbind(1)))

    @property
    def state(self) -> torch.Tensor:
        return self._last

    def accept(self) -> None:
        if self._panel is not None:
            self._memory = self._scheme.close(self._memory, self._panel)
            self._last = self._panel.states[:, -1]
            self.states.append(self._panel.states)

    def restart(self) -> None:
        """A panel knows nothing of those before but their slopes."""


def tail(points: Points, values: torch.Tensor) -> torch.Tensor:
    """What a polynomial through the points misses, by the last Legendre coefficients and how they decay; [G, d].

    Two of them, since one may be small by chance, next to a jump or by symmetry.
    """
    coefficients = torch.matmul(points.to_legendre, values.to(torch.float64)).abs()
    if points.count < 4:
        return coefficients[:, -1]
    last, before = coefficients[:, -2:].amax(1), coefficients[:, -4:-2].amax(1)
    return last * (last / before.clamp(min=torch.finfo(torch.float64).tiny)).sqrt().clamp(max=1.0)


def count_for(spacing: Spacing) -> int:
    """Points of a panel: more of them where the tolerance is small."""
    return min(max(round(1.0 - math.log10(spacing.smallest_rtol)), 3), 12) if spacing.kind == "adaptive" else _POINTS


def modes_for(grid: Grid, tolerance: float) -> Modes:
    """The modes that panels between the nodes of a grid need."""
    nodes = grid.elapsed.detach()
    return kernel_modes(float(nodes.diff().min()), float(nodes[-1]), tolerance)
