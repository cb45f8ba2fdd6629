"""The L1 scheme: the derivative of what is linear between nodes; see `fracdnn.caputo.weights`.

With x_k = u_k − u_{k−1} the derivative at t_n is −Σ_{k≤n} w_nk x_k (w < 0), so that

    u_n = u_{n−1} − (f + Σ_{k<n} w_nk x_k)/w_nn:

explicit with f = func(t_{n−1}, u_{n−1}), the paper's, of first order; implicit with f = func(t_n, u_n), of order
2 − order for smooth solutions. Source: Lin, Xu, "Finite difference/spectral approximations for the time-fractional
diffusion equation", 2007.
"""

from typing import Any

import torch

from fracdnn.solver.methods.base import Method, Node, Stage
from fracdnn.solver.rules import DifferenceRule


class _L1(Method):
    largest_order = 1.0
    of_slopes = False
    rule_kinds = (lambda orders: DifferenceRule(1.0 - orders),)

    def first(self, time: torch.Tensor) -> Node:
        state: Any = self.problem.value if self.packs else self.problem.states.unpack(self.problem.value)
        return Node(state, torch.zeros_like(state))


class L1(_L1):
    """Explicit."""

    name = "l1"

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        seen = self.node(stage.last_time, last.state)
        difference = (seen.entry + stage.sums[0]) * (-1.0 / stage.newest[0])
        return Node(seen.state + difference, difference)


class ImplicitL1(_L1):
    """With the slope at the newest node."""

    name = "l1-implicit"
    implicit = True

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        factor = -1.0 / stage.newest[0]
        known = last.state + factor * stage.sums[0]
        state = self.solve(stage, known, factor, guess=last.state).state
        return Node(state, state - last.state)
