"""The second backward difference formula as a convolution quadrature, with starting weights; implicit, equal steps.

    u_n = u_0 + Σ_{k≤s} w_nk f_k + h^γ Σ_{k≤n} ω_{n−k} f_k

The weights w_nk make the rule exact for f = t^ν with every ν = i + jγ up to 1, so that slopes like those at the start
of a solution are integrated to second order; u_1 … u_s are solved for together. Very stiff starts keep an error of
order 1 + γ, as large as that of the trapezoidal rule: see docs/solver.md.
Source: Lubich, "Discretized fractional calculus", 1986; Garrappa, "Trapezoidal methods for fractional differential
equations: theoretical and computational aspects", 2015.
"""

import torch

from fracdnn.caputo.weights import gamma
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.solver.coupled import CoupledSolver, System
from fracdnn.solver.grids import Grid
from fracdnn.solver.methods.base import MAX_ITERATIONS, Method, Node, Stage
from fracdnn.solver.rules import Bdf2Rule, LinearRule, Rule

# Powers of more terms are too much alike for numbers of 16 digits.
_MOST_POWERS = 8
# Distance of powers that are taken for one: the weights for both would have no digits in their derivatives.
_ALIKE = 1e-4


class Bdf2(Method):
    """Convolution weights for all nodes, starting weights for the first few."""

    name = "bdf2"
    implicit = True
    only_uniform = True

    def rules(self, grid: Grid) -> list[Rule]:
        if grid.step is None:
            raise AssertionError("bdf2 needs a uniform grid")
        rule = Bdf2Rule(self.problem.orders, grid.step, grid.n_steps)
        self._grid = grid
        self._coefficients, self._factor = rule.coefficients, grid.step ** self.problem.orders.view(-1, 1, 1)
        count = _powers(self.problem.orders).shape[-1]
        if count > grid.n_steps + 1:
            raise InvalidArgumentError(
                f"n_steps must be at least {count - 1} for method 'bdf2' at this order, got {grid.n_steps}; "
                f"pass more steps"
            )
        self._starting = starting_weights(self.problem.orders, rule.coefficients)
        return [rule, LinearRule(self.problem.orders)]

    def first(self, time: torch.Tensor) -> Node:
        """Node 0, and with it those that are solved for together."""
        node = super().first(time)
        count = self._starting.shape[-1]
        self._first_nodes = [node, *self._solved_together(node, count)]
        self._first_slopes = torch.stack([each.entry for each in self._first_nodes], dim=1)  # [G, S, d]
        self._starting = (self._factor * self._starting).to(node.state.dtype)
        return node

    def step(self, stage: Stage, last: Node, before: Node) -> Node:
        if stage.number < len(self._first_nodes):
            return self._first_nodes[stage.number]
        start = torch.bmm(self._starting[:, stage.number].unsqueeze(1), self._first_slopes).squeeze(1)
        return self.solve(stage, stage.sums[0] + start, stage.newest[0], guess=last.state)

    def _solved_together(self, first: Node, count: int) -> list[Node]:
        if count == 1:
            return []
        index = torch.arange(count, device=self._starting.device)
        lag = index[1:].unsqueeze(-1) - index
        weights = self._factor * (self._starting[:, 1:count] + self._coefficients[:, lag.clamp(min=0)] * (lag >= 0))
        weights = weights.to(first.state.dtype)  # [G, s, s + 1]
        known = self.problem.without_memory(self._grid.elapsed[1:count]).transpose(0, 1)
        known = known + weights[..., :1] * first.entry.unsqueeze(1)
        clock = self._grid.clock[1:count].unbind(0)
        system = System(clock, known, weights[..., 1:], lambda: f"for the first {count - 1} steps")
        guess = first.state.detach().unsqueeze(1).expand(-1, count - 1, -1)
        return self.solved(CoupledSolver(self.problem, MAX_ITERATIONS), system, guess)


def starting_weights(orders: torch.Tensor, coefficients: torch.Tensor) -> torch.Tensor:
    """[G, N + 1, S], in units of h^order: what makes the rule exact for S powers of t in each of its rows."""
    powers = _powers(orders)
    n_nodes = coefficients.shape[-1]
    nodes = torch.arange(n_nodes, dtype=torch.float64, device=orders.device)
    raised = torch.where(nodes > 0, nodes.clamp(min=1.0) ** powers.unsqueeze(-1), (powers == 0).double().unsqueeze(-1))
    one, other = torch.fft.rfft(coefficients.unsqueeze(1), 2 * n_nodes), torch.fft.rfft(raised, 2 * n_nodes)
    by_rule = torch.fft.irfft(one * other, 2 * n_nodes)[..., :n_nodes]
    order = orders.view(-1, 1, 1)
    exponent = powers.unsqueeze(-1)
    exact = gamma(exponent + 1.0) / gamma(exponent + order + 1.0)
    exact = torch.where(nodes > 0, exact * nodes.clamp(min=1.0) ** (exponent + order), 0.0)
    return torch.linalg.solve(raised[..., : powers.shape[-1]], exact - by_rule).transpose(1, 2)


def _powers(orders: torch.Tensor) -> torch.Tensor:
    """[G, S]: of the numbers i + j · order the smallest, as many as reach 1 for the smallest order; ascending."""
    lists, numbers = [], orders.detach().tolist()
    for order in numbers:
        pairs = [(i, j) for i in range(3) for j in range(_MOST_POWERS + 1) if not (i and j and order == 1.0)]
        distinct: list[tuple[int, int]] = []
        for i, j in pairs:
            if all(abs(i - k + (j - m) * order) > _ALIKE for k, m in distinct):
                distinct.append((i, j))
        lists.append(sorted(distinct, key=lambda pair: pair[0] + pair[1] * order))
    wanted = [sum(i + j * order <= 1.0 + _ALIKE for i, j in each) for each, order in zip(lists, numbers, strict=True)]
    count = min(max(wanted), _MOST_POWERS)
    whole = torch.tensor([[i for i, _ in each[:count]] for each in lists], dtype=torch.float64, device=orders.device)
    of_order = torch.tensor([[j for _, j in each[:count]] for each in lists], dtype=torch.float64, device=orders.device)
    return whole + of_order * orders.unsqueeze(-1)
