"""The matrix of a Newton step, I − W J, for a Jacobian at each point of a system, and the derivatives of a solution.

An iteration is not differentiated: by the implicit function theorem one more step from the solution, attached to the
graph, has the solution's first derivatives as its own; see `coupled`.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.solver.arrays import Array, as_kind, as_numpy, as_tensor, component_sizes, library, sizes
from fracdnn.solver.constraints import MassMatrix
from fracdnn.solver.convergence import solved_linear
from fracdnn.solver.jacobians import slopes_with_jacobians, unhooked
from fracdnn.solver.problem import Problem
from fracdnn.tracing import being_transformed

Function = Callable[[torch.Tensor], torch.Tensor]


class Dense:
    """The system I − W J, or M − W J, as a dense matrix; W [G, S, S], Jacobians [S, n, n] with n = G · d."""

    is_costly = False

    def __init__(self, weights: Array, jacobians: Array, mass: MassMatrix | None = None) -> None:
        self._jacobians, matrix = jacobians, matrix_of(weights, jacobians, mass)
        try:
            self._inverse = library(matrix).linalg.inv(matrix)
        except (np.linalg.LinAlgError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
            self._inverse = math.nan * matrix

    @staticmethod
    def jacobians(solver: Any, clock: tuple[torch.Tensor, ...], states: Array) -> tuple[Array, Array]:
        found = slopes_with_jacobians(solver.problem, clock, as_tensor(states, solver.problem.value.dtype))
        return found if isinstance(states, torch.Tensor) else (as_numpy(found[0]), as_numpy(found[1]))

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


def matrix_of(weights: Array, jacobians: Array, mass: MassMatrix | None = None) -> Array:
    """Return I − W J or M − W J, [..., S n, S n], for weights [..., G, S, S]; the unknowns of a point come together."""
    groups, count = weights.shape[-3], weights.shape[-1]
    n, of = jacobians.shape[-1], library(weights)
    if n > groups:  # [..., n, S, S]
        weights = of.stack([weights] * (n // groups), axis=-3).reshape(*weights.shape[:-3], n, count, count)
    product = weights.swapaxes(-3, -2)[..., None] * jacobians.swapaxes(-3, -2)[..., None, :, :, :]  # [..., S, n, S, n]
    identity = of.eye(count * n if mass is None else count)
    if isinstance(weights, torch.Tensor):
        identity = identity.to(weights)
    if mass is not None:
        identity = of.kron(identity, mass.packed(n, jacobians))
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
        residual = (slopes - problem.slopes(system.clock, system.states(slopes, slopes))).reshape(shape)
        column = flat(residual) / unit
        # Of samples, those without a solution must not stop the others.
        found = torch.linalg.solve_ex(matrix, column)[0] if apart else torch.linalg.solve(matrix, column)
        return by_points(unit * found, residual).reshape(slopes.shape)

    return attached(step, slopes)


def attached_states(problem: Problem, system: Any, states: torch.Tensor, jacobians: torch.Tensor) -> torch.Tensor:
    """Return states [1, S, n] that solve a system with a mass matrix, attached to the graph."""
    with torch.no_grad():
        matrix = matrix_of(system.weights.detach(), jacobians, system.mass)
        # Equations and unknowns are scaled, since those of a circuit have very different sizes.
        unit = flat(component_sizes(states) + 0.0 * states.detach())
        matrix = matrix * unit.mT
        row_size = matrix.abs().amax(1, keepdim=True)
        matrix = matrix / row_size

    def step(states: torch.Tensor) -> torch.Tensor:
        residual = system.residual(states, problem.slopes(system.clock, states))
        return by_points(unit * torch.linalg.solve(matrix, flat(residual) / row_size), residual)

    return attached(step, states)


def attached(step: Function, solution: torch.Tensor) -> torch.Tensor:
    """A solution less Newton's step there, which has its first derivatives; of a second such step, the second ones."""
    once = solution - step(solution)
    return once - step(once) if being_transformed() else _OnceDifferentiable.apply(once)


class _OnceDifferentiable(torch.autograd.Function):
    """The same; its second derivatives would not be those of the solution."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> torch.Tensor:
        if torch.is_grad_enabled():
            raise InvalidArgumentError(
                "create_graph must be False in the backward pass of an implicit method, got True; "
                "pass method='adams' and n_steps= for second derivatives, or use torch.func"
            )
        return cotangent


def attached_by_iteration(
    image: torch.Tensor,
    solution: torch.Tensor,
    function: Function,
    max_iterations: int,
    error: Callable[[float], Exception],
    about: Function | None = None,
) -> torch.Tensor:
    """A fixed point's image, attached to the graph, given the derivatives of the fixed point itself.

    A hook completes its cotangent to λ = cotangent + Jᵀ λ, with the Jacobian J of `function`, the map without a graph;
    `about` is (1 − Jᵀ)⁻¹ but for small differences, where there is such a function.
    """
    if not image.requires_grad:
        return image

    def completed(cotangent: torch.Tensor | None) -> torch.Tensor | None:
        if cotangent is None:
            return None
        # Made here, so that nothing is held between the passes.
        with torch.enable_grad(), unhooked():
            at = solution.detach().requires_grad_()
            value = function(at)
        if not value.requires_grad:
            return cotangent

        def less_pulled(adjoint: torch.Tensor) -> torch.Tensor:
            (back,) = torch.autograd.grad(value, at, adjoint, retain_graph=True, allow_unused=True)
            return adjoint if back is None else adjoint - back

        with torch.no_grad():
            # In units of each component, so that the residual of a large cotangent does not hide that of a small one.
            unit = component_sizes(solution)

            def closer(x: torch.Tensor) -> torch.Tensor:
                return x if about is None else unit * about(x / unit)

            whole, left = solved_linear(
                lambda x: unit * less_pulled(closer(x) / unit), unit * cotangent, max_iterations
            )
            if whole is None:
                raise error(left)
            return closer(whole) / unit

    image.register_hook(completed)
    return _OnceDifferentiable.apply(image)
