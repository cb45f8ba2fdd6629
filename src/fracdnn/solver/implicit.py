"""What makes iterations faster, and the derivatives of what an iteration finds.

An iteration is not differentiated: by the implicit function theorem one more step from the solution, attached to the
graph, has the solution's first derivatives as its own.
"""

from collections.abc import Callable
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.solver.arrays import Array, library, norm, rounding
from fracdnn.solver.convergence import component_sizes
from fracdnn.solver.jacobians import unhooked
from fracdnn.tracing import being_transformed

Function = Callable[[torch.Tensor], torch.Tensor]

_DEPTH = 5  # of Anderson's memory
_LOOKS = 20  # iterations of GMRES after which not each one looks whether it was the last


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
                "use method='adams' for second derivatives, or torch.func"
            )
        return cotangent


def attached_by_iteration(
    image: torch.Tensor,
    solution: torch.Tensor,
    function: Function,
    max_iterations: int,
    error: Callable[[torch.Tensor], Exception],
    about: Function | None = None,
) -> torch.Tensor:
    """A fixed point's image, attached to the graph, given the derivatives of the fixed point itself.

    A hook completes its cotangent to λ = cotangent + Jᵀ λ, with the Jacobian J of `function`, the map without a graph;
    `about` is (1 − Jᵀ)⁻¹ but for small differences, where there is such a function.
    """
    if not image.requires_grad:
        return image

    def whole(cotangent: torch.Tensor | None) -> torch.Tensor | None:
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

            scaled = solved_linear(
                lambda x: unit * less_pulled(closer(x) / unit), unit * cotangent, max_iterations, error
            )
            return closer(scaled) / unit

    image.register_hook(whole)
    return _OnceDifferentiable.apply(image)


def solved_linear(
    function: Function,
    target: torch.Tensor,
    max_iterations: int,
    error: Callable[[torch.Tensor], Exception],
    left: float = 0.0,
) -> torch.Tensor:
    """Where a linear function has the target's value, but for a part that may be left, and rounding.

    By GMRES; source: Saad, Schultz, "GMRES: a generalized minimal residual algorithm for solving nonsymmetric linear
    systems", 1986.
    """
    size = float(target.norm())
    if not size:
        return target
    basis = [target.reshape(-1) / size]
    projected = target.new_zeros(max_iterations + 1, max_iterations, dtype=torch.float64)
    goal = target.new_zeros(max_iterations + 1, dtype=torch.float64)
    goal[0] = size
    for k in range(max_iterations):
        known, image = torch.stack(basis), function(basis[k].reshape(target.shape)).reshape(-1)
        for _ in range(2):  # the second time takes what rounding left of the first
            parts = known @ image
            image = image - parts @ known
            projected[: k + 1, k] += parts
        rest = image.norm()
        projected[k + 1, k] = rest
        basis.append(image / rest)
        if k % (1 + k // _LOOKS) and float(rest) and k + 1 < max_iterations:
            continue
        matrix, wanted = projected[: k + 2, : k + 1], goal[: k + 2]
        factors = torch.linalg.lstsq(matrix, wanted.unsqueeze(-1)).solution.squeeze(-1)
        residual = wanted - matrix @ factors
        rounded = 8.0 * rounding(target) * (size + norm(matrix.abs() @ factors.abs()))
        if norm(residual) <= max(left * size, rounded) or not float(rest):
            return (factors.to(known.dtype) @ known).reshape(target.shape)
    raise error(residual)


class Mixing:
    """Anderson's: the next iterate, of the last images and residuals those whose residual is least.

    Residuals are measured in units of their components.
    """

    def __init__(self) -> None:
        self._images: list[Array] = []
        self._residuals: list[Array] = []
        self._unit: Array | None = None

    def next(self, image: Array, residual: Array) -> Array:
        """Where to look next, after an iterate with this image and residual, the way to it."""
        if self._unit is None:
            self._unit = component_sizes(image)
        self._images = [*self._images[-_DEPTH:], image.reshape(-1)]
        self._residuals = [*self._residuals[-_DEPTH:], (residual / self._unit).reshape(-1)]
        if len(self._images) == 1:
            return image
        of = library(image)
        changes = of.stack(self._residuals[:-1])
        changes -= self._residuals[-1]
        # By normal equations of rows of length 1: their loss of digits costs an iteration, a decomposition many.
        products = changes @ changes.T
        lengths = (products.diagonal() + of.finfo(image.dtype).tiny) ** 0.5
        products = products / (lengths[:, None] * lengths) + of.diag(0.0 * lengths + 10.0 * rounding(image))
        factors = of.linalg.solve(products, -(changes @ self._residuals[-1]) / lengths) / lengths
        mixed = (1.0 - factors.sum()) * self._images[-1]
        for factor, other in zip(factors, self._images[:-1], strict=True):
            mixed += factor * other
        return mixed.reshape(image.shape)
