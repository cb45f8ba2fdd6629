"""The rectangle rule for the integral equation: u_n = u_0 + Σ_{k<n} w_nk func(t_k, u_k).

Explicit, of first order. Source: Diethelm, "The Analysis of Fractional Differential Equations", 2010, appendix C.
"""

from fracdnn.solver.mesh import Grid
from fracdnn.solver.methods.base import Explicit, Method, Node, Stage
from fracdnn.solver.rules import ConstantRule, Rule


class Euler(Method):
    """Slopes hold from node to node."""

    name = "euler"

    def rules(self, grid: Grid | None) -> list[Rule]:
        return [ConstantRule(self.problem.orders)]

    @property
    def explicit(self) -> Explicit:
        return Explicit(predictor=0, corrector=0, corrections=0)

    def step(self, stage: Stage, last: Node, before: Node | None) -> Node:
        return self.node(stage.time, stage.sums[0])
