"""Explicit product integration: the integral equation by one rule, corrected by another.

u_n = u_0 + Σ_{k<n} a_nk f_k + a_nn func(t_n, prediction)
"""

from typing import Any, ClassVar

import torch

from fracdnn.solver.grids import Grid
from fracdnn.solver.methods.base import Method, Node, Stage
from fracdnn.solver.rules import ConstantRule, LinearRule, Rule


class PredictorCorrector(Method):
    """Node n is what one rule's sum predicts, corrected `options.corrections` times with another's.

    `continued`: the predicting sum goes on to node n itself, for which the slopes are continued in a straight line.
    Where there is no line to continue, at the start and after a jump, the node is corrected once more.
    """

    rule_kinds: ClassVar[tuple[type[ConstantRule | LinearRule], ...]]
    predictor: ClassVar[int] = 0
    corrector: ClassVar[int] = 0

    def rules(self, grid: Grid | None) -> list[Rule]:
        return [kind(self.problem.orders) for kind in self.rule_kinds]

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        state, corrections = stage.sums[self.predictor], self.options.corrections if self.corrected else 0
        if self.continued:
            if stage.reach is None:
                slope, corrections = last.entry, corrections + 1
            else:
                slope = torch.lerp(before.entry, last.entry, stage.reach)
            state = plus(state, slope, stage.newest[self.predictor])
        for _ in range(corrections):
            slope = self.slope(stage.time, state)
            state = plus(stage.sums[self.corrector], slope, stage.newest[self.corrector])
        return self.node(stage.time, state)


class Euler(PredictorCorrector):
    """The rectangle rule alone, of first order.

    Source: Diethelm, "The Analysis of Fractional Differential Equations", 2010, appendix C.
    """

    name = "euler"
    rule_kinds = (ConstantRule,)


class Pece(PredictorCorrector):
    """Predicted by the rectangle rule: Adams-Bashforth-Moulton, of order min(2, 1 + order · corrections).

    Source: Diethelm, Ford, Freed, "A predictor-corrector approach for the numerical solution of fractional
    differential equations", 2002; for orders above 1, order 2.
    """

    name = "pece"
    rule_kinds = (ConstantRule, LinearRule)
    corrected = True
    corrector = between = 1


class Adams(PredictorCorrector):
    """Predicted by the corrector's own sum, with the slopes continued in a straight line; second order for any order.

    The prediction errs in the newest interval only, by O(τ^(2+order)), so one correction is enough. One sum per step
    where "pece" needs two.
    """

    name = "adams"
    rule_kinds = (LinearRule,)
    corrected = continued = True


def plus(total: torch.Tensor, value: torch.Tensor, weight: Any) -> torch.Tensor:
    """Total + weight · value."""
    if isinstance(weight, float):
        return torch.add(total, value, alpha=weight)
    return torch.addcmul(total, value, weight)
