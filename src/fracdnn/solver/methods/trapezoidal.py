"""The trapezoidal rule for the integral equation, implicit: u_n = u_0 + Σ_{k<n} a_nk f_k + a_nn func(t_n, u_n).

Of second order where slopes are smooth. Source: Garrappa, "Numerical solution of fractional differential equations: a
survey and a software tutorial", 2018.
"""

from fracdnn.solver.grids import Grid
from fracdnn.solver.methods.base import Method, Node, Stage
from fracdnn.solver.rules import LinearRule, Rule


class Trapezoidal(Method):
    """Slopes are linear between nodes, up to the newest."""

    name = "trapezoidal"
    implicit = True

    def rules(self, grid: Grid | None) -> list[Rule]:
        return [LinearRule(self.problem.orders)]

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        return self.solve(stage, stage.sums[0], stage.newest[0], guess=last.state)
