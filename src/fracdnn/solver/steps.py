"""The nodes of a method, block by block: three ways, of which `steps_for` chooses.

`Steps` is the definition: any method, in plain operations. `TapedSteps` makes the nodes of an explicit method with few
nodes of the graph (`fracdnn.solver.tape`). `RunningSteps` is for order 1, where no sum but a running one is needed.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.solver.grids import Grid
from fracdnn.solver.history import BlockSums, Carry, History
from fracdnn.solver.methods.base import Method, Node, Stage
from fracdnn.solver.methods.l1 import L1
from fracdnn.solver.methods.predictor_corrector import PredictorCorrector, plus
from fracdnn.solver.tape import TapedSums
from fracdnn.tracing import being_transformed, carries_derivative


@dataclass(frozen=True)
class Position:
    """Where a walk stands after a block: the history that it carries, and the two newest nodes."""

    carry: Carry
    last: Node
    before: Node  # the first one twice

    def tensors(self) -> tuple[torch.Tensor, ...]:
        nodes = (each for node in (self.last, self.before) for each in (node.state, node.entry))
        return (*nodes, self.carry.window, *self.carry.far)

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> "Position":
        state, entry, state_before, entry_before, window, *far = tensors
        carry = Carry(self.carry.begin, window, tuple(far))
        return Position(carry, Node(state, entry), Node(state_before, entry_before))


class Steps:
    """Makes nodes, by the definition."""

    def __init__(self, method: Method, grid: Grid, history: History) -> None:
        self.method, self.grid, self.history = method, grid, history

    def prepare(self) -> None:
        """What blocks share, so that none of it is made inside of a part that is computed again."""
        self.history.prepare(self.method.problem.value.dtype)

    def start(self) -> Position:
        first = self.method.first(self.grid.clock[0])
        return Position(self.history.start(first.entry.reshape(self.method.problem.value.shape)), first, first)

    def over(self, begin: int, end: int, position: Position) -> tuple[list[Node], Any]:
        """Nodes begin + 1 … end, and what `close` takes."""
        times = self.grid.clock[begin : end + 1].unbind(0)
        sums, reaches = self._sums(begin, end, position), self._reaches(begin, end)
        last, before = position.last, position.before
        nodes: list[Node] = []
        for n, reach in enumerate(reaches):
            row = sums.row(n, last)
            stage = Stage(begin + n + 1, times[n + 1], times[n], reach, row, sums.newest[n])
            last, before = self.method.step(stage, last, before), last
            nodes.append(last)
        return nodes, sums.close(last)

    def slopes(self, nodes: list[Node], closing: Any) -> torch.Tensor:
        """[G, B, d] of nodes just made."""
        return closing

    def close(self, begin: int, position: Position, nodes: list[Node], closing: Any) -> Position:
        before = nodes[-2] if len(nodes) > 1 else position.last
        return Position(self._carry(begin, position, nodes, closing), nodes[-1], before)

    def _carry(self, begin: int, position: Position, nodes: list[Node], closing: Any) -> Carry:
        return self.history.close(position.carry, begin, closing)

    def _sums(self, begin: int, end: int, position: Position) -> Any:
        """Of a block: `row(n, last)`, for each rule the sum over all nodes before row n; `newest[n]`; and `close`."""
        return BlockSums(self.history, position.carry, begin, end, self._without_memory(begin, end))

    def _without_memory(self, begin: int, end: int) -> torch.Tensor | None:
        method = self.method
        return method.problem.without_memory(self.grid.elapsed[begin + 1 : end + 1]) if method.from_start else None

    def _reaches(self, begin: int, end: int) -> Sequence[Any]:
        """Of nodes begin + 1 … end; None where there is no line to continue."""
        if not self.method.continued:
            return [None] * (end - begin)
        lengths = self.grid.elapsed[max(begin - 1, 0) : end + 1].diff()
        reaches = self._one_by_one((1.0 + lengths[1:] / lengths[:-1]).to(self.method.problem.value.dtype))
        reaches = reaches if begin else [None, *reaches]
        return [None if n in self.grid.restarts else reach for n, reach in enumerate(reaches, begin)]

    def _one_by_one(self, numbers: torch.Tensor) -> Sequence[Any]:
        return numbers.unbind(0)


class TapedSteps(Steps):
    """By sums on a tape; for explicit methods."""

    def _sums(self, begin: int, end: int, position: Position) -> TapedSums:
        older, weights = self.history.open(position.carry, begin, end, self._without_memory(begin, end))
        inside = weights.inside
        newest = torch.diagonal(inside, dim1=1, dim2=3).unbind(1)
        by_row: list[Sequence[Any]] = list(zip(*map(_numbers, newest), strict=True))
        return TapedSums(older, inside, by_row, position.last.state.shape)

    def _one_by_one(self, numbers: torch.Tensor) -> Sequence[Any]:
        return _numbers(numbers.unsqueeze(0))


class RunningSteps(TapedSteps):
    """At order 1: a running sum for each rule, in plain operations."""

    def __init__(self, method: Method, grid: Grid, history: History) -> None:
        super().__init__(method, grid, history)
        rules: Any = history.rules
        weights = zip(*(rule.without_memory(grid.elapsed) for rule in rules), strict=True)
        self._later, self._own = (torch.stack(each).to(method.problem.value.dtype).unsqueeze(1) for each in weights)

    def prepare(self) -> None:
        """Nothing is made in blocks."""

    def start(self) -> Position:
        first = self.method.first(self.grid.clock[0])
        value = self.method.problem.value.reshape(first.state.shape)
        return Position(Carry(0, self._window(first), (value,) * len(self._later)), first, first)

    def slopes(self, nodes: list[Node], closing: "_RunningSums") -> torch.Tensor:
        return torch.cat([self._window(node) for node in nodes], dim=1)

    def _carry(self, begin: int, position: Position, nodes: list[Node], closing: "_RunningSums") -> Carry:
        return Carry(begin + len(nodes), self._window(nodes[-1]), tuple(closing.sums))

    def _sums(self, begin: int, end: int, position: Position) -> "_RunningSums":  # type: ignore[override]
        later = [_numbers(weights[:, begin:end]) for weights in self._later]
        newest = [_numbers(weights[:, begin + 1 : end + 1]) for weights in self._own]
        return _RunningSums(list(position.carry.far), later, list(zip(*newest, strict=True)))

    def _window(self, node: Node) -> torch.Tensor:
        return node.entry.reshape(self.method.problem.value.shape).unsqueeze(1)


class _RunningSums:
    def __init__(self, sums: list[torch.Tensor], later: list[Sequence[Any]], newest: list[Sequence[Any]]) -> None:
        self.sums, self._later, self.newest = sums, later, newest

    def row(self, n: int, last: Node) -> Sequence[torch.Tensor]:
        for rule, weights in enumerate(self._later):
            self.sums[rule] = plus(self.sums[rule], last.entry, weights[n])
        return self.sums

    def close(self, last: Node) -> "_RunningSums":
        return self


def _numbers(weights: torch.Tensor) -> Sequence[Any]:
    """[G, K] one by one: as Python numbers where nobody loses by it, else as tensors that multiply states."""
    if len(weights) > 1:
        return weights.unsqueeze(-1).unbind(1)
    if weights.device.type == "cpu" and not carries_derivative(weights):
        return weights[0].tolist()
    return weights[0].unbind(0)


def steps_for(method: Method, grid: Grid, *, exact: bool, tolerance: float) -> Steps:
    """The fastest way that can run."""
    rules, orders, kind = method.rules(grid), method.problem.orders, Steps
    if isinstance(method, PredictorCorrector | L1) and not torch.compiler.is_compiling():
        if not isinstance(method, L1) and not carries_derivative(orders) and bool((orders == 1.0).all()):
            kind, exact = RunningSteps, True
        elif not being_transformed() and type(method.problem.value) is torch.Tensor:
            kind = TapedSteps
        if kind is not Steps:
            method = copy(method)
            method.packs = not method.problem.states.is_plain
    return kind(method, grid, History(rules, grid.elapsed, grid.step, exact=exact, tolerance=tolerance))
