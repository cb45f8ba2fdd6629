"""The matrix of a Newton step, I − W J, for a Jacobian at each point of a system; see `coupled`."""

import math
from typing import Any

import numpy as np
import torch

from fracdnn.solver.arrays import Array, as_kind, as_tensor, library
from fracdnn.solver.convergence import sizes
from fracdnn.solver.jacobians import slopes_with_jacobians


class Dense:
    """For weights W [G, S, S] and Jacobians [S, n, n], where n = G · d."""

    is_costly = False

    def __init__(self, weights: Array, jacobians: Array) -> None:
        self._jacobians, self._inverse = jacobians, _inverse(matrix_of(weights, jacobians))

    @staticmethod
    def jacobians(solver: Any, clock: tuple[torch.Tensor, ...], states: Array) -> tuple[Array, Array]:
        """Slopes, and their derivatives by the states."""
        if isinstance(states, torch.Tensor):
            return slopes_with_jacobians(solver.problem, clock, states)
        found = slopes_with_jacobians(solver.problem, clock, as_tensor(states, solver.problem.value.dtype))
        return found[0].double().numpy(), found[1].double().numpy()

    def solve(self, values: Array) -> Array:
        """(I − W J)⁻¹ of values [G, S, d]."""
        groups, count, d = values.shape
        inverse = self._inverse if type(self._inverse) is type(values) else as_kind(self._inverse, values)
        return (inverse @ values.swapaxes(0, 1).reshape(-1, 1)).reshape(count, groups, d).swapaxes(0, 1)

    def times(self, values: Array, jacobians: Array = None) -> Array:
        """J at each point, or others."""
        groups, count, d = values.shape
        by_point = self._jacobians if jacobians is None else jacobians
        by_point = by_point @ values.swapaxes(0, 1).reshape(count, groups * d, 1)
        return by_point.reshape(count, groups, d).swapaxes(0, 1)

    def times_sizes(self, values: Array) -> Array:
        """|J| |values|."""
        return self.times(abs(values), abs(self._jacobians))

    def moved(self, residual: Array, rounding: Array) -> Array:
        """How far a rounding of the equations may move the states; [G, d]."""
        return sizes(by_points(abs(self._inverse) @ flat(rounding), rounding))


def matrix_of(weights: Array, jacobians: Array) -> Array:
    """I − W J, [S n, S n], where the unknowns of a point come together."""
    groups, count, _ = weights.shape
    n, of = jacobians.shape[-1], library(weights)
    if n > groups:  # [n, S, S]
        weights = of.stack([weights] * (n // groups), axis=1).reshape(n, count, count)
    product = weights.swapaxes(0, 1)[..., None] * jacobians.swapaxes(0, 1)  # [S, n, S, n]
    identity = of.eye(count * n)
    if isinstance(weights, torch.Tensor):
        identity = identity.to(weights)
    return identity - product.reshape(count * n, count * n)


def _inverse(matrix: Array) -> Array:
    """Not a number where there is none."""
    try:
        return library(matrix).linalg.inv(matrix)
    except (np.linalg.LinAlgError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
        return math.nan * matrix


def flat(states: Array) -> Array:
    """[G, S, d] as a column, by points."""
    return states.swapaxes(0, 1).reshape(-1, 1)


def by_points(column: Array, like: Array) -> Array:
    """A column as [G, S, d] again."""
    groups, count, d = like.shape
    return column.reshape(count, groups, d).swapaxes(0, 1)
