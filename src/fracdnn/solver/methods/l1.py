"""The L1 scheme: the derivative of what is linear between nodes; see `fracdnn.caputo.weights`.

With x_k = (u_k − u_{k−1})/τ_k the derivative at t_n is Σ_{k≤n} w_nk x_k, so that

    u_n = u_{n−1} + τ_n/w_nn · (f − Σ_{k<n} w_nk x_k):

explicit with f = func(t_{n−1}, u_{n−1}), the paper's, of first order; implicit with f = func(t_n, u_n), of order
2 − order for smooth solutions. Source: Lin, Xu, "Finite difference/spectral approximations for the time-fractional
diffusion equation", 2007.
"""

import torch

from fracdnn.solver.grids import Grid
from fracdnn.solver.methods.base import Method, Node, Stage
from fracdnn.solver.rules import ConstantRule, Rule


class _L1(Method):
    largest_order = 1.0
    adaptive = False
    from_start = False
    between = None

    def rules(self, grid: Grid | None) -> list[Rule]:
        return [ConstantRule(1.0 - self.problem.orders, of_later=True)]

    def first(self, time: torch.Tensor) -> Node:
        return Node(self.problem.value, torch.zeros_like(self.problem.value))


class L1(_L1):
    """Explicit."""

    name = "l1"

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        seen, slope = self.problem.evaluate(stage.last_time, last.state)
        entry = (slope - stage.sums[0]) / stage.newest[0]
        return Node(seen + stage.step * entry, entry)


class ImplicitL1(_L1):
    """With the slope at the newest node."""

    name = "l1-implicit"
    implicit = True

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        factor = stage.step / stage.newest[0]
        known = last.state - factor * stage.sums[0]
        state = self.solve(stage, known, factor, guess=last.state).state
        return Node(state, (state - last.state) / stage.step)
