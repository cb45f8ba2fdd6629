"""Exponential product integration for stiff semilinear problems d_t^γ u = A u + g(t, u): A exactly, g to second order.

With e_β(t) = t^(β−1) E_{γ,β}(t^γ A) the solution is

    u(t) = e_1(t) u_0 + e_2(t) u_0' + ∫_0^t e_γ(t − s) g(s, u(s)) ds.

Where g is linear between nodes of equal steps h, ∫ e_γ = e_{γ+1} and ∫ e_{γ+1} = e_{γ+2} give the weights by lag,

    W_0 = e_{γ+2}(h)/h,   W_j = (e_{γ+2}(t_{j+1}) − 2 e_{γ+2}(t_j) + e_{γ+2}(t_{j−1}))/h,

and that of node 0 in row n, e_{γ+1}(t_n) − (e_{γ+2}(t_n) − e_{γ+2}(t_{n−1}))/h. The newest g is predicted with a
straight line and corrected, as in "adams", so nothing is solved for. Source: Garrappa, Popolizio, "Generalized
exponential time differencing methods for fractional order problems", 2011.
"""

from typing import Any

import torch

from fracdnn.caputo.mittag_leffler_matrix import mittag_leffler_matrix
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.solver.grids import Grid
from fracdnn.solver.methods.base import Node, Scheme
from fracdnn.solver.problem import Problem
from fracdnn.validation import check_floating

_BLOCK = 32


class Exponential(Scheme):
    """Matrix weights for all lags, [N, d, d]; sums over all pairs of nodes; between nodes linear.

    Second order where g(t, u(t)) is smooth; less, as for "adams" on equal steps, where it begins like t^order.
    """

    name = "exponential"
    only_uniform = True
    corrected = True

    def __init__(self, problem: Problem, corrections: int = 1, linear: Any = None) -> None:
        super().__init__(problem, corrections)
        self._linear = _checked_linear(linear, problem)

    def states(self, grid: Grid) -> torch.Tensor:
        """At all nodes, [N + 1, 1, components]."""
        clock = grid.clock.unbind(0)
        first = self.first(clock[0])
        free, newest, older = self._weights(grid, first)
        nodes = [first]
        entries = [self._rows(first.entry)]
        for begin in range(0, grid.n_steps, _BLOCK):
            # Rows of this block remember nodes 1 … begin through one matrix, and those of the block one by one.
            seen = torch.cat(entries[1 : begin + 1], dim=-1) if begin else None
            for n in range(begin + 1, min(begin + _BLOCK, grid.n_steps) + 1):
                memory = free[n - 1]
                if seen is not None:
                    memory = memory + seen @ _lags(older, n - 1, n - begin)
                if n > begin + 1:
                    memory = memory + torch.cat(entries[begin + 1 : n], dim=-1) @ _lags(older, n - begin - 1, 1)
                nodes.append(self._node(clock[n], memory, newest, entries))
                entries.append(self._rows(nodes[-1].entry))
            self.problem.check_finite([node.state for node in nodes[begin:]], grid.clock, begin)
        return torch.stack([node.state for node in nodes])

    def whole_slope(self, time: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """A u + func(t, u) of a packed state."""
        linear = self._rows(state) @ self._linear.detach().to(state).mT
        return linear.reshape(state.shape) + self.problem.packed_slope(time, state)

    def _node(
        self, time: torch.Tensor, memory: torch.Tensor, newest: torch.Tensor, entries: list[torch.Tensor]
    ) -> Node:
        """Predicted with g on the line through the last two, then corrected; the first one, without a line, twice."""
        shape = self.problem.value.shape
        if len(entries) == 1:
            entry, corrections = entries[-1], self.corrections + 1
        else:
            entry, corrections = 2.0 * entries[-1] - entries[-2], self.corrections
        for _ in range(corrections + 1):
            node = self.node(time, (memory + entry @ newest).reshape(shape))
            entry = self._rows(node.entry)
        return node

    def _rows(self, packed: torch.Tensor) -> torch.Tensor:
        """[B, d], on whose last dimension A acts."""
        return packed.reshape(-1, self._linear.shape[-1])

    def _weights(self, grid: Grid, first: Node) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What rows have of node 0 [N, B, d], and transposed W_0 [d, d] and W_{N−1} … W_1 [(N − 1) d, d]."""
        order, times = self.problem.orders[0], grid.elapsed[1:]
        step, scale = grid.elapsed[-1] / grid.n_steps, grid.elapsed[1:] ** order

        def e(beta: torch.Tensor) -> torch.Tensor:
            """e_β at nodes 1 … N, transposed: rows are multiplied from the left."""
            matrices = mittag_leffler_matrix(self._linear, order, beta, scale=scale)
            return (times[:, None, None] ** (beta - 1.0) * matrices).mT

        once, twice = e(order + 1.0), e(order + 2.0) / step
        rises = torch.cat([twice[:1], twice.diff(dim=0)])
        start, slope = self._rows(first.state), self._rows(first.entry)
        free = start @ e(torch.ones_like(order)).to(start) + slope @ (once - rises).to(start)
        if self.problem.velocity is not None:
            free = free + self._rows(self.problem.velocity) @ e(torch.full_like(order, 2.0)).to(start)
        older = rises.diff(dim=0).flip(0).reshape(-1, rises.shape[-1])
        return free, rises[0].to(start), older.to(start)


def _lags(older: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """W_first … W_last, below one another."""
    d = older.shape[-1]
    n = older.shape[0] // d + 1
    return older[(n - 1 - first) * d : (n - last) * d]


def _checked_linear(linear: Any, problem: Problem) -> torch.Tensor:
    if linear is None:
        raise InvalidArgumentError(
            "linear must be given for method 'exponential', got None; pass the matrix A of A u + func(t, u)"
        )
    if not isinstance(linear, torch.Tensor):
        raise InvalidTypeError(f"linear must be a tensor [d, d], got {type(linear).__name__}; pass a tensor")
    check_floating(linear, "linear")
    if problem.states.is_tuple or len(problem.orders) != 1:
        raise InvalidArgumentError(
            "y0 must be one tensor, and order one number, for method 'exponential', got several; "
            "stack the parts of a state along its last dimension"
        )
    shape = problem.states.shapes[0]
    if not shape or not shape[-1] or linear.shape != (shape[-1], shape[-1]):
        raise InvalidArgumentError(
            f"linear must have shape [d, d] for a state [..., d] with d > 0, got {tuple(linear.shape)} for a state of "
            f"shape {tuple(shape)}; it acts on the last dimension"
        )
    return linear.to(torch.float64)
