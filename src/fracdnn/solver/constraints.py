"""A constant mass matrix M that may be singular, M d_t^order u = func(t, u), reduced to derivatives and constraints.

Rows r and columns c of M are chosen such that A = M[r, c] is regular and of M's rank. Elimination turns the equation
into

    d_t^order (u[c] + A⁻¹ M[r, p] u[p]) = A⁻¹ func[r],        0 = func[q] − M[q, c] A⁻¹ func[r]

with the other rows q and columns p. Panels solve both together: see `coupled.System`.
(Source: Hairer, Wanner, "Solving Ordinary Differential Equations II", 1996, section VI.1.)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.solver.arrays import Array, as_kind

_RANK = 1e-12  # Smaller pivots of M, in units of its rows and columns, are zero.


@dataclass(frozen=True, eq=False)
class MassMatrix:
    """The reduced matrix [d, d]: the identity and A⁻¹ M[r, p] in rows with a derivative, zeros in constraints.

    Packed states [G, S, n] hold one or more states of d components in a row.
    """

    matrix: torch.Tensor
    has_derivative: torch.Tensor  # [d], truth values

    def times(self, states: Array) -> Array:
        """Return the matrix times states: u[c] + A⁻¹ M[r, p] u[p] in rows with a derivative, zeros in others."""
        rows = states.reshape(*states.shape[:-1], -1, len(self.has_derivative))
        return (rows @ as_kind(self.matrix, states).T).reshape(states.shape)

    def completed(self, integrals: Array, states: Array) -> Array:
        """Return states whose `times` are the integrals and whose components without a derivative are given."""
        return states + integrals - self.times(states)

    def derivatives(self, values: Array) -> Array:
        """Return values with zeros in the rows of constraints."""
        return values * self.mask(values)

    def constraints(self, values: Array) -> Array:
        """Return values with zeros in the rows with a derivative."""
        return values * (1.0 - self.mask(values))

    def mask(self, like: Array) -> Array:
        """[n]: 1 for the rows with a derivative, 0 for constraints."""
        return as_kind(self.has_derivative.repeat(like.shape[-1] // len(self.has_derivative)), like)

    def without_constraints(self, jacobians: Array) -> Array:
        """Return func's Jacobians [K, n, n] by the derived parts alone, the other components following from them."""
        derivatives, n = self.mask(jacobians), jacobians.shape[-1]
        constraints = (1.0 - derivatives)[:, None] * jacobians
        follows = np.linalg.pinv(self.packed(n, jacobians) - constraints) * derivatives
        return derivatives[:, None] * jacobians @ follows

    def packed(self, n: int, like: Array) -> Array:
        """[n, n]: the matrix of a packed state."""
        matrix = torch.kron(torch.eye(n // len(self.has_derivative)).to(self.matrix), self.matrix)
        return as_kind(matrix, like)


class MassFunction:
    """func(t, u) in the reduced form, which brings its `mass` to the problem that is made of it."""

    def __init__(self, func: Callable[[torch.Tensor, Any], Any], mass: torch.Tensor) -> None:
        rows, columns, rank = _pivots(mass.detach())
        if not rank:
            raise InvalidArgumentError(
                "mass must have a rank above 0, got zeros; without a derivative there is nothing to solve in time"
            )
        blocks, zeros = mass[rows][:, columns], mass.new_zeros(len(mass) - rank, len(mass))
        inverse, identity = torch.linalg.inv(blocks[:rank, :rank]), torch.eye(len(mass)).to(mass)
        # Elimination, with equations and components in the order of the pivots.
        upper = torch.cat([inverse, zeros[:, :rank].mT], dim=1)
        lower = torch.cat([-blocks[rank:, :rank] @ inverse, identity[rank:, rank:]], dim=1)
        reduced = torch.cat([torch.cat([identity[:rank, :rank], inverse @ blocks[:rank, rank:]], dim=1), zeros])
        row_back, column_back = rows.argsort(), columns.argsort()
        self._func, self._elimination = func, torch.cat([upper, lower])[column_back][:, row_back]
        self.is_regular = rank == len(mass)
        self.mass = MassMatrix(
            reduced[column_back][:, column_back], (torch.arange(len(mass)).to(columns) < rank)[column_back]
        )

    def apart(self) -> Callable[[torch.Tensor, Any], Any]:
        """Return the function alone, d_t^order u of a regular mass."""
        return lambda time, state: self(time, state)

    def __call__(self, time: torch.Tensor, state: torch.Tensor) -> Any:
        slope = self._func(time, state)
        if not isinstance(slope, torch.Tensor) or slope.shape != state.shape or slope.dtype != state.dtype:
            return slope  # which the problem refuses
        return slope @ self._elimination.mT


def _pivots(mass: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return all rows and columns, those of a regular part first, and its rank; in units of M's rows and columns."""
    from scipy.linalg import qr  # takes long to import

    matrix = np.array(mass.double().tolist())  # inside torch.func, too
    for axis in (1, 0):
        size = abs(matrix).max(axis, keepdims=True)
        matrix = matrix / np.where(size > 0.0, size, 1.0)
    triangle, columns = qr(matrix, mode="r", pivoting=True)
    rank = int((abs(np.diag(triangle)) > _RANK).sum())
    rows = qr(matrix[:, columns[:rank]].T, mode="r", pivoting=True)[1] if rank else np.arange(len(matrix))
    return torch.from_numpy(rows).to(mass.device), torch.from_numpy(columns).to(mass.device), rank
