"""Walk a method over a known grid, block by block: any method, any history, in plain operations.

`fracdnn.solver.explicit` does what explicit methods of one order do on grids of moderate length with less memory.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fracdnn.exceptions import UnstableStepsWarning
from fracdnn.memory.recomputation import recomputed, segment_length
from fracdnn.solver.grids import Grid
from fracdnn.solver.history import BLOCK, BlockSums, Carry, History
from fracdnn.solver.methods import Method, Node, Stage
from fracdnn.solver.nodes import OutputPlaces
from fracdnn.solver.problem import Problem, time_text
from fracdnn.solver.rules import Rule
from fracdnn.solver.segments import repeatable
from fracdnn.tracing import being_traced
from fracdnn.validation import user_stacklevel

# A segment that is computed again holds so many steps' worth of graph for one step's worth of carried history.
_GRAPH_TO_CARRY = 12
# A stable solution may grow a thousandfold, but func then points outward. Explicit methods are stable while a step
# moves a decaying state by less than about half of itself.
_GROWTH, _LARGE_STEP = 1e3, 0.25


@dataclass(frozen=True, eq=False)
class Position:
    """The position of a walk after a block: the history that it carries, and the two newest nodes."""

    carry: Carry
    last: Node
    before: Node  # the first one twice


class March:
    """The nodes of a method on a grid; `exact` sums over all pairs of nodes, else far ones through modes."""

    def __init__(self, method: Method, grid: Grid, *, exact: bool = False, tolerance: float) -> None:
        self.method, self.grid = method, grid
        rules = [Rule(kind, method.problem.orders) for kind in method.rules]
        self.history = History(rules, grid.elapsed, grid.step, exact=exact, tolerance=tolerance)

    def states(self, elapsed: torch.Tensor | None, *, checkpoint: bool = False) -> torch.Tensor:
        """Return the states at times [M], increasing, from the start, or at all nodes: [M, groups, components]."""
        places = None if elapsed is None else OutputPlaces.of(self.grid, elapsed)
        first = self.method.first(self.grid.clock[0])
        position = Position(self.history.start(first.entry), first, first)
        found = [first.state] * (1 if places is None else len(places.known_after(-1, 0)))
        blocks = self.history.blocks()
        length = len(blocks)
        if checkpoint:  # as many as keep the sum of carried positions and one segment's graph smallest
            self.history.prepare(self.method.problem.value.dtype)
            length = max(round(segment_length(self.grid.n_steps, _GRAPH_TO_CARRY) / BLOCK), 1)
        for number in range(0, len(blocks), length):
            part = blocks[number : number + length]
            if checkpoint:
                again = repeatable(self.method, self._over)
                position, more = recomputed(again, part, position, places)
            else:
                position, more = self._over(part, position, places)[-1]
            found.extend(more)
        if not self.method.implicit:
            warn_of_growth(self.method.problem, self.grid, self.method.name, position.last.state)
        return torch.stack(found)

    def _over(
        self, blocks: Sequence[tuple[int, int]], position: Position, places: OutputPlaces | None
    ) -> tuple[torch.Tensor, torch.Tensor, tuple[Position, list[torch.Tensor]]]:
        """Take some blocks; return first and last state, the new position and the requested states on the way."""
        found: list[torch.Tensor] = []
        first = position.last.state
        for begin, end in blocks:
            nodes, made, after = self._block(begin, end, position)
            states = [position.last.state, *(node.state for node in nodes)]
            self.method.problem.check_finite(states, self.grid.clock, begin)
            found.extend(states[1:] if places is None else self._outputs(places, position, begin, end, states, made))
            position = after
        return first, position.last.state, (position, found)

    def _block(self, begin: int, end: int, position: Position) -> tuple[list[Node], torch.Tensor, Position]:
        """Return nodes begin + 1 … end, their entries [G, B, d], and the position then."""
        times, problem = self.grid.clock[begin : end + 1].unbind(0), self.method.problem
        start = problem.without_memory(self.grid.elapsed[begin + 1 : end + 1]) if self.method.of_slopes else None
        older, inside = self.history.open(position.carry, begin, end, start)
        newest = torch.diagonal(inside, dim1=1, dim2=3).permute(2, 1, 0).unsqueeze(-1)  # [B, R, G, 1]
        sums, reaches = BlockSums(older, inside), self._reaches(begin, end)
        last, before = position.last, position.before
        nodes: list[Node] = []
        for n, reach in enumerate(reaches):
            row = sums.row(n, last.entry)
            stage = Stage(begin + n + 1, times[n + 1], times[n], reach, row, newest[n].unbind(0))
            last, before = self.method.step(stage, last, before), last
            nodes.append(last)
        made = sums.close(last.entry)
        carry = self.history.close(position.carry, end, made) if end < self.grid.n_steps else position.carry
        return nodes, made, Position(carry, last, before)

    def _reaches(self, begin: int, end: int) -> Sequence[torch.Tensor | float]:
        """Return how far each node lies from the last but one, in steps before; 1 where no line is to be continued."""
        if not self.method.continued:
            return [1.0] * (end - begin)
        lengths = self.grid.elapsed[max(begin - 1, 0) : end + 1].diff()
        ratios = (1.0 + lengths[1:] / lengths[:-1]).to(self.method.problem.value.dtype)
        return [*([] if begin else [1.0]), *ratios.unbind(0)]

    def _outputs(
        self,
        places: OutputPlaces,
        position: Position,
        begin: int,
        end: int,
        states: list[torch.Tensor],
        made: torch.Tensor,
    ) -> Sequence[torch.Tensor]:
        """Return the requested states after node begin, up to node end."""
        here = places.part(places.known_after(begin, end))
        if bool(here.at_node.all()):
            return [states[number - begin] for number in here.left.tolist()]

        def integral(times: torch.Tensor) -> torch.Tensor:
            sums = self.history.between(position.carry, made, times).transpose(0, 1)
            return self.method.problem.without_memory(times) + sums

        known = torch.stack(states)
        return here.interpolated(known, integral if self.method.of_slopes else None, begin).unbind(0)


def warn_of_growth(problem: Problem, grid: Grid, name: str, last: torch.Tensor) -> None:
    """Warn if a component grew more than a thousandfold although func, at the last state, points back.

    Looks at values once, at the end of a solve.
    """
    if being_traced():
        return
    start, last = problem.value.detach(), last.detach().reshape(problem.value.shape)
    grown = (last.abs() > _GROWTH * start.abs()) & (start != 0)
    if not bool(grown.any()):
        return
    devices = [last.device] if last.is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(devices):  # the caller's random numbers stay in order
        slope = problem.packed_slope(grid.clock[-1], last)
    powers = grid.elapsed.detach().diff()[-1] ** problem.orders.detach().to(grid.elapsed.device)
    change = powers.to(slope.dtype)[:, None] * slope
    if bool((grown & (change * last.sign() < -_LARGE_STEP * last.abs())).any()):
        warnings.warn(
            f"the solution has grown more than a thousandfold until t = {time_text(grid.clock[-1])}, while func points "
            f"back there: the steps of method {name!r} are too long to be stable; pass a larger n_steps, "
            f"method='collocation', or leave out n_steps for steps that the solver chooses",
            UnstableStepsWarning,
            stacklevel=user_stacklevel(),
        )
