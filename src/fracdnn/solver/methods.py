"""Methods by name: ways to take steps, each a class with its formula, order and source.

A method keeps a history of one quantity x_n, mostly the slope func(t_n, u_n). At step n it is given the sums of its
rules over x_0 … x_{n−1} and makes u_n and x_n of them. Product integration solves the integral equation by one rule,
corrected by another, or implicit:

    u_n = u_0 + Σ_{k<n} a_nk f_k + a_nn func(t_n, prediction, or u_n itself)

The L1 scheme is the derivative of what is linear between nodes; see `fracdnn.caputo.weights`. With x_k = u_k − u_{k−1}
the derivative at t_n is −Σ_{k≤n} w_nk x_k (w < 0), so that

    u_n = u_{n−1} − (f + Σ_{k<n} w_nk x_k)/w_nn:

explicit with f = func(t_{n−1}, u_{n−1}), the paper's, of first order; implicit with f = func(t_n, u_n), of order
2 − order for smooth solutions. Source: Lin, Xu, "Finite difference/spectral approximations for the time-fractional
diffusion equation", 2007.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from fracdnn.exceptions import NotConvergedError
from fracdnn.solver.coupled import CoupledSolver, System
from fracdnn.solver.problem import Problem, time_text


class Node(NamedTuple):
    """u_n and x_n, at t_n."""

    state: torch.Tensor
    entry: torch.Tensor


@dataclass(slots=True, eq=False)
class Stage:
    """All that step n has to work with; sums of slopes count from the solution without memory.

    Explicit methods may get newest weights and reach as Python numbers.
    """

    number: int
    time: torch.Tensor  # as func sees it
    last_time: torch.Tensor
    reach: Any  # 1 + step / the one before: how far node n lies from node n − 2, in steps before; 1 for the first
    sums: Sequence[torch.Tensor]  # [groups, components] for each rule, over the nodes before
    newest: Sequence[Any]  # [groups, 1] for each rule: the weight of node n itself


class Method(ABC):
    """A way to take steps, made of sums of its rules, of which the last gives the solution between nodes."""

    name: ClassVar[str]
    implicit: ClassVar[bool] = False
    corrected: ClassVar[bool] = False  # a prediction is
    rules: ClassVar[tuple[str, ...]] = ("linear",)  # kinds of `Rule`
    continued: ClassVar[bool] = False  # whether a step continues slopes in a straight line, so that it needs `reach`

    def __init__(self, problem: Problem, corrections: int = 1) -> None:
        self.problem, self.corrections = problem, corrections
        self.stages = CoupledSolver(problem, 50)
        # Whether x_n is a slope, so that sums count from the solution without memory, u_0 + t u_0'; else between nodes
        # the solution is linear.
        self.of_slopes = "difference" not in self.rules

    def first(self, time: torch.Tensor) -> Node:
        if not self.of_slopes:
            return Node(self.problem.value, torch.zeros_like(self.problem.value))
        node = self.node(time, self.problem.value)
        self.problem.value = node.state
        return node

    def node(self, time: torch.Tensor, state: torch.Tensor) -> Node:
        return Node(*self.problem.evaluate(time, state))

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


class PredictorCorrector(Method):
    """Node n is what the first rule's sum predicts, corrected `corrections` times with the last one's.

    `continued`: the predicting sum goes on to node n itself, for which the slopes are continued in a straight line.
    The first node has no line to continue, and is corrected once more.
    """

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        problem, state, corrections = self.problem, stage.sums[0], self.corrections if self.corrected else 0
        if self.continued:
            is_first = stage.number == 1
            slope = last.entry if is_first else torch.lerp(before.entry, last.entry, stage.reach)
            state, corrections = plus(state, slope, stage.newest[0]), corrections + is_first
        for _ in range(corrections):
            slope = problem.packed_slope(stage.time, state)
            state = plus(stage.sums[-1], slope, stage.newest[-1])
        return self.node(stage.time, state)


class Adams(PredictorCorrector):
    """Predicted by the corrector's own sum, with the slopes continued in a straight line; second order for any order.

    The prediction errs in the newest interval only, by O(τ^(2+order)), so one correction is enough. One sum per step
    where "pece" needs two.
    """

    name = "adams"
    corrected = continued = True


class Euler(PredictorCorrector):
    """The rectangle rule alone, of first order.

    Source: Diethelm, "The Analysis of Fractional Differential Equations", 2010, appendix C.
    """

    name = "euler"
    rules = ("constant",)


class Pece(PredictorCorrector):
    """Predicted by the rectangle rule: Adams-Bashforth-Moulton, of order min(2, 1 + order · corrections).

    Source: Diethelm, Ford, Freed, "A predictor-corrector approach for the numerical solution of fractional
    differential equations", 2002; for orders above 1, order 2.
    """

    name = "pece"
    rules = ("constant", "linear")
    corrected = True


class Trapezoidal(Method):
    """Implicit: slopes are linear between nodes, up to the newest. Of second order where slopes are smooth.

    Source: Garrappa, "Numerical solution of fractional differential equations: a survey and a software tutorial", 2018.
    """

    name = "trapezoidal"
    implicit = True

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        return self.solve(stage, stage.sums[0], stage.newest[0], guess=last.state)


class L1(Method):
    """Explicit."""

    name = "l1"
    rules = ("difference",)

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        seen = self.node(stage.last_time, last.state)
        difference = (seen.entry + stage.sums[0]) * (-1.0 / stage.newest[0])
        return Node(seen.state + difference, difference)


class ImplicitL1(Method):
    """With the slope at the newest node."""

    name = "l1-implicit"
    implicit = True
    rules = ("difference",)

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        factor = -1.0 / stage.newest[0]
        known = last.state + factor * stage.sums[0]
        state = self.solve(stage, known, factor, guess=last.state).state
        return Node(state, state - last.state)


METHODS: dict[str, type[Method]] = {method.name: method for method in (Adams, Euler, L1, ImplicitL1, Pece, Trapezoidal)}


def plus(total: torch.Tensor, value: torch.Tensor, weight: Any) -> torch.Tensor:
    """Total + weight · value."""
    if isinstance(weight, float):
        return torch.add(total, value, alpha=weight)
    return torch.addcmul(total, value, weight)
