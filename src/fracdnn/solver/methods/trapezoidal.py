"""The trapezoidal rule for the integral equation, implicit: u_n = u_0 + Σ_{k<n} a_nk f_k + a_nn func(t_n, u_n).

Of second order where slopes are smooth. Source: Garrappa, "Numerical solution of fractional differential equations: a
survey and a software tutorial", 2018.
"""

from fracdnn.solver.methods.base import Method, Node, Stage
from fracdnn.solver.rules import LinearRule, Rule


class Trapezoidal(Method):
    """Slopes are linear between nodes, up to the newest."""

    name = "trapezoidal"
    implicit = True

    def rules(self) -> list[Rule]:
        return [LinearRule(self.problem.orders)]

    def step(self, stage: Stage, last: Node, before: Node | None) -> Node:
        weight = stage.weight().to(last.state.dtype)
        state = self.solve(stage, stage.memory(), weight, guess=last.state)
        return Node(state, self.problem.slope(stage.time, state))
