"""Explicit methods on fixed grids as chains of states with memory, whose backward pass is the exact adjoint.

All evaluations of func, at nodes and at predictions, are rows of one chain. A predictor or a corrector at node n is

    Y_j = u_0 + Σ_{k<j} W_jk f_k,   f_k = func at Y_k,

lower triangular with W_jj ≠ 0 for the newest f. Solved for the slopes it is a chain of states, as `memory.run_chain`
takes it: Y_j = Σ_k H_jk Y_k + c_j f_{j−1} with c = diag W and H = I − diag(c) W⁻¹. Its memory is one state per row:
slopes are never stored. For orders up to 1 no rounding error is amplified, since W falls along its columns.

What `fracdnn.solver.march` has to do instead: orders above 1, several orders, long histories, and operations that are
traced or transformed.
"""

from dataclasses import dataclass

import torch

from fracdnn.caputo import memory_matrix, memory_weights_on_grid
from fracdnn.caputo.weights import step_factor
from fracdnn.exceptions import NotFiniteError
from fracdnn.memory import general_weights, run_chain
from fracdnn.memory.plan import MemorylessPlan, MemoryPlan, slope_weights
from fracdnn.solver.grids import Grid
from fracdnn.solver.march import warn_of_growth
from fracdnn.solver.methods import Method
from fracdnn.solver.nodes import OutputPlaces
from fracdnn.solver.problem import time_text
from fracdnn.solver.rules import Rule
from fracdnn.tracing import being_traced, being_transformed, carries_derivative

# Rows of a chain are summed in pairs, which beats modes up to about so many; W⁻¹ then takes 8 MB.
MOST_ROWS = 1024


def runs_as_chain(method: Method, grid: Grid, compress: bool | str) -> bool:
    """Return True if a chain can take the steps of a method."""
    problem = method.problem
    if method.implicit or problem.velocity is not None or len(problem.orders) > 1 or compress is True:
        return False
    rows = grid.n_steps * (1 + method.corrected * method.corrections) + 1
    if rows > MOST_ROWS or type(problem.value) is not torch.Tensor or torch.compiler.is_compiling():
        return False
    return not being_transformed() and float(problem.orders.detach()) <= 1.0


@dataclass(frozen=True, eq=False)
class ExplicitChain:
    """The rows of a method on a grid: `node_rows[n]` is the row of node n, `row_nodes[j]` the node of row j."""

    method: Method
    grid: Grid
    weights: MemoryPlan
    slopes: torch.Tensor | None  # W, for methods that sum slopes
    node_rows: torch.Tensor
    row_nodes: list[int]

    @staticmethod
    def of(method: Method, grid: Grid) -> "ExplicitChain":
        order, n_steps = method.problem.orders[0], grid.n_steps
        stages = torch.ones(n_steps, dtype=torch.int64)
        if method.corrected:
            stages += method.corrections
            stages[0] += method.continued  # the first node has no line to continue, and is corrected once more
        node_rows = torch.cat([stages.new_zeros(1), stages.cumsum(0)])
        row_nodes = [0, *torch.repeat_interleave(torch.arange(1, n_steps + 1), stages).tolist()]
        slopes = None if not method.of_slopes else _slope_weights(method, grid, node_rows)
        is_plain = not carries_derivative(order) and float(order) == 1.0 and not method.corrected
        if is_plain:
            weights: MemoryPlan = MemorylessPlan(grid.elapsed.diff())
        elif slopes is not None:
            weights = slope_weights(slopes)
        elif grid.step is not None:
            factors = step_factor(order, grid.step).expand(n_steps)
            weights = general_weights(memory_matrix(order, n_steps), factors.contiguous())
        else:
            factors = step_factor(order, grid.elapsed.diff())
            weights = general_weights(memory_weights_on_grid(order, grid.elapsed), factors)
        return ExplicitChain(method, grid, weights, slopes, node_rows, row_nodes)

    def states(
        self, elapsed: torch.Tensor | None, *, checkpoint: bool, store: torch.dtype | None = None
    ) -> torch.Tensor:
        """Return the states at times [M] from the start, or at all nodes: [M, groups, components]."""
        problem, grid = self.method.problem, self.grid
        is_plain, shape = problem.states.is_plain, problem.value.shape
        start = problem.value.reshape(problem.states.shapes[0]) if is_plain else problem.value
        func, times = problem.slope if is_plain else problem.packed_slope, grid.clock.unbind(0)
        rows, places = self.row_nodes, None if elapsed is None else OutputPlaces.of(grid, elapsed)
        ends_only = places is not None and places.are_ends
        try:
            found = run_chain(
                self.weights,
                lambda j, y: func(times[rows[j]], y),
                start,
                trajectory=not ends_only,
                checkpoint=checkpoint,
                store=store,
                name=lambda j: f"func at t = {time_text(times[rows[j]])}",
            )
        except NotFiniteError:
            self._name_first_bad(start)
            raise
        last = found if ends_only else found[-1]
        self._check_end(start, last)
        if ends_only and places is not None:
            picked = torch.stack([start if number == 0 else last for number in places.left.tolist()])
            return picked.reshape(len(picked), *shape)
        states = found.reshape(len(found), *shape)
        if places is None:
            return states[self.node_rows]
        if bool(places.at_node.all()):
            return states[self.node_rows[places.left.cpu()]]
        return self._between(states, places)

    def _between(self, rows: torch.Tensor, places: OutputPlaces) -> torch.Tensor:
        """Interpolate: the method's own integral, and what nodes differ from it in a straight line."""
        known, problem, method = rows[self.node_rows], self.method.problem, self.method
        if self.slopes is None:
            return places.interpolated(known)
        wide = torch.promote_types(rows.dtype, torch.float32)
        changes = (rows[1:] - rows[:1]).flatten(1).to(wide)
        slopes = torch.linalg.solve_triangular(self.slopes.to(wide), changes, upper=False).to(rows.dtype)
        slopes = slopes.reshape(len(slopes), *problem.value.shape)[self.node_rows[:-1]]
        newest = problem.packed_slope(self.grid.clock[-1], known[-1])
        slopes = torch.cat([slopes, newest[None]]).flatten(1)
        rule = Rule(method.rules[-1], problem.orders)

        def integral(times: torch.Tensor) -> torch.Tensor:
            sums = rule.near(times, self.grid.elapsed)[0].to(slopes.dtype) @ slopes
            return problem.value + sums.reshape(len(times), *problem.value.shape)

        return places.interpolated(known, integral)

    def _check_end(self, start: torch.Tensor, last: torch.Tensor) -> None:
        """Look at the last state: an error if it is not finite, a warning if it has grown although func pulls back."""
        if being_traced():
            return
        if not bool(last.detach().isfinite().all()):
            self._name_first_bad(start)
        warn_of_growth(self.method.problem, self.grid, self.method.name, last)

    @torch.no_grad()
    def _name_first_bad(self, start: torch.Tensor) -> None:
        """Take the steps again, and raise an error that names the first time that is not finite."""
        problem, clock, rows = self.method.problem, self.grid.clock, self.row_nodes
        overflow = torch.finfo(problem.value.dtype).max ** 0.5

        def watched(j: int, y: torch.Tensor) -> torch.Tensor:
            state, node = y.reshape(problem.value.shape), rows[j]
            problem.check_finite([state], clock, node)
            slope = problem.packed_slope(clock[node], state)
            if float(state.abs().max()) < overflow:
                problem.check_slope(clock[node], state)
            problem.check_finite([slope], clock, node)
            return slope.reshape(y.shape)

        last = run_chain(self.weights, watched, start.detach(), transformed=True)
        problem.check_finite([last.reshape(problem.value.shape)], clock, self.grid.n_steps)


def _slope_weights(method: Method, grid: Grid, node_rows: torch.Tensor) -> torch.Tensor:
    """Return W [R, R] of Y_j = u_0 + Σ_{k<j} W_jk f_k over all rows of a method; float64."""
    n_steps, count = grid.n_steps, int(node_rows[-1])
    tables = [Rule(kind, method.problem.orders).near(grid.elapsed[1:], grid.elapsed)[0] for kind in method.rules]
    columns, total = node_rows[:-1], tables[0].new_zeros(count, count)
    newest = tables[-1][:, 1:].diagonal()  # the weight of node n in its own row
    firsts = node_rows[:-1]  # the row of the prediction, and later those of corrections
    total = total.index_put((firsts[:, None], columns[None, :]), tables[0][:, :n_steps])
    if method.continued:  # slopes are continued in a straight line to node n itself
        steps = grid.elapsed.diff()
        reach = torch.cat([steps.new_ones(1), 1.0 + steps[1:] / steps[:-1]])
        total = total.index_put((firsts, columns), reach * newest, accumulate=True)
        total = total.index_put((firsts[1:], columns[:-1]), (1.0 - reach[1:]) * newest[1:], accumulate=True)
    n_corrections = node_rows.diff() - 1
    for correction in range(int(n_corrections.max())):
        nodes = (n_corrections > correction).nonzero()[:, 0]
        rows = firsts[nodes] + 1 + correction
        total = total.index_put((rows[:, None], columns[None, :]), tables[-1][nodes][:, :n_steps])
        total = total.index_put((rows, rows), newest[nodes], accumulate=True)
    return total
