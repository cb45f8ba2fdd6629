"""The nodes of a method, block by block: three ways, of which `steps_for` chooses.

`PlainSteps` is the definition: any method, in plain operations. `TapedSteps` makes the nodes of an explicit method with
few nodes of the graph (`fracdnn.solver.tape`). `RunningSteps` is for order 1, where no sum but a running one is needed.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fracdnn.solver.history import Carry, History
from fracdnn.solver.mesh import Grid
from fracdnn.solver.methods.base import Explicit, Method, Node, Stage
from fracdnn.solver.tape import TapedSums
from fracdnn.tracing import being_transformed, carries_derivative


@dataclass(frozen=True)
class Position:
    """Where a walk stands after a block: the history that it carries, and the two newest nodes."""

    carry: Carry
    last: Node
    before: Node | None

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All it holds."""
        nodes = (self.last,) if self.before is None else (self.last, self.before)
        return (*(each for node in nodes for each in (node.state, node.entry)), self.carry.window, *self.carry.far)

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> "Position":
        """The same with others."""
        nodes = [Node(*tensors[:2])]
        if self.before is not None:
            nodes.append(Node(*tensors[2:4]))
        window, *far = tensors[2 * len(nodes) :]
        return Position(
            Carry(self.carry.begin, window, tuple(far)), nodes[0], None if self.before is None else nodes[1]
        )


class Steps(ABC):
    """Makes nodes; these hold states and slopes in `shape`."""

    shape: torch.Size

    def __init__(self, method: Method, grid: Grid, history: History) -> None:
        self.method, self.grid, self.history = method, grid, history
        self.shape = method.problem.value.shape

    @property
    def learned(self) -> bool:
        """Whether somebody wants derivatives by orders or times."""
        return any(map(carries_derivative, (self.method.problem.orders, self.grid.elapsed, self.grid.clock)))

    def prepare(self) -> None:
        """What blocks share, so that none of it is made inside of a segment that is computed again."""
        self.history.prepare(self.method.problem.value.dtype)

    def start(self) -> Position:
        """At node 0."""
        first = self._first()
        return Position(self.history.start(first.entry.reshape(self.method.problem.value.shape)), first, None)

    @abstractmethod
    def over(self, begin: int, end: int, position: Position) -> tuple[list[Node], Any]:
        """Nodes begin + 1 … end, and what `close` takes."""

    def slopes(self, nodes: list[Node], closing: Any) -> torch.Tensor:
        """[G, B, d] of nodes just made."""
        return closing

    def close(self, begin: int, position: Position, nodes: list[Node], closing: Any) -> Position:
        """After a block."""
        carry = self.history.close(position.carry, begin, closing)
        return Position(carry, nodes[-1], nodes[-2] if len(nodes) > 1 else position.last)

    def _first(self) -> Node:
        return self.method.first(self.grid.clock[0])

    def _without_memory(self, begin: int, end: int) -> torch.Tensor:
        return self.method.problem.without_memory(self.grid.elapsed[begin + 1 : end + 1])


class PlainSteps(Steps):
    """By `Method.step`."""

    def __init__(self, method: Method, grid: Grid, history: History) -> None:
        super().__init__(method, grid, history)
        self._lengths = grid.elapsed.diff()
        self._reaches = 1.0 + self._lengths[1:] / self._lengths[:-1]

    def over(self, begin: int, end: int, position: Position) -> tuple[list[Node], torch.Tensor]:
        last, before = position.last, position.before
        nodes: list[Node] = []
        dtype = self.method.problem.value.dtype
        times, lengths = self.grid.clock[begin : end + 1].unbind(0), self._lengths[begin:end].to(dtype).unbind(0)
        reaches: Sequence[torch.Tensor | None] = self._reaches[max(begin - 1, 0) : end - 1].to(dtype).unbind(0)
        if not begin:
            reaches = (None, *reaches)
        reaches = [None if n in self.grid.restarts else reach for n, reach in enumerate(reaches, begin)]

        def step(n: int, sums: Sequence[torch.Tensor], newest: Sequence[torch.Tensor]) -> torch.Tensor:
            nonlocal last, before
            stage = Stage(
                number=n,
                time=times[n - begin],
                last_time=times[n - begin - 1],
                step=lengths[n - begin - 1],
                reach=reaches[n - begin - 1],
                sums=sums,
                newest=newest,
            )
            last, before = self.method.step(stage, last, before), last
            nodes.append(last)
            return last.entry

        start = self._without_memory(begin, end) if self.method.from_start else None
        return nodes, self.history.run(position.carry, begin, end, step, start)


class Sums(Protocol):
    """The sums of a block's rows."""

    def row(self, n: int, last: Node) -> Sequence[torch.Tensor]:
        """Of row n of the block, counted from 0, a sum for each rule over all nodes before it."""


class ExplicitSteps(Steps):
    """Predicts and corrects as `Explicit` says; a state that is one tensor of one order is never packed."""

    def __init__(self, method: Method, grid: Grid, history: History, explicit: Explicit) -> None:
        super().__init__(method, grid, history)
        self._explicit, problem = explicit, method.problem
        self._packs = problem.states.is_tuple or len(problem.orders) > 1
        if not self._packs:
            self.shape = problem.states.shapes[0]
        reach = torch.ones_like(grid.elapsed)
        if explicit.continued and grid.n_steps > 1:
            steps = grid.elapsed.diff()
            reach = torch.cat([reach[:2], 1.0 + steps[1:] / steps[:-1]])
            if grid.restarts:
                restarted = torch.tensor([n - 1 in grid.restarts for n in range(len(reach))], device=reach.device)
                reach = torch.where(restarted, 1.0, reach)
        self._reach = reach

    def _nodes(self, begin: int, end: int, position: Position, sums: Sums, own: torch.Tensor) -> list[Node]:
        """With the corrector's weights [G, B] of nodes in their own rows."""
        explicit, newest = self._explicit, _numbers(own)
        times = self.grid.clock[begin + 1 : end + 1].unbind(0)
        if explicit.continued:
            reach = self._reach[begin + 1 : end + 1].to(own.dtype)
            tips = list(zip(_numbers(own * reach), _numbers(own * (1.0 - reach)), strict=True))
        last, before = position.last, position.before
        nodes: list[Node] = []
        for n in range(end - begin):
            row, time = sums.row(n, last), times[n]
            state = row[explicit.predictor]
            if explicit.continued:
                state = plus(state, last.entry, tips[n][0])
                state = state if before is None else plus(state, before.entry, tips[n][1])
            for _ in range(explicit.corrections_of(begin + n + 1, self.grid.restarts)):
                state = plus(row[explicit.corrector], self._slope(time, state), newest[n])
            last, before = self._node(time, state), last
            nodes.append(last)
        return nodes

    def _first(self) -> Node:
        if self._packs:
            return super()._first()
        problem = self.method.problem
        state = problem.states.unpack(problem.value)
        problem.value = problem.states.pack(state)
        return self._node(self.grid.clock[0], state)  # type: ignore[arg-type]

    def _slope(self, time: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """At a guess of a node."""
        return (self.method.slope if self._packs else self.method.problem.slope)(time, state)

    def _node(self, time: torch.Tensor, state: torch.Tensor) -> Node:
        if self._packs:
            return self.method.node(time, state)
        return Node(state, self.method.problem.slope(time, state))


class TapedSteps(ExplicitSteps):
    """By sums on a tape."""

    def over(self, begin: int, end: int, position: Position) -> tuple[list[Node], torch.Tensor]:
        older, inside = self.history.open(position.carry, begin, end, self._without_memory(begin, end))
        own = torch.diagonal(inside[:, :, self._explicit.corrector], dim1=1, dim2=2)
        sums = TapedSums(older, inside, self.shape)
        nodes = self._nodes(begin, end, position, sums, own)
        return nodes, sums.close(nodes[-1])


class RunningSteps(ExplicitSteps):
    """At order 1: a running sum for each rule, in plain operations."""

    def __init__(
        self,
        method: Method,
        grid: Grid,
        history: History,
        explicit: Explicit,
        weights: Sequence[tuple[torch.Tensor, torch.Tensor]],
    ) -> None:
        super().__init__(method, grid, history, explicit)
        dtype = method.problem.value.dtype
        self._own = weights[explicit.corrector][1].to(dtype).unsqueeze(0)
        self._later = [later.to(dtype).unsqueeze(0) for later, _ in weights]

    def prepare(self) -> None:
        """Nothing is made in blocks."""

    def start(self) -> Position:
        first = self._first()
        value = self.method.problem.value.reshape(self.shape)
        return Position(self._carry(0, first, (value,) * len(self.history.rules)), first, None)

    def over(self, begin: int, end: int, position: Position) -> tuple[list[Node], "_RunningSums"]:
        sums = _RunningSums(list(position.carry.far), [_numbers(later[:, begin:end]) for later in self._later])
        return self._nodes(begin, end, position, sums, self._own[:, begin + 1 : end + 1]), sums

    def slopes(self, nodes: list[Node], closing: "_RunningSums") -> torch.Tensor:
        packed = self.method.problem.value.shape
        return torch.stack([node.entry for node in nodes]).reshape(len(nodes), *packed).transpose(0, 1)

    def close(self, begin: int, position: Position, nodes: list[Node], closing: "_RunningSums") -> Position:
        last, before = nodes[-1], nodes[-2] if len(nodes) > 1 else position.last
        return Position(self._carry(begin + len(nodes), last, tuple(closing.sums)), last, before)

    def _carry(self, begin: int, last: Node, sums: tuple[torch.Tensor, ...]) -> Carry:
        """With a window of one node, which is enough for what lies between the next ones."""
        return Carry(begin, last.entry.reshape(self.method.problem.value.shape).unsqueeze(1), sums)


class _RunningSums:
    def __init__(self, sums: list[torch.Tensor], weights: Sequence[Sequence[Any]]) -> None:
        self.sums, self._weights = sums, weights

    def row(self, n: int, last: Node) -> Sequence[torch.Tensor]:
        for rule, weights in enumerate(self._weights):
            self.sums[rule] = plus(self.sums[rule], last.entry, weights[n])
        return self.sums


def plus(total: torch.Tensor, value: torch.Tensor, weight: Any) -> torch.Tensor:
    """Total + weight · value."""
    if isinstance(weight, float):
        return torch.add(total, value, alpha=weight)
    return torch.addcmul(total, value, weight)


def _numbers(weights: torch.Tensor) -> Sequence[Any]:
    """[G, K] one by one: as Python numbers where nobody loses by it, else as tensors that multiply states."""
    if len(weights) > 1:
        return weights.unsqueeze(-1).unbind(1)
    if weights.device.type == "cpu" and not carries_derivative(weights):
        return weights[0].tolist()
    return weights[0].unbind(0)


def steps_for(method: Method, grid: Grid, *, exact: bool, tolerance: float) -> Steps:
    """The fastest way that can run."""
    rules, explicit = method.rules(grid), method.explicit
    if explicit is None or torch.compiler.is_compiling():
        return PlainSteps(method, grid, History(rules, grid.elapsed, grid.step, exact=exact, tolerance=tolerance))
    constant = [rule.without_memory(grid.elapsed) for rule in rules] if _is_order_one(method) else [None]
    history = History(rules, grid.elapsed, grid.step, exact=exact or constant[0] is not None, tolerance=tolerance)
    if None not in constant:
        return RunningSteps(method, grid, history, explicit, constant)  # type: ignore[arg-type]
    if being_transformed() or type(method.problem.value) is not torch.Tensor:
        return PlainSteps(method, grid, history)
    return TapedSteps(method, grid, history, explicit)


def _is_order_one(method: Method) -> bool:
    orders = method.problem.orders
    return not carries_derivative(orders) and bool((orders == 1.0).all())
