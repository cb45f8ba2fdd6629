"""A solution between its outputs: the panels of a solve as tensors, which evaluate at any time without calling func.

Interface to a solver: it keeps each `Panel` that it takes (begin, length, states and slopes at Radau's points) and
calls `DensePanels.of` with them at the end. Nothing else of a search is stored, so that a solution pickles.
"""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import cast

import torch

from fracdnn.caputo.modes import kernel_modes
from fracdnn.solver.collocation import Memory, Panel, PanelScheme
from fracdnn.solver.panels import MODES_TOLERANCE, Weights
from fracdnn.solver.problem import Problem
from fracdnn.solver.states import States


@dataclass(frozen=True, eq=False)
class DensePanels:
    """N panels of m points, for states [G, d] in G groups; times are elapsed times from the start.

    `edges` are [N + 1], or [G, N + 1] where each group is a sample with panels of its own; a sample's last edge is
    repeated. `coarse` [C, 2] or [C, G, 2] are intervals in which steps were too long for the tolerances, because
    errors there count less in later outputs: from the start, or a breakpoint, to the next output.
    """

    layout: States
    value: torch.Tensor  # [G, d]
    velocity: torch.Tensor | None  # [G, d]
    orders: torch.Tensor  # [G]
    edges: torch.Tensor
    states: torch.Tensor  # [N, G, m, d]
    slopes: torch.Tensor  # [N, G, m, d]
    coarse: torch.Tensor

    # A scheme of panels reads these of a problem; nobody follows an evaluation, and no mass is singular.
    mass = follower = None

    @classmethod
    def of(
        cls,
        problem: Problem,
        edges: torch.Tensor,
        panels: Sequence[tuple[torch.Tensor, torch.Tensor]],
        coarse: torch.Tensor,
    ) -> "DensePanels | None":
        """Store states and slopes of panels, of NumPy's or torch's kind; None where none were kept."""
        if not panels:
            return None
        both = (torch.stack([torch.as_tensor(panel[kind]) for panel in panels]) for kind in (0, 1))
        states, slopes = (each.to(problem.value.dtype) for each in both)
        return cls(problem.states, problem.value, problem.velocity, problem.orders, edges, states, slopes, coarse)

    def is_coarse(self, elapsed: torch.Tensor) -> torch.Tensor:
        """Return True for each time at which the solution may miss the tolerances."""
        begin, end = self.coarse.to(elapsed.device).unsqueeze(-2).unbind(-1)
        return ((elapsed.detach() > begin) & (elapsed.detach() < end)).any(0)

    def with_samples(self, others: dict[int, "DensePanels | None"]) -> "DensePanels":
        """Replace samples, by their numbers, by those that were solved alone; a None has no solution, but NaN."""
        rows = [each.states.shape[0] for each in others.values() if each is not None]
        missing = max([0, *(row - len(self.states) for row in rows)])
        edges = torch.cat([self.edges, self.edges[:, -1:].expand(-1, missing)], dim=1).clone()
        blank = self.states.new_zeros(missing, *self.states.shape[1:])
        states, slopes = torch.cat([self.states, blank]), torch.cat([self.slopes, blank])
        for sample, other in others.items():
            states[:, sample] = slopes[:, sample] = edges[sample] = 0.0  # panels of no length: NaN at all times
            if other is not None:
                count = len(other.states)
                states[:count, sample], slopes[:count, sample] = other.states[:, 0], other.slopes[:, 0]
                edges[sample, :count], edges[sample, count:] = other.edges[:-1], other.edges[-1]
        return replace(self, edges=edges, states=states, slopes=slopes)

    def detached(self) -> "DensePanels":
        """Return the same apart from any graph."""
        layout = copy(self.layout)
        layout.orders = layout.orders.detach()
        tensors = {name: each.detach() for name, each in vars(self).items() if isinstance(each, torch.Tensor)}
        return replace(self, layout=layout, **tensors)

    def at(self, elapsed: torch.Tensor, *, slopes: bool = False) -> torch.Tensor:
        """Return the states at times [R], or [G, R] of samples; [R, G, d]. Differentiable in times and panels.

        With `slopes`, the polynomials that were integrated: func at Radau's points. Panels are walked over from the
        start, since each adds to the memory of the next; this costs no call of func.
        """
        edges, problem = self.edges.detach(), cast(Problem, self)
        if not bool((edges > 0.0).any()):  # every sample failed
            return self.value.detach().expand(elapsed.shape[-1], -1, -1) * math.nan
        lengths = edges.diff()
        modes = kernel_modes(float(lengths[lengths > 0].min()), float(edges.max()), MODES_TOLERANCE)
        weights = Weights.of(self.orders, self.states.shape[2], modes)
        scheme = PanelScheme(problem, weights, edges.new_zeros(()), torch.float64)
        memory, last = Memory(self.value), edges[..., -1:]
        start = scheme.to_begin.to(self.slopes) @ self.slopes[0] if slopes else self.value[:, None]
        result = torch.where((elapsed <= 0.0).unsqueeze(-1), start, math.nan)
        for number, (own_states, own_slopes) in enumerate(zip(self.states, self.slopes, strict=True)):
            begin, end = self._edge(number), self._edge(number + 1)
            length = torch.where((end > begin).detach(), end - begin, edges.max())
            panel = Panel(begin, length, own_states, own_slopes)
            inside = (elapsed > begin) & (elapsed <= end)
            columns = inside.reshape(-1, elapsed.shape[-1]).any(0)
            if bool(columns.any()):
                times = torch.where(inside[..., columns], elapsed[..., columns], begin + length)
                if slopes:
                    values = scheme.points.values_at((times - begin) / length).to(own_slopes) @ own_slopes
                else:
                    at_end = (elapsed[..., columns] == last).unsqueeze(-1)  # other times move apart from panels
                    values = torch.where(at_end, own_states[:, -1:], scheme.between(memory, panel, times))
                result[:, columns] = torch.where(inside[..., columns, None], values, result[:, columns])
            if not bool((elapsed > end).any()):
                break
            memory = scheme.close(memory, panel, float(length.detach().min()))
        return result.transpose(0, 1)

    def _edge(self, number: int) -> torch.Tensor:
        return self.edges[number] if self.edges.dim() == 1 else self.edges[:, number : number + 1]
