"""Panels of many samples at a time, each sample with an order, a start and a length of its own; see `panels`.

A sample is a group of `States`: samples are [B, d], points of a panel [B, S, d]. Func is called for all at once.
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fracdnn.solver.collocation import FORGOTTEN, STEEP, Panel, resized
from fracdnn.solver.convergence import component_sizes, sizes
from fracdnn.solver.implicit import attached
from fracdnn.solver.jacobians import slopes_with_jacobians
from fracdnn.solver.panels import Weights, exponential_moments
from fracdnn.solver.problem import Problem
from fracdnn.solver.rules import advance, far_weights

_MAX_ITERATIONS = 20
_SLOW = 0.2  # rate of an iteration from which it needs new Jacobians
_CACHED = 16384  # numbers that are best computed with at a time
_LONGER = 1e3  # from the first change to a later one, with which an iteration diverges


@dataclass
class BatchedMemory:
    """What panels need of those before: the last states [B, d], modes at the start of the last panel, its slopes
    [B, m, d] and lengths [B, 1, 1].
    """

    state: torch.Tensor
    far: torch.Tensor
    slopes: torch.Tensor
    length: torch.Tensor


@dataclass
class Systems:
    """One for each sample: states = known + weights · slopes, and their matrices I − W J as they were factored last."""

    clock: tuple[torch.Tensor, ...]  # S times of [B]
    known: torch.Tensor
    weights: torch.Tensor
    factors: tuple[torch.Tensor, torch.Tensor] | None = None
    jacobians: torch.Tensor | None = None  # [B, S, d, d]

    def after(self, residual: torch.Tensor) -> torch.Tensor:
        """What states become of such a residual of the equations: less of it in a stiff one; [B, S, d]."""
        if self.factors is None:
            return residual
        return torch.linalg.lu_solve(*self.factors, residual.reshape(len(residual), -1, 1)).reshape(residual.shape)


class BatchedPanels:
    """Panels of one problem whose groups are the samples; `begin` [B] are their first times."""

    def __init__(self, problem: Problem, weights: Weights, begin: torch.Tensor, dtype: torch.dtype) -> None:
        self.problem, self.weights, self.points, self.clock_dtype = problem, weights, weights.points, dtype
        self.begin, self.orders = begin.to(torch.float64), weights.kernel.orders
        self._sorted_rates = weights.rates.tolist()
        self._epsilon = torch.finfo(problem.value.dtype).eps

    def start(self) -> BatchedMemory:
        """Before the first panels: a panel of slopes 0, which is far away."""
        value = self.problem.value
        nothing = value[:, None] * 0.0
        length = torch.full((len(value), 1, 1), self.shortest, dtype=torch.float64, device=value.device)
        return BatchedMemory(value, nothing.expand(-1, 2, -1), nothing.expand(-1, self.points.count, -1), length)

    @property
    def shortest(self) -> float:
        """Of panels that modes are made for."""
        return FORGOTTEN / self._sorted_rates[-1]

    def remembered(self, memory: BatchedMemory, begin: torch.Tensor, elapsed: torch.Tensor) -> torch.Tensor:
        """What the panels before `begin` [B] and the start give at times [B, R] after it; [B, R, d]."""
        value, velocity, length = self.problem.value, self.problem.velocity, memory.length[:, 0]
        total = value[:, None] + 0.0 * elapsed[..., None].to(value)
        if velocity is not None:
            total = total + elapsed[..., None].to(value) * velocity[:, None]
        scaled = self.points.later_weights(self.weights.kernel, (elapsed - begin[:, None]) / length)
        total = total + (scaled * memory.length**self.orders).to(total) @ memory.slopes
        count = memory.far.shape[1] - 1
        if count <= 1 and not bool(memory.far.any()):
            return total
        of_modes = torch.cat([self.weights.of_modes[:, :count], self.weights.of_modes[:, -1:]], dim=1)
        distance = elapsed - (begin[:, None] - length)
        return total + far_weights(self.weights.rates[:count], of_modes, distance).to(total) @ memory.far

    def systems(self, memory: BatchedMemory, begin: torch.Tensor, length: torch.Tensor) -> Systems:
        """Of the panels that begin at `begin` [B] and are so long [B]."""
        elapsed = begin[:, None] + length[:, None] * self.points.places
        clock = (self.begin[:, None] + elapsed).to(self.clock_dtype)
        known = self.remembered(memory, begin, elapsed)
        weights = (self.weights.own * length[:, None, None] ** self.orders).to(known)
        return Systems(clock.unbind(1), known, weights)

    @torch.no_grad()
    def solve(
        self,
        systems: Systems,
        states: torch.Tensor,
        counts: torch.Tensor,
        enough: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """States and slopes [B, S, d], and which samples [B] converged, of those that count; the others stay.

        `enough` is a change of iterates [B, d] with which to end; to rounding without one.
        """
        weights, known = systems.weights.detach(), systems.known.detach()
        left, lengths, first = counts, torch.full_like(known[:, 0], math.inf), None
        slopes, found, anew, jacobians = states, counts & ~counts, True, states[..., None]
        for _ in range(_MAX_ITERATIONS):
            if anew:
                latest, jacobians = slopes_with_jacobians(self.problem, systems.clock, states, apart=True)
                jacobians = torch.where(counts[:, None, None, None], jacobians, 0.0)
                systems.jacobians = jacobians
                systems.factors = torch.linalg.lu_factor_ex(_matrices(weights, jacobians))[:2]
            else:
                latest = self.problem.slopes(systems.clock, states)
            residual = states - known - weights @ latest
            change = systems.after(residual)
            lost = left & ~change.flatten(1).isfinite().all(1)
            before, lengths = lengths, sizes(change)
            first = lengths if first is None else first
            goal = 8.0 * self._epsilon * sizes(states) if enough is None else enough(states)
            rates = torch.where(before.isfinite(), lengths / before.clip(min=torch.finfo(states.dtype).tiny), 1.0)
            small = (rates * lengths <= goal) & (rates * sizes(residual) <= goal)
            # What does not become shorter any more is rounding.
            small |= (rates > _SLOW) & (lengths <= 64.0 * self._epsilon * sizes(states)) & before.isfinite()
            done = left & small.all(1) & ~lost
            # To first order the slopes at the new states; with them, the equations hold.
            corrected = latest - (jacobians @ change[..., None])[..., 0]
            slopes = torch.where(done[:, None, None], corrected, slopes)
            states = torch.where((left & ~lost)[:, None, None], states - change, states)
            lost |= left & (lengths > _LONGER * first).any(1)
            found, left = found | done, left & ~done & ~lost
            if not bool(left.any()):
                break
            anew = bool(((rates > _SLOW) & before.isfinite() & ~small)[left].any())
        return states, slopes, found

    def attached(
        self, systems: Systems, states: torch.Tensor, slopes: torch.Tensor, counts: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The same states and slopes, with the derivatives of the solution."""
        with torch.no_grad():
            _, jacobians = slopes_with_jacobians(self.problem, systems.clock, states, apart=True)
            jacobians = torch.where(counts[:, None, None, None], jacobians, 0.0)
            matrix = _matrices(systems.weights.detach().mT, jacobians.mT).mT  # I − J W
            unit = (component_sizes(slopes) + 0.0 * slopes).reshape(len(slopes), -1, 1)
            factors = torch.linalg.lu_factor_ex(matrix * unit.mT / unit)[:2]

        def step(slopes: torch.Tensor) -> torch.Tensor:
            residual = slopes - self.problem.slopes(systems.clock, systems.known + systems.weights @ slopes)
            flat = residual.reshape(unit.shape) / unit
            return (unit * torch.linalg.lu_solve(*factors, flat)).reshape(slopes.shape)

        slopes = attached(step, slopes)
        return systems.known + systems.weights @ slopes, slopes

    def close(self, memory: BatchedMemory, panel: Panel, shortest: float) -> BatchedMemory:
        """What the next panels need; `shortest` of those solved last, after which fast modes have died out."""
        count = max(bisect_right(self._sorted_rates, FORGOTTEN / shortest), 1)
        rates, length = self.weights.rates[:count], memory.length
        coefficients = self.points.to_legendre.to(memory.slopes) @ memory.slopes
        # On a CPU in parts that its caches hold.
        rows = max(_CACHED // count, 1) if coefficients.device.type == "cpu" else len(coefficients)
        parts = zip((rates * length[:, 0]).split(rows), coefficients.split(rows), strict=True)
        fresh = torch.cat([exponential_moments(x, self.points.count).to(own) @ own for x, own in parts])
        of_t = length.to(fresh) * (coefficients[:, :1] / 2.0 - coefficients[:, 1:2] / 6.0)
        fresh = length.to(fresh) * torch.cat([fresh, of_t], dim=1)
        far = fresh + advance(rates, resized(memory.far, count), length)
        return BatchedMemory(panel.states[:, -1], far, panel.slopes, panel.length)

    def between(self, memory: BatchedMemory, panel: Panel, elapsed: torch.Tensor) -> torch.Tensor:
        """The solution at times [B, R] of the panels; [B, R, d]. See `Collocation` for the choice."""
        length = panel.length[:, 0]
        mass = panel.length**self.orders
        places = (elapsed - panel.begin[:, None]) / length
        weights = self.points.own_weights(self.orders.reshape(-1), places) * mass
        integral = self.remembered(memory, panel.begin, elapsed) + weights.to(panel.slopes) @ panel.slopes
        at_begin = self.points.values_at(0.0 * self.points.places[:1]).to(panel.states)
        missed = memory.state[:, None] - at_begin @ panel.states
        fading = (1.0 - places[..., None] / self.points.places).prod(-1)[..., None].to(missed)
        through_states = self.points.values_at(places).to(panel.states) @ panel.states + fading * missed
        of_slopes, of_states = self.points.tail(panel.slopes), self.points.tail(panel.states)
        steep = (of_states < STEEP * mass[:, 0] * of_slopes)[:, None]
        return torch.where(steep, through_states, integral)

    def continued(self, memory: BatchedMemory, systems: Systems, length: torch.Tensor) -> torch.Tensor:
        """The states, were the slopes those of the panels before, continued."""
        places = 1.0 + (length / memory.length[:, 0, 0])[:, None] * self.points.places
        return systems.known + systems.weights @ (self.points.values_at(places).to(memory.slopes) @ memory.slopes)


def _matrices(weights: torch.Tensor, jacobians: torch.Tensor) -> torch.Tensor:
    """I − W J for each sample, [B, S d, S d], where the unknowns of a point come together."""
    samples, count, d, _ = jacobians.shape
    product = weights[:, :, None, :, None] * jacobians.permute(0, 2, 1, 3)[:, None]  # [B, S, d, S, d]
    identity = torch.eye(count * d, dtype=weights.dtype, device=weights.device)
    return identity - product.reshape(samples, count * d, count * d)
