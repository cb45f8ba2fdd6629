"""Product integration: the integral equation by one rule, corrected by another, or implicit.

u_n = u_0 + Σ_{k<n} a_nk f_k + a_nn func(t_n, prediction, or u_n itself)
"""

from typing import Any

import torch

from fracdnn.solver.methods.base import Method, Node, Stage
from fracdnn.solver.rules import ConstantRule, LinearRule


class PredictorCorrector(Method):
    """Node n is what the first rule's sum predicts, corrected `corrections` times with the last one's.

    `continued`: the predicting sum goes on to node n itself, for which the slopes are continued in a straight line.
    The first node has no line to continue, and is corrected once more.
    """

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        problem, state, corrections = self.problem, stage.sums[0], self.corrections if self.corrected else 0
        if self.continued:
            if stage.reach is None:
                slope, corrections = last.entry, corrections + 1
            else:
                slope = torch.lerp(before.entry, last.entry, stage.reach)
            state = plus(state, slope, stage.newest[0])
        for _ in range(corrections):
            slope = (problem.packed_slope if self.packs else problem.slope)(stage.time, state)
            state = plus(stage.sums[-1], slope, stage.newest[-1])
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


class Adams(PredictorCorrector):
    """Predicted by the corrector's own sum, with the slopes continued in a straight line; second order for any order.

    The prediction errs in the newest interval only, by O(τ^(2+order)), so one correction is enough. One sum per step
    where "pece" needs two.
    """

    name = "adams"
    corrected = continued = True


class Trapezoidal(Method):
    """Implicit: slopes are linear between nodes, up to the newest. Of second order where slopes are smooth.

    Source: Garrappa, "Numerical solution of fractional differential equations: a survey and a software tutorial", 2018.
    """

    name = "trapezoidal"
    implicit = True

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        return self.solve(stage, stage.sums[0], stage.newest[0], guess=last.state)


def plus(total: torch.Tensor, value: torch.Tensor, weight: Any) -> torch.Tensor:
    """Total + weight · value."""
    if isinstance(weight, float):
        return torch.add(total, value, alpha=weight)
    return torch.addcmul(total, value, weight)
