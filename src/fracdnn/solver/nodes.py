"""Requested times among the nodes of a grid: the node before each, and interpolation between the two around it."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch

from fracdnn.solver.grids import ROUNDING, Grid
from fracdnn.tracing import carries_derivative


@dataclass(frozen=True, eq=False)
class OutputPlaces:
    """Return the last node that is not later than each time [M] from the start, and whether both agree to rounding."""

    grid: Grid
    elapsed: torch.Tensor
    left: torch.Tensor
    at_node: torch.Tensor

    @staticmethod
    def of(grid: Grid, elapsed: torch.Tensor) -> "OutputPlaces":
        times, nodes, n_steps = elapsed.detach(), grid.elapsed.detach(), grid.n_steps
        nearest = torch.searchsorted(nodes, times).clamp(max=n_steps)
        before = (nearest - 1).clamp(min=0)
        nearest = torch.where(times - nodes[before] < nodes[nearest] - times, before, nearest)
        close = (times - nodes[nearest]).abs() <= ROUNDING * nodes[-1]
        if carries_derivative(elapsed):  # a node does not move with the requested time, but start and end do
            close &= (nearest == 0) | (nearest == n_steps)
        earlier = torch.searchsorted(nodes, times, right=True) - 1
        return OutputPlaces(grid, elapsed, torch.where(close, nearest, earlier.clamp(0, n_steps - 1)), close)

    @property
    def are_ends(self) -> bool:
        """True if no time lies between the first and the last node."""
        return bool((self.at_node & ((self.left == 0) | (self.left == self.grid.n_steps))).all())

    def known_after(self, begin: int, end: int) -> range:
        """Return the numbers of the times that are known after node `begin`, and up to node `end`."""
        return range(bisect_right(self._known_from, begin), bisect_right(self._known_from, end))

    @cached_property
    def _known_from(self) -> list[int]:
        return (self.left + ~self.at_node).tolist()

    def part(self, numbers: range) -> "OutputPlaces":
        """Return the places of some of the times."""
        chosen = slice(numbers.start, numbers.stop)
        return OutputPlaces(self.grid, self.elapsed[chosen], self.left[chosen], self.at_node[chosen])

    def interpolated(
        self, known: torch.Tensor, integral: Callable[[torch.Tensor], torch.Tensor] | None = None, begin: int = 0
    ) -> torch.Tensor:
        """Return states [M, groups, components] from those of the nodes from `begin` on.

        `integral` of times is the method's own, to which nodes add their difference in a straight line; without it,
        states are linear between nodes.
        """
        left = self.left.clamp(max=begin + len(known) - 2)
        before, after = self.grid.elapsed[left], self.grid.elapsed[left + 1]
        share = ((self.elapsed - before) / (after - before)).to(known.dtype)[:, None, None]
        earlier, later = known[left - begin], known[left + 1 - begin]
        if integral is None:
            between = torch.lerp(earlier, later, share)
        else:
            # At the time itself, and at the nodes around it, where it may differ from the states.
            at_time, at_before, at_after = integral(torch.cat([self.elapsed, before, after])).chunk(3)
            between = at_time + torch.lerp(earlier - at_before, later - at_after, share)
        at_node = known[self.left - begin]
        return torch.where(self.at_node[:, None, None], at_node, between)
