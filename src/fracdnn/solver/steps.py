"""The nodes of a method, block by block: three ways, of which `steps_for` chooses.

`BlockSums` are the definition: any method, in plain operations. On a tape (`fracdnn.solver.tape`) an explicit method
has fewer nodes of the graph. `RunningSums` are for order 1, where no sum but a running one is needed.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.solver.grids import Grid
from fracdnn.solver.history import BlockSums, Carry, History
from fracdnn.solver.methods import L1, Method, Node, PredictorCorrector, Stage, plus
from fracdnn.solver.rules import Rule
from fracdnn.solver.tape import TapedSums
from fracdnn.tracing import being_transformed, carries_derivative


@dataclass(frozen=True, eq=False)
class Position:
    """Where a walk stands after a block: the history that it carries, and the two newest nodes."""

    carry: Carry
    last: Node
    before: Node  # the first one twice

    def tensors(self) -> tuple[torch.Tensor, ...]:
        return (*self.last, *self.before, self.carry.window, *self.carry.far)

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> "Position":
        carry = Carry(self.carry.begin, tensors[4], tuple(tensors[5:]))
        return Position(carry, Node(*tensors[:2]), Node(*tensors[2:4]))


class Steps:
    """Makes nodes; `running`: at order 1, with a running sum for each rule and no history."""

    def __init__(
        self,
        method: Method,
        grid: Grid,
        *,
        exact: bool = False,
        tolerance: float,
        on_tape: bool = False,
        running: bool = False,
    ) -> None:
        self.method, self.grid, self._on_tape, self._running = method, grid, on_tape, running
        rules = [Rule(kind, method.problem.orders) for kind in method.rules]
        self.history = history = History(rules, grid.elapsed, grid.step, exact=exact, tolerance=tolerance)
        if running:
            weights = zip(*(rule.without_memory(grid.elapsed) for rule in history.rules), strict=True)
            self._later, self._own = (torch.stack(each).to(method.problem.value.dtype).unsqueeze(1) for each in weights)

    def prepare(self) -> None:
        """What blocks share, so that none of it is made inside of a part that is computed again."""
        if not self._running:
            self.history.prepare(self.method.problem.value.dtype)

    def start(self) -> Position:
        first = self.method.first(self.grid.clock[0])
        if self._running:
            value = self.method.problem.value.reshape(first.state.shape)
            return Position(self._running_carry(0, first, [value] * len(self.history.rules)), first, first)
        return Position(self.history.start(first.entry.reshape(self.method.problem.value.shape)), first, first)

    def over(self, begin: int, end: int, position: Position) -> tuple[list[Node], torch.Tensor, Position]:
        """Nodes begin + 1 … end, their entries [G, B, d], and where the walk stands then."""
        times = self.grid.clock[begin : end + 1].unbind(0)
        (sums, newest), reaches = self._sums(begin, end, position), self._reaches(begin, end)
        last, before = position.last, position.before
        nodes: list[Node] = []
        for n, reach in enumerate(reaches):
            row = sums.row(n, (last.entry,), last.state)
            stage = Stage(begin + n + 1, times[n + 1], times[n], reach, row, newest[n])
            last, before = self.method.step(stage, last, before), last
            nodes.append(last)
        made = sums.close(last.entry, last.state)
        if self._running:
            carry = self._running_carry(end, last, sums.totals)
        elif end < self.grid.n_steps:
            carry = self.history.close(position.carry, end, made)
        else:  # there is no other block
            carry = position.carry
        return nodes, made, Position(carry, last, before)

    def _running_carry(self, end: int, node: Node, totals: Sequence[torch.Tensor]) -> Carry:
        return Carry(end, node.entry.reshape(self.method.problem.value.shape).unsqueeze(1), tuple(totals))

    def _sums(self, begin: int, end: int, position: Position) -> tuple[Any, list[Sequence[Any]]]:
        """What has for each row of a block the sums of all rules over the nodes before it; and its own weights."""
        problem, start = self.method.problem, None
        if self._running:
            later = [self._one_by_one(weights[:, begin:end]) for weights in self._later]
            newest = [self._one_by_one(weights[:, begin + 1 : end + 1]) for weights in self._own]
            return RunningSums(list(position.carry.far), later, problem.value.shape), list(zip(*newest, strict=True))
        if self.method.of_slopes:
            start = problem.without_memory(self.grid.elapsed[begin + 1 : end + 1])
        older, inside = self.history.open(position.carry, begin, end, start)
        own = torch.diagonal(inside, dim1=1, dim2=3).unbind(1)
        sums = TapedSums(older, inside, position.last.state.shape) if self._on_tape else BlockSums(older, inside)
        return sums, list(zip(*map(self._one_by_one, own), strict=True))

    def _reaches(self, begin: int, end: int) -> Sequence[Any]:
        """Of nodes begin + 1 … end; 1 where there is no line to continue."""
        if not self.method.continued:
            return [1.0] * (end - begin)
        lengths = self.grid.elapsed[max(begin - 1, 0) : end + 1].diff()
        ratios = (1.0 + lengths[1:] / lengths[:-1]).to(self.method.problem.value.dtype)
        return [*([] if begin else [1.0]), *self._one_by_one(ratios.unsqueeze(0))]

    def _one_by_one(self, weights: torch.Tensor) -> Sequence[Any]:
        """[G, K]: on a tape as Python numbers where nobody loses by it, else as tensors that multiply states."""
        if not (self._on_tape or self._running) or len(weights) > 1:
            return weights.unsqueeze(-1).unbind(1)
        if weights.device.type == "cpu" and not carries_derivative(weights):
            return weights[0].tolist()
        return weights[0].unbind(0)


class RunningSums:
    """What `BlockSums` is at order 1."""

    def __init__(self, totals: list[torch.Tensor], later: list[Sequence[Any]], shape: torch.Size) -> None:
        self.totals, self._later, self._shape = totals, later, shape
        self._seen: list[torch.Tensor] = []

    def row(self, n: int, entries: Sequence[torch.Tensor], state: torch.Tensor) -> Sequence[torch.Tensor]:
        self._seen.append(entries[0])
        for rule, weights in enumerate(self._later):
            self.totals[rule] = plus(self.totals[rule], entries[0], weights[n])
        return self.totals

    def close(self, entry: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        return torch.stack([*self._seen[1:], entry]).reshape(-1, *self._shape).transpose(0, 1)


def steps_for(method: Method, grid: Grid, *, exact: bool, tolerance: float) -> Steps:
    """The fastest way that can run."""
    orders, on_tape, running = method.problem.orders, False, False
    if isinstance(method, PredictorCorrector | L1) and not torch.compiler.is_compiling():
        running = not (isinstance(method, L1) or carries_derivative(orders)) and bool((orders == 1.0).all())
        on_tape = not (running or being_transformed()) and type(method.problem.value) is torch.Tensor
        if running or on_tape:
            method = copy(method)
            method.packs = not method.problem.states.is_plain
    return Steps(method, grid, exact=exact or running, tolerance=tolerance, on_tape=on_tape, running=running)
