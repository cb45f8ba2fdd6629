"""Panels of many samples at a time, each sample with an order, a start and a length of its own; see `panels`.

A sample is a group of `States`: samples are [B, d], points of a panel [B, S, d]. Func is called for all at once.
"""

import math
from collections.abc import Callable

import torch

from fracdnn.solver.arrays import sizes
from fracdnn.solver.collocation import Memory, PanelScheme
from fracdnn.solver.coupled import System
from fracdnn.solver.jacobians import slopes_with_jacobians
from fracdnn.solver.linear import attached_slopes, matrix_of

_MAX_ITERATIONS = 20
_SLOW = 0.2  # rate of an iteration from which it needs new Jacobians
_LONGER = 1e3  # from the first change to a later one, with which an iteration diverges


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
        return system.states(slopes), slopes
