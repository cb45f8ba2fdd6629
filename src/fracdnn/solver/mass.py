"""Equations with a constant mass matrix that may be singular: M d_t^order u = func(t, u), as circuits have them.

Rows r and columns c of M are chosen such that A = M[r, c] is regular and of M's rank. The solver gets w = M[r] u, with
d_t^order w = func[r]; the other rows, less what they repeat of the former, are constraints without a derivative,

    func[q] − M[q, c] A⁻¹ func[r] = 0,   u[c] = A⁻¹ (w − M[r, p] u[p]),

which give the other components u[p] at each time: a system of index 1.
(Source: Hairer, Wanner, "Solving Ordinary Differential Equations II", 1996, section VI.1.)
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError, NotConvergedError
from fracdnn.solver.fdeint import fdeint
from fracdnn.solver.jacobians import slopes_with_jacobians
from fracdnn.solver.problem import posed_problem, time_text
from fracdnn.solver.rare_options import refuse_batched
from fracdnn.solver.solution import of_states
from fracdnn.tracing import being_transformed
from fracdnn.validation import check_floating, check_times

_RANK = 1e-12  # of M in units of its rows and columns: what is smaller is 0
_MAX_ITERATIONS = 50
_CLOSE = 16.0  # roundings, between two iterates
_SLOW = 0.1  # what a good Jacobian leaves of a change, at most


def fdeint_mass(
    func: Callable[[torch.Tensor, Any], Any], y0: Any, t: Any, *, mass: torch.Tensor, order: Any, **options: Any
) -> Any:
    """The solution of mass · d_t^order u = func(t, u) at every time in `t`; shape [len(t), *y0.shape].

    `mass` is a constant matrix [d, d] on the state's last dimension, of any rank above 0; a row of zeros makes a row of
    func a constraint. Constraints must determine the components that the rest of the equations does not (index 1). They
    hold at t[0], too: of y0 counts mass · y0, and constraints, solved from y0 as a guess, give the rest.

    `order` is one number. `options` are those of `fdeint`, with every method; rtol and atol are for mass · u. Each call
    of func becomes a few, up to ten where constraints are far from linear. The gradient is exact for the discrete
    solution; in the mass, among masses of the same rank.
    """
    refuse_batched(options, "fdeint_mass")
    if isinstance(order, tuple | list) or (isinstance(order, torch.Tensor) and order.numel() != 1):
        raise InvalidArgumentError(f"order must be one number with a mass, got {order}; pass a float")
    split = _Split(func, y0, mass)
    rare, times = options.get("options") or {}, check_times(t).to(split.start.device)
    if rare.get("slope") is not None:
        slope = torch.as_tensor(rare["slope"]).to(split.guess).expand(split.shape) @ split.rows.mT
        options["options"] = rare | {"slope": slope}
    found = fdeint(split.slope, split.start, t, order=order, **options)
    if rare.get("breakpoints") is not None:  # outputs there are left limits, too
        split.problem.jumps_at(check_times(rare["breakpoints"], "breakpoints", minimum=0), times[0], torch.float64)
    if not options.get("trajectory", True):
        return of_states(partial(split.state, times[-1]), found)
    split.guess, split.jacobian = split.first, None  # as it was before the solve
    return of_states(lambda packed: torch.stack(list(map(split.state, times, packed))), found)


class _Split:
    """Which rows and components have a derivative, and how the others follow from them."""

    def __init__(self, func: Any, y0: Any, mass: Any) -> None:
        self.problem = posed_problem(func, y0, 1.0)
        state = self.problem.states.unpack(self.problem.value)
        if not isinstance(state, torch.Tensor) or not state.dim():
            kind = "a tuple" if isinstance(state, tuple) else "one number"
            raise InvalidArgumentError(f"y0 must be one tensor [..., d] with a mass, got {kind}; stack its components")
        d = state.shape[-1]
        if not isinstance(mass, torch.Tensor) or mass.shape != (d, d):
            shape = tuple(mass.shape) if isinstance(mass, torch.Tensor) else type(mass).__name__
            raise InvalidArgumentError(
                f"mass must be a tensor [{d}, {d}], of the state's last dimension, got {shape}; pass a square matrix"
            )
        mass = check_floating(mass, "mass").to(state)
        rows, columns, rank = _pivots(mass.detach())
        if not rank:
            raise InvalidArgumentError(
                "mass must have a rank above 0, got zeros; without a derivative there is nothing to solve in time"
            )
        self.shape = state.shape
        self.rows = mass[rows[:rank]]  # [r, d]
        self._rows, self._back, self._rank = rows, columns.argsort(), rank
        blocks = mass[rows][:, columns]
        self._inverse = torch.linalg.inv(blocks[:rank, :rank])
        self._coupling = blocks[:rank, rank:]  # of the components that constraints determine
        self._repeats = blocks[rank:, :rank] @ self._inverse
        self.start = state @ self.rows.mT
        self.first = self.guess = state.detach()[..., columns[rank:]]
        self._sizes = self.guess.abs()
        self.jacobian: torch.Tensor | None = None  # of the constraints by the components that they determine

    def slope(self, time: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return self.problem.slope(time, self.state(time, w))[..., self._rows[: self._rank]]

    def state(self, time: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """The whole u, in which constraints hold."""
        return self._joined(w, self._solved(time, w) if self.guess.numel() else self.guess)

    def _joined(self, w: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
        known = (w - rest @ self._coupling.mT) @ self._inverse.mT
        return torch.cat([known, rest], dim=-1)[..., self._back]

    def _solved(self, time: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """What constraints determine, by Newton's method; attached to the graph."""

        def constraint(time: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
            found = self.problem.slope(time, self._joined(w, rest))[..., self._rows]
            return found[..., self._rank :] - found[..., : self._rank] @ self._repeats.mT

        def jacobian(rest: torch.Tensor) -> torch.Tensor:
            problem = posed_problem(constraint, rest, 1.0)
            return slopes_with_jacobians(problem, (time,), problem.value[:, None])[1][0]

        if not bool(torch.isfinite(w.detach()).all()):  # a step that is too long, or a solve that gave up
            return math.nan * self.guess
        wanted = torch.is_grad_enabled() or being_transformed()
        with torch.no_grad():
            self.guess = rest = self._iterated(lambda rest: constraint(time, rest), jacobian, time).detach()
            if not wanted:
                return rest
            matrix = jacobian(rest)
        for _ in range(2):  # Newton's steps at the solution: of the first come its derivatives, of both the second ones
            rest = rest - _solution_of(matrix, constraint(time, rest))
        return rest

    def _iterated(self, value: Any, jacobian: Any, time: torch.Tensor) -> torch.Tensor:
        """Newton's method to rounding, with a Jacobian for as many calls as it serves well."""
        rest, before = self.guess, math.inf
        epsilon, tiny = torch.finfo(rest.dtype).eps, torch.finfo(rest.dtype).tiny
        for _ in range(_MAX_ITERATIONS):
            if self.jacobian is None:
                self.jacobian, before = jacobian(rest), math.inf
            change = _solution_of(self.jacobian, value(rest))
            rest = rest - change
            # In units of each component, as large as it has been.
            length = float((change.abs() / torch.maximum(self._sizes, rest.abs()).clamp(min=tiny)).max())
            # Until changes are those of rounding, or no longer become shorter though they are short.
            if length <= _CLOSE * epsilon or (before < math.inf and 0.5 * before <= length <= epsilon**0.75):
                self._sizes = torch.maximum(self._sizes, rest.abs())
                return rest
            if not length < math.inf:
                break
            if before < math.inf and length > _SLOW * before:
                self.jacobian = None
            before = length
        self.jacobian = None
        raise NotConvergedError(
            f"func's constraints must determine the components that mass leaves open, got no solution by Newton's "
            f"method at t = {time_text(time)}; start from a closer y0, or check that the system has index 1"
        )


def _solution_of(jacobian: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Not finite where there is none."""
    return torch.linalg.solve_ex(jacobian, value.reshape(-1))[0].reshape(value.shape)


def _pivots(mass: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """All rows and columns, those of a regular part first, and its rank; in units of M's rows and columns."""
    import numpy as np
    from scipy.linalg import qr  # takes long to import

    matrix = np.array(mass.double().tolist())  # inside torch.func, too
    for axis in (1, 0):
        size = abs(matrix).max(axis, keepdims=True)
        matrix = matrix / np.where(size > 0.0, size, 1.0)
    triangle, columns = qr(matrix, mode="r", pivoting=True)
    rank = int((abs(np.diag(triangle)) > _RANK).sum())
    rows = qr(matrix[:, columns[:rank]].T, mode="r", pivoting=True)[1] if rank else np.arange(len(matrix))
    return torch.from_numpy(rows).to(mass.device), torch.from_numpy(columns).to(mass.device), rank
