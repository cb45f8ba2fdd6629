"""The method "collocation": panels of Radau's points, solved one after the other; see `panels`."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from fracdnn.caputo.modes import Modes, kernel_modes
from fracdnn.caputo.weights import gamma
from fracdnn.exceptions import NotConvergedError
from fracdnn.solver.grids import Spacing
from fracdnn.solver.implicit import accelerated, done, jacobian, norm
from fracdnn.solver.mesh import Grid
from fracdnn.solver.panels import Points, points
from fracdnn.solver.problem import Problem
from fracdnn.solver.rules import advance, far_weights
from fracdnn.tracing import being_transformed

# Unknowns up to which a panel is solved by Newton's method with a dense matrix.
_DENSE = 512
_MAX_ITERATIONS = 40
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

    def __init__(self, problem: Problem, count: int, modes: Modes, clock_begin: torch.Tensor, dtype: torch.dtype) -> None:
        device = problem.value.device
        self.problem = problem
        self.points: Points = points(count).to(device)
        self._modes = modes.to(device)
        self._begin, self._clock_dtype = clock_begin, dtype
        self._own = self.points.own_weights(problem.orders, self.points.places)
        self._jacobian: torch.Tensor | None = None

    def remembered(self, memory: Memory, begin: torch.Tensor, elapsed: torch.Tensor) -> torch.Tensor:
        """What the panels before `begin` and the start give at times [R] after it; [G, R, d]."""
        total = self.problem.without_memory(elapsed).transpose(0, 1)
        if memory.slopes is not None and memory.length is not None:
            scaled = self.points.later_weights(self.problem.orders, (elapsed - begin) / memory.length)
            weights = scaled * memory.length ** self.problem.orders.view(-1, 1, 1)
            total = total + torch.bmm(weights.to(total.dtype), memory.slopes)
        if memory.far is not None and memory.length is not None:
            distance = elapsed - (begin - memory.length)
            weights = far_weights(self._modes, self.problem.orders, distance)
            total = total + torch.bmm(weights.to(total.dtype), memory.far)
        return total

    def solve(self, memory: Memory, begin: torch.Tensor, length: torch.Tensor, guess: torch.Tensor) -> Panel:
        """The panel that begins at `begin`; `guess` is a state [G, d]."""
        elapsed = begin + length * self.points.places
        known = self.remembered(memory, begin, elapsed)
        weights = (self._own * length ** self.problem.orders.view(-1, 1, 1)).to(known.dtype)
        clock = (self._begin + elapsed).to(self._clock_dtype).unbind(0)
        name = f"in the panel from t = {_number(self._begin + begin)} on"
        with torch.no_grad():
            solution = self._solution(known.detach(), weights.detach(), clock, guess.detach(), name)
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
        """The solution at any times [R] of a panel; [R, G, d]."""
        places = (elapsed - panel.begin) / panel.length
        scaled = self.points.own_weights(self.problem.orders, places)
        weights = scaled * panel.length ** self.problem.orders.view(-1, 1, 1)
        own = torch.bmm(weights.to(panel.slopes.dtype), panel.slopes)
        return (self.remembered(memory, panel.begin, elapsed) + own).transpose(0, 1)

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

        states = guess.unsqueeze(1).expand_as(known).contiguous()
        if known.numel() > _DENSE and not being_transformed():
            return accelerated(image, states, _MAX_ITERATIONS, lambda residual: _not_converged(name, residual))
        # Newton's method with one Jacobian for all points, at the end of the panel before; anew where that is slow.
        matrix, size, fresh = None, math.inf, False
        for _ in range(_MAX_ITERATIONS):
            if matrix is None:
                jacobians = self._jacobians(clock, states, everywhere=fresh)
                matrix = torch.linalg.lu_factor(_matrix(weights, jacobians))
            residual = states - image(states)
            change = _by_points(torch.linalg.lu_solve(*matrix, _flat(residual)), states)
            if not bool(torch.isfinite(change).all()):
                break
            states = states - change
            if done(change, states):
                return states
            if norm(change) > _SLOW * size:
                matrix, fresh = None, True
            size = norm(change)
        raise _not_converged(name, change)

    def _jacobians(self, clock: tuple[torch.Tensor, ...], states: torch.Tensor, *, everywhere: bool) -> torch.Tensor:
        """[m, n, n] with n = G · d."""

        def at(k: int) -> torch.Tensor:
            return jacobian(lambda state: self.problem.evaluate(clock[k], state)[1], states[:, k])

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
        image = known + torch.bmm(weights, self._evaluate(clock, solution)[1])
        if known.numel() <= _DENSE or being_transformed():
            matrix = _matrix(weights.detach(), self._jacobians(clock, solution, everywhere=True)).detach()
            return solution - _by_points(torch.linalg.solve(matrix, _flat(solution - image)), solution)
        if not image.requires_grad:
            return image
        return _attached_by_iteration(
            image, weights.detach(), solution, lambda states: self._evaluate(clock, states)[1], name
        )


def _attached_by_iteration(image, weights, solution, slopes_of, name):
    with torch.enable_grad():
        at = solution.detach().requires_grad_()
        slopes = slopes_of(at)

    def whole(cotangent: torch.Tensor) -> torch.Tensor:
        """λ = cotangent + (weights · ∂slopes/∂states)ᵀ λ."""
        if not slopes.requires_grad:
            return cotangent

        def pulled(adjoint: torch.Tensor) -> torch.Tensor:
            back = torch.autograd.grad(
                slopes, at, torch.bmm(weights.transpose(1, 2), adjoint), retain_graph=True, allow_unused=True
            )[0]
            return cotangent if back is None else cotangent + back

        return accelerated(pulled, cotangent, _MAX_ITERATIONS, lambda residual: _not_converged(name, residual))

    image.register_hook(whole)
    return image


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


def _number(time: torch.Tensor) -> str:
    try:
        return f"{float(time):.6g}"
    except RuntimeError:  # inside a transformation a time has no number
        return "some time"


# --- finding panels, and walking over them ---

_SAFETY, _SHRINK, _GROW = 0.8, 0.2, 3.0
_FORGETTING = 0.75
_SMALLEST = 1e-14
_MODES_TOLERANCE = 1e-12


def count_for(rtol: float) -> int:
    """Points of a panel for a tolerance: more of them where it is small."""
    return min(max(round(1.0 - math.log10(rtol)), 3), 12)


@dataclass(frozen=True)
class FoundPanels:
    shares: torch.Tensor
    n_accepted: int
    n_rejected: int


@torch.no_grad()
def find_panels(problem, times, clock, *, count, first_output, spacing: Spacing) -> FoundPanels:
    span = float(times[-1] - times[0])
    modes = kernel_modes(1e-13 * span, span, _MODES_TOLERANCE)
    begin_time = times[0].detach()
    scheme = Collocation(problem, count, modes, begin_time, clock.dtype)
    orders = problem.orders.detach()
    mass = (span**orders / gamma(orders + 1.0)).view(-1, 1)
    memory, last = Memory(None, None, None), problem.value.detach()
    now, step, rejected, growth = 0.0, min(first_output, 0.05 * span), 0, _GROW
    ends = [0.0]
    while now < span:
        rest = span - now
        if step > 0.9 * rest:
            step = rest
        elif step > 0.5 * rest:
            step = rest / 2.0
        if step < _SMALLEST * span:
            raise NotConvergedError(
                f"the step became shorter than {_SMALLEST:g} of the span at t = {float(begin_time) + now:.6g} "
                f"after {len(ends) - 1} steps; the solution may end there: "
                f"ask for earlier times only, or for larger rtol and atol"
            )
        first = len(ends) == 1
        try:
            panel = scheme.solve(memory, begin_time.new_tensor(now), begin_time.new_tensor(step), last)
            error = _panel_error(scheme, panel, mass, spacing) * min((now + step) / first_output, 1.0) ** _FORGETTING
        except NotConvergedError:
            error = math.inf
        if not math.isfinite(error):
            error = math.inf
        exponent = 1.0 / (_FORGETTING + float(orders.min())) if first else 1.0 / count
        factor = _SAFETY * error**-exponent if error > 0 else _GROW
        if error <= 1.0:
            memory = scheme.close(memory, panel)
            last = panel.states[:, -1]
            now = span if step == rest else now + step
            ends.append(now)
            step *= min(max(factor, _SHRINK), growth)
            growth = _GROW
        else:
            rejected += 1
            growth = 1.0
            step *= min(max(factor, 1e-3 if first else _SHRINK), 0.9)
    shares = torch.tensor(ends, dtype=torch.float64, device=times.device) / span
    shares[-1] = 1.0
    return FoundPanels(shares, len(ends) - 1, rejected)


def _panel_error(scheme: Collocation, panel: Panel, mass: torch.Tensor, spacing: Spacing) -> float:
    scale = spacing.atol + spacing.rtol * panel.states.abs().amax(1).to(torch.float64)
    slopes, states = (_tail(scheme.points, values) for values in (panel.slopes, panel.states))
    return float((torch.minimum(mass * slopes, states) / scale).max())


def _tail(points: Points, values: torch.Tensor) -> torch.Tensor:
    """What a polynomial through the points misses, from the decay of its Legendre coefficients; [G, d]."""
    coefficients = torch.matmul(points.to_legendre, values.to(torch.float64)).abs()
    last, before = coefficients[:, -1], coefficients[:, -3]
    ratio = (last / before.clamp(min=1e-300)).sqrt().clamp(max=1.0)
    return last * ratio


def walk(scheme: Collocation, grid: Grid, elapsed: torch.Tensor) -> torch.Tensor:
    """The solution at times [M] from 0 on; [M, G, d]."""
    memory, last = Memory(None, None, None), scheme.problem.value
    found = []
    wanted, ends = elapsed.detach(), grid.elapsed.detach()
    numbers = (torch.searchsorted(ends, wanted) - 1).clamp(0, grid.n_steps - 1).tolist()
    found = [last] * int((wanted <= 0).sum())
    for p in range(grid.n_steps):
        begin = grid.elapsed[p]
        panel = scheme.solve(memory, begin, grid.elapsed[p + 1] - begin, last)
        mine = [i for i, number in enumerate(numbers) if number == p and float(wanted[i]) > 0]
        if mine:
            found.extend(scheme.between(memory, panel, elapsed[mine]).unbind(0))
        memory, last = scheme.close(memory, panel), panel.states[:, -1]
    return torch.stack(found)
