"""The matrix of a Newton step, I − W J, for a Jacobian at each point of a system; see `coupled`."""

import math
from typing import Any

import numpy as np
import torch

from fracdnn.solver.arrays import Array, as_kind, as_tensor, library
from fracdnn.solver.convergence import component_sizes, sizes
from fracdnn.solver.implicit import attached
from fracdnn.solver.jacobians import slopes_with_jacobians
from fracdnn.solver.problem import Problem


class Dense:
    """For weights W [G, S, S] and Jacobians [S, n, n], where n = G · d."""

    is_costly = False

    def __init__(self, weights: Array, jacobians: Array) -> None:
        self._jacobians, matrix = jacobians, matrix_of(weights, jacobians)
        try:
            self._inverse = library(matrix).linalg.inv(matrix)
        except (np.linalg.LinAlgError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            self._inverse = math.nan * matrix

    @staticmethod
    def jacobians(solver: Any, clock: tuple[torch.Tensor, ...], states: Array) -> tuple[Array, Array]:
        if isinstance(states, torch.Tensor):
            return slopes_with_jacobians(solver.problem, clock, states)
        found = slopes_with_jacobians(solver.problem, clock, as_tensor(states, solver.problem.value.dtype))
        return found[0].double().numpy(), found[1].double().numpy()

    def solve(self, values: Array) -> Array:
        """(I − W J)⁻¹ of values [G, S, d]."""
        inverse = self._inverse if type(self._inverse) is type(values) else as_kind(self._inverse, values)
        return by_points(inverse @ flat(values), values)

    def times(self, values: Array, jacobians: Array = None) -> Array:
        """J at each point, or others."""
        by_point = self._jacobians if jacobians is None else jacobians
        return by_points(by_point @ flat(values).reshape(len(by_point), -1, 1), values)

    def times_sizes(self, values: Array) -> Array:
        """|J| |values|."""
        return self.times(abs(values), abs(self._jacobians))

    def moved(self, residual: Array, rounding: Array) -> Array:
        """How far a rounding of the equations may move the states; [G, d]."""
        return sizes(by_points(abs(self._inverse) @ flat(rounding), rounding))


def matrix_of(weights: Array, jacobians: Array) -> Array:
    """I − W J, [..., S n, S n], where the unknowns of a point come together; of weights [..., G, S, S]."""
    groups, count = weights.shape[-3], weights.shape[-1]
    n, of = jacobians.shape[-1], library(weights)
    if n > groups:  # [..., n, S, S]
        weights = of.stack([weights] * (n // groups), axis=-3).reshape(*weights.shape[:-3], n, count, count)
    product = weights.swapaxes(-3, -2)[..., None] * jacobians.swapaxes(-3, -2)[..., None, :, :, :]  # [..., S, n, S, n]
    identity = of.eye(count * n)
    if isinstance(weights, torch.Tensor):
        identity = identity.to(weights)
    return identity - product.reshape(*product.shape[:-4], count * n, count * n)


def flat(states: Array) -> Array:
    """[..., G, S, d] as columns, by points."""
    return states.swapaxes(-3, -2).reshape(*states.shape[:-3], -1, 1)


def by_points(column: Array, like: Array) -> Array:
    """Columns as [..., G, S, d] again."""
    groups, count, d = like.shape[-3:]
    return column.reshape(*like.shape[:-3], count, groups, d).swapaxes(-3, -2)


def attached_slopes(
    problem: Problem, system: Any, slopes: torch.Tensor, jacobians: torch.Tensor, *, apart: bool = False
) -> torch.Tensor:
    """Slopes [G, S, d] of a system that were found, attached to the graph; of groups together, or of each apart."""
    weights, shape = system.weights.detach().mT, (slopes[:, None] if apart else slopes).shape
    with torch.no_grad():
        matrix = matrix_of(weights[:, None] if apart else weights, jacobians.mT).mT  # I − J W
        # In units of each component, since factors of a matrix with entries of very different size lose digits.
        unit = flat((component_sizes(slopes) + 0.0 * slopes.detach()).reshape(shape))
        matrix = matrix * unit.mT / unit

    def step(slopes: torch.Tensor) -> torch.Tensor:
        residual = (slopes - problem.slopes(system.clock, system.states(slopes))).reshape(shape)
        column = flat(residual) / unit
        # Of samples, those without a solution must not stop the others.
        found = torch.linalg.solve_ex(matrix, column)[0] if apart else torch.linalg.solve(matrix, column)
        return by_points(unit * found, residual).reshape(slopes.shape)

    return attached(step, slopes)
