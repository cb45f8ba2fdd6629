"""Predictor-corrector methods: the corrector is the trapezoidal rule for the integral equation, made explicit.

u_n = u_0 + Σ_{k<n} a_nk f_k + a_nn func(t_n, prediction)
"""

import torch

from fracdnn.solver.mesh import Grid
from fracdnn.solver.methods.base import Explicit, Method, Node, Stage
from fracdnn.solver.rules import ConstantRule, LinearRule, Rule


class _Corrected(Method):
    def _corrected(self, stage: Stage, rule: int, slope: torch.Tensor) -> Node:
        memory, weight = stage.sums[rule], stage.newest[rule]
        for _ in range(self.options.corrections - 1):
            slope = self.slope(stage.time, memory + weight * slope)
        return self.node(stage.time, memory + weight * slope)


class Pece(_Corrected):
    """Predicted by the rectangle rule: Adams-Bashforth-Moulton, of order min(2, 1 + order · corrections).

    Source: Diethelm, Ford, Freed, "A predictor-corrector approach for the numerical solution of fractional
    differential equations", 2002; for orders above 1, order 2.
    """

    name = "pece"
    between = 1

    def rules(self, grid: Grid | None) -> list[Rule]:
        return [ConstantRule(self.problem.orders), LinearRule(self.problem.orders)]

    @property
    def explicit(self) -> Explicit:
        return Explicit(predictor=0, corrector=1, corrections=self.options.corrections)

    def step(self, stage: Stage, last: Node, before: Node | None) -> Node:
        return self._corrected(stage, 1, self.slope(stage.time, stage.sums[0]))


class Adams(_Corrected):
    """Predicted by the corrector's own sum, with the slopes continued in a straight line; second order for any order.

    The prediction errs in the newest interval only, by O(τ^(2+order)), so one correction is enough. (The first step,
    which has no line to continue, is corrected once more.) One sum a step where "pece" needs two.
    """

    name = "adams"

    def rules(self, grid: Grid | None) -> list[Rule]:
        return [LinearRule(self.problem.orders)]

    @property
    def explicit(self) -> Explicit:
        return Explicit(predictor=0, corrector=0, corrections=self.options.corrections, continued=True)

    def step(self, stage: Stage, last: Node, before: Node | None) -> Node:
        memory, weight = stage.sums[0], stage.newest[0]
        if before is None or stage.reach is None:
            continued = self.slope(stage.time, memory + weight * last.entry)
        else:
            continued = torch.lerp(before.entry, last.entry, stage.reach)
        return self._corrected(stage, 0, self.slope(stage.time, memory + weight * continued))
