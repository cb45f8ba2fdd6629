"""What a method is: rules for its history, and a stage that makes a node of their sums.

A method keeps a history of one quantity x_n, mostly the slope func(t_n, u_n). At step n it is given the sums of its
rules over x_0 … x_{n−1} and makes u_n and x_n of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from fracdnn.exceptions import NotConvergedError
from fracdnn.solver.coupled import CoupledSolver, System
from fracdnn.solver.problem import Problem, time_text
from fracdnn.solver.rules import LinearRule, Rule


class Node(NamedTuple):
    """u_n and x_n, at t_n."""

    state: torch.Tensor
    entry: torch.Tensor


@dataclass(slots=True)
class Stage:
    """All that step n has to work with; sums count from the solution without memory, unless the method says otherwise.

    Explicit methods may get newest weights and reach as Python numbers.
    """

    number: int
    time: torch.Tensor  # as func sees it
    last_time: torch.Tensor
    reach: Any  # 1 + step / the one before: how far node n lies from node n − 2, in steps before; None for the first
    sums: Sequence[torch.Tensor]  # [groups, components] for each rule, over the nodes before
    newest: Sequence[Any]  # [groups, 1] for each rule: the weight of node n itself


class Method(ABC):
    """A way to take steps, made of sums of its rules, of which the last gives the solution between nodes."""

    name: ClassVar[str]
    implicit: ClassVar[bool] = False
    largest_order: ClassVar[float] = 2.0
    corrected: ClassVar[bool] = False  # a prediction is
    rule_kinds: ClassVar[tuple[Callable[[torch.Tensor], Rule], ...]] = (LinearRule,)
    # Whether x_n is a slope, so that sums count from the solution without memory, u_0 + t u_0'; else between nodes the
    # solution is linear.
    of_slopes: ClassVar[bool] = True
    continued: ClassVar[bool] = False  # whether a step continues slopes in a straight line, so that it needs `reach`
    packs = True  # whether nodes hold states packed, rather than as func takes them

    def __init__(self, problem: Problem, corrections: int = 1) -> None:
        self.problem, self.corrections = problem, corrections
        self.stages = CoupledSolver(problem, 50)

    def rules(self) -> list[Rule]:
        return [kind(self.problem.orders) for kind in self.rule_kinds]

    def first(self, time: torch.Tensor) -> Node:
        problem, states = self.problem, self.problem.states
        node = self.node(time, problem.value if self.packs else states.unpack(problem.value))  # type: ignore[arg-type]
        problem.value = node.state if self.packs else states.pack(node.state)
        return node

    def node(self, time: torch.Tensor, state: torch.Tensor) -> Node:
        return Node(*self.problem.evaluate(time, state)) if self.packs else Node(state, self.problem.slope(time, state))

    @abstractmethod
    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        """u_n and x_n, after nodes n − 1 and n − 2."""

    def solve(self, stage: Stage, known: torch.Tensor, weight: torch.Tensor, guess: torch.Tensor) -> Node:
        """u_n = known + weight · func(t_n, u_n), and func(t_n, u_n)."""
        name = lambda: f"in step {stage.number}, at t = {time_text(stage.time)}"  # noqa: E731
        system = System((stage.time,), known.unsqueeze(1), weight.unsqueeze(1), name)
        try:
            states, slopes = self.stages.solve(system, guess.unsqueeze(1))
        except NotConvergedError:
            self.problem.check_slope(stage.time, guess)
            raise
        self.stages.note_noise(states, stage.time)
        return Node(states[:, 0], slopes[:, 0])
