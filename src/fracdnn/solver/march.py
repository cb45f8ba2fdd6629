"""Walk a method over a known grid and hand out the solution at the requested times.

Between nodes the solution is what the method's own integral makes of the slopes, plus the difference from the nodes'
states in a straight line: of the method's order, next to the singular begin, too. Where the history is one of states
(L1), it is linear between them.
"""

import warnings
from bisect import bisect_right
from collections.abc import Sequence

import torch
from torch.utils.checkpoint import checkpoint as recomputed

from fracdnn.exceptions import UnstableStepsWarning, user_stacklevel
from fracdnn.memory.recomputation import segment_length
from fracdnn.solver.grids import ROUNDING
from fracdnn.solver.history import BLOCK
from fracdnn.solver.problem import time_text
from fracdnn.solver.segments import repeatable, segment
from fracdnn.solver.steps import Position, Steps
from fracdnn.tracing import being_traced, carries_derivative

# A segment that is computed again holds so many steps' worth of graph for one step's worth of carried history.
_GRAPH_TO_CARRY = 12
# A stable solution may grow a thousandfold, but func then points outward. Explicit methods are stable while a step
# moves a decaying state by less than about half of itself.
_GROWTH, _LARGE_STEP = 1e3, 0.25


def walked(steps: Steps, elapsed: torch.Tensor | None, *, checkpoint: bool = False) -> torch.Tensor:
    """The states at times [M], increasing, from the grid's start, or at all nodes; [M, groups, components]."""
    walk, blocks = _OutputWalk(steps, elapsed), steps.history.blocks()
    position = steps.start()
    found = [position.last.state] * (1 if elapsed is None else len(walk.known_after(-1, 0)))
    length = len(blocks)
    if checkpoint:  # as many as keep the sum of carried positions and one segment's graph smallest
        steps.prepare()
        length = max(round(segment_length(steps.grid.n_steps, _GRAPH_TO_CARRY) / BLOCK), 1)
    for first in range(0, len(blocks), length):
        part = blocks[first : first + length]
        position, more = walk.over_again(part, position) if checkpoint else walk.over(part, position)[-1]
        found.extend(more)
    if not steps.method.implicit:
        warn_of_growth(steps, position)
    return torch.stack(found).reshape(len(found), *steps.method.problem.value.shape)


@torch.no_grad()
def warn_of_growth(steps: Steps, position: Position) -> None:
    """Warn if a component grew more than a thousandfold although func, at the last state, points back.

    Looks at values once, at the end of a solve.
    """
    problem, grid = steps.method.problem, steps.grid
    if being_traced():
        return
    start, last = problem.value, position.last.state.reshape(problem.value.shape)
    grown = (last.abs() > _GROWTH * start.abs()) & (start != 0)
    if not bool(grown.any()):
        return
    with torch.random.fork_rng([last.device] if last.is_cuda else []):  # the caller's random numbers stay in order
        slope = problem.packed_slope(grid.clock[-1], last)
    powers = grid.elapsed.detach().diff()[-1] ** problem.orders.detach().to(grid.elapsed.device)
    change = powers.to(slope.dtype)[:, None] * slope
    if bool((grown & (change * last.sign() < -_LARGE_STEP * last.abs())).any()):
        warnings.warn(
            f"the solution has grown more than a thousandfold until t = {time_text(grid.clock[-1])}, while func points "
            f"back there: the steps of method {steps.method.name!r} are too long to be stable; pass a larger n_steps, "
            f"method='collocation', or leave out n_steps for steps that the solver chooses",
            UnstableStepsWarning,
            stacklevel=user_stacklevel(),
        )


class _OutputWalk:
    """Goes over the blocks of a grid, with the requested states that each makes known."""

    def __init__(self, steps: Steps, elapsed: torch.Tensor | None) -> None:
        self.steps, self._elapsed, method = steps, elapsed, steps.method
        self._problem, self._grid = method.problem, steps.grid
        if elapsed is not None:
            self._find_nodes(elapsed)
        learned = map(carries_derivative, (self._problem.orders, self._grid.elapsed, self._grid.clock))
        self._in_segments = not any(learned) and type(self._problem.value) is torch.Tensor

    def _find_nodes(self, elapsed: torch.Tensor) -> None:
        """Of each requested time: the last node that is not later, and whether it is the time, up to rounding."""
        times, nodes, n_steps = elapsed.detach(), self._grid.elapsed.detach(), self._grid.n_steps
        nearest = torch.searchsorted(nodes, times).clamp(max=n_steps)
        before = (nearest - 1).clamp(min=0)
        nearest = torch.where(times - nodes[before] < nodes[nearest] - times, before, nearest)
        close = (times - nodes[nearest]).abs() <= ROUNDING * nodes[-1]
        if carries_derivative(elapsed):  # a node does not move with the requested time, but start and end
            close &= (nearest == 0) | (nearest == n_steps)
        earlier = torch.searchsorted(nodes, times, right=True) - 1
        left = torch.where(close, nearest, earlier.clamp(0, n_steps - 1))
        self._nodes, self._at_node = left.tolist(), close.tolist()
        self._known_from = (left + ~close).tolist()  # the node with which the solution there is known

    def known_after(self, begin: int, end: int) -> range:
        """Numbers of the requested times that are known after node `begin`, and up to node `end`."""
        return range(bisect_right(self._known_from, begin), bisect_right(self._known_from, end))

    def over(
        self, blocks: Sequence[tuple[int, int]], position: Position
    ) -> tuple[torch.Tensor, torch.Tensor, tuple[Position, list[torch.Tensor]]]:
        """Some blocks on: first and last state; and where the walk stands, with the requested states on the way."""
        found: list[torch.Tensor] = []
        first = position.last.state
        for begin, end in blocks:
            nodes, made, after = self.steps.over(begin, end, position)
            states = [position.last.state, *(node.state for node in nodes)]
            self._problem.check_finite(states, self._grid.clock, begin)
            found.extend(self._outputs(position, begin, end, states, made))
            position = after
        return first, position.last.state, (position, found)

    def over_again(self, blocks: Sequence[tuple[int, int]], position: Position) -> tuple[Position, list[torch.Tensor]]:
        """The same, to be computed again in the backward pass."""
        problem = self._problem
        # One for each way to run, before either has: both begin with what solvers know now.
        part, whole_part = (repeatable(self.steps.method, self.over) for _ in range(2))
        start = [each for each in (problem.value, problem.velocity) if each is not None]
        without_graph: list[Position] = []

        def run(tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
            own = problem.value, problem.velocity
            problem.value, problem.velocity = tensors[0], tensors[1] if len(start) > 1 else None
            try:
                after, found = part(blocks, position.with_tensors(tensors[len(start) :]))
            finally:
                problem.value, problem.velocity = own
            without_graph[:] = [after.with_tensors([each.detach() for each in after.tensors()])]
            return [*after.tensors(), *found]

        if self._in_segments and torch.is_grad_enabled():
            results = segment(run, (*start, *position.tensors()))
            if results is not None:
                count = len(position.tensors())
                return without_graph[0].with_tensors(results[:count]), list(results[count:])
            self._in_segments = False  # nor will it serve for later ones
        return recomputed(whole_part, blocks, position, use_reentrant=False)

    def _outputs(
        self, position: Position, begin: int, end: int, states: list[torch.Tensor], made: torch.Tensor
    ) -> list[torch.Tensor]:
        """The requested states after node begin, up to node end."""
        if self._elapsed is None:
            return states[1:]
        chosen = self.known_after(begin, end)
        inside = [number for number in chosen if not self._at_node[number]]
        if not inside:
            return [states[self._nodes[number] - begin] for number in chosen]
        times, left = self._elapsed[inside], torch.tensor([self._nodes[number] for number in inside])
        before, after = self._grid.elapsed[left], self._grid.elapsed[left + 1]
        known = torch.stack(states).reshape(len(states), *self._problem.value.shape)
        share = ((times - before) / (after - before)).to(known.dtype)[:, None, None]
        earlier, later = known[left - begin], known[left + 1 - begin]
        if not self.steps.method.of_slopes:
            between = torch.lerp(earlier, later, share)
        else:
            # The integral at the time itself, and at the nodes around it, where it may differ from the states.
            moments = torch.cat([times, before, after])
            sums = self.steps.history.between(position.carry, made, moments).transpose(0, 1)
            integral, at_before, at_after = (self._problem.without_memory(moments) + sums).chunk(3)
            between = integral + torch.lerp(earlier - at_before, later - at_after, share)
        rows = iter(between.reshape(len(inside), *states[0].shape).unbind(0))
        return [states[self._nodes[number] - begin] if self._at_node[number] else next(rows) for number in chosen]
