"""Solve u = known + weight · func(t, u) for an implicit stage, with the exact derivative of its solution.

Newton's method with a dense Jacobian for small states, Anderson's accelerated fixed point for large ones. The iteration
is not differentiated: by the implicit function theorem one more step from the solution, attached to the graph, has the
solution's first derivatives as its own.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError, NotConvergedError
from fracdnn.solver.arrays import Array, library, norm, rounding
from fracdnn.tracing import being_transformed

Function = Callable[[torch.Tensor], torch.Tensor]

# Components up to which a dense Jacobian is taken, and up to which its rows come one by one.
_DENSE, _ROW_BY_ROW = 256, 8
_DEPTH = 5  # of Anderson's memory
_ROUNDINGS = 1e4  # of the state, up to which rounding may move the solution of a stiff stage
_SLOW = 0.1  # a Jacobian that reduces the residual less than this is made anew


@dataclass
class StageEquation:
    """u = known + weight · slope(u) for states [groups, components]; `name` is what messages call the stage."""

    slope: Function
    known: torch.Tensor
    weight: torch.Tensor
    name: str

    def residual(self, state: torch.Tensor) -> torch.Tensor:
        return state - self.known - self.weight * self.slope(state)


class StageSolver:
    """Solves the stages of one solve; a Jacobian serves as many of them as it can."""

    def __init__(self, max_iterations: int = 50) -> None:
        self._max_iterations = max_iterations
        self._jacobian: torch.Tensor | None = None

    def solve(self, equation: StageEquation, guess: torch.Tensor) -> torch.Tensor:
        """The solution, attached to the graph of what the equation depends on."""
        dense = guess.numel() <= _DENSE or being_transformed()
        with torch.no_grad():
            detached = StageEquation(equation.slope, equation.known.detach(), equation.weight.detach(), equation.name)
            solution = (self._newton if dense else self._anderson)(detached, guess.detach())
        if dense:
            return _attached_by_newton(equation, solution)
        if not torch.is_grad_enabled():
            return solution
        weight = equation.weight.detach()
        return attached_by_iteration(
            equation.known + equation.weight * equation.slope(solution),
            solution,
            lambda state: weight * equation.slope(state),
            self._max_iterations,
            lambda residual: _not_converged(equation, "the adjoint's iteration", self._max_iterations, residual),
        )

    def _newton(self, equation: StageEquation, state: torch.Tensor) -> torch.Tensor:
        residual = equation.residual(state)
        fresh = False
        for _ in range(self._max_iterations):
            size = norm(residual)
            if self._jacobian is None or self._jacobian.shape[0] != state.numel():
                self._jacobian, fresh = jacobian(equation.slope, state), True
            step = _newton_step(self._jacobian, equation.weight, residual)
            trial, trial_residual = _damped(equation, state, step, size, halvings=8 if fresh else 0)
            if trial is None or (not fresh and norm(trial_residual) > _SLOW * size and not done(step, state)):
                if fresh:
                    break
                self._jacobian = None
                continue
            if norm(trial_residual) > _SLOW * size:
                if fresh and within_rounding(step, trial):
                    return trial
                self._jacobian = None  # an old one from the next iteration on
            state, residual, fresh = trial, trial_residual, False
            if done(step, state):
                return state
        raise _not_converged(equation, "Newton's method", self._max_iterations, residual)

    def _anderson(self, equation: StageEquation, state: torch.Tensor) -> torch.Tensor:
        return accelerated(
            lambda u: equation.known + equation.weight * equation.slope(u),
            state,
            self._max_iterations,
            lambda residual: _not_converged(equation, "the fixed-point iteration", self._max_iterations, residual),
        )


def jacobian(function: Function, state: torch.Tensor) -> torch.Tensor:
    """∂function/∂state, [n, n] for a state of n components."""
    n = state.numel()
    if torch.is_inference_mode_enabled():
        return _by_differences(function, state)
    if being_transformed():
        return torch.func.jacrev(function)(state).reshape(n, n)
    with torch.enable_grad(), unhooked():  # torch.func has no hooks, so these are rows of autograd's
        at = state.detach().requires_grad_()
        value = function(at).reshape(-1)
        if not n or not value.requires_grad:  # func does not look at the state
            return state.new_zeros(n, n)
        if n > _ROW_BY_ROW:
            every = torch.eye(n, dtype=value.dtype, device=value.device)
            (whole,) = torch.autograd.grad(value, at, every, is_grads_batched=True, allow_unused=True)
            return state.new_zeros(n, n) if whole is None else whole.reshape(n, n)
        rows = [torch.autograd.grad(each, at, retain_graph=True, allow_unused=True)[0] for each in value]
    return torch.stack([torch.zeros_like(at) if row is None else row for row in rows]).reshape(n, n).detach()


def unhooked() -> AbstractContextManager[None]:
    """Keep hooks of the caller's on saved tensors, such as those of a checkpoint, off a graph that is used up here."""
    if being_transformed():  # which knows no such hooks
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def _by_differences(function: Function, state: torch.Tensor) -> torch.Tensor:
    """For inference mode, which has no derivatives: good enough to converge."""
    length = torch.finfo(state.dtype).eps ** 0.5 * (1.0 + state.abs().max())
    moves = torch.eye(state.numel(), dtype=state.dtype, device=state.device).reshape(-1, *state.shape) * length
    value = function(state)
    return torch.stack([((function(state + move) - value) / length).reshape(-1) for move in moves], dim=1)


def _newton_step(slope_jacobian: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    n = residual.numel()
    rows = weight.expand_as(residual).reshape(n, 1)
    matrix = torch.eye(n, dtype=residual.dtype, device=residual.device) - rows * slope_jacobian
    return torch.linalg.solve(matrix, residual.reshape(n, 1)).reshape(residual.shape)


def _damped(
    equation: StageEquation, state: torch.Tensor, step: torch.Tensor, size: float, *, halvings: int
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Newton's step, or the first of its halves, quarters, … after which the residual is smaller."""
    trial = state - step
    residual = equation.residual(trial)
    for _ in range(halvings):
        if norm(residual) <= size or done(step, state):
            return trial, residual
        step = step / 2.0
        trial = state - step
        residual = equation.residual(trial)
    finite = bool(torch.isfinite(residual).all())
    return (trial, residual) if finite else (None, residual)


def _attached_by_newton(equation: StageEquation, solution: torch.Tensor) -> torch.Tensor:
    if not torch.is_grad_enabled() and not being_transformed():
        return solution
    at_solution, weight = jacobian(equation.slope, solution).detach(), equation.weight.detach()
    return attached(lambda state: _newton_step(at_solution, weight, equation.residual(state)), solution)


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
) -> torch.Tensor:
    """A fixed point's image, attached to the graph, given the derivatives of the fixed point itself.

    A hook completes its cotangent to λ = cotangent + Jᵀ λ, with the Jacobian J of `function`, the map without a graph.
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

        def pulled(adjoint: torch.Tensor, cotangent: torch.Tensor = cotangent) -> torch.Tensor:
            (back,) = torch.autograd.grad(value, at, adjoint, retain_graph=True, allow_unused=True)
            return cotangent if back is None else cotangent + back

        with torch.no_grad():
            return accelerated(pulled, cotangent, max_iterations, error)

    image.register_hook(whole)
    return _OnceDifferentiable.apply(image)


def accelerated(
    function: Function,
    state: torch.Tensor,
    max_iterations: int,
    error: Callable[[torch.Tensor], Exception],
    ends: Callable[[torch.Tensor, torch.Tensor], bool] | None = None,
) -> torch.Tensor:
    """A fixed point of the function, by Anderson's method; to rounding, or until `ends(change, state)`."""
    mixing = Mixing()
    for _ in range(max_iterations):
        image = function(state)
        residual = image - state
        if norm(residual) == float("inf"):
            break
        if (ends or done)(residual, state):
            return image
        state = mixing.next(image, residual)
    raise error(residual)


class Mixing:
    """Anderson's: the next iterate, of the last images and residuals those whose residual is least."""

    def __init__(self) -> None:
        self._images: list[Array] = []
        self._residuals: list[Array] = []

    def next(self, image: Array, residual: Array) -> Array:
        """Where to look next, after an iterate with this image and residual, the way to it."""
        self._images = [*self._images[-_DEPTH:], image.reshape(-1)]
        self._residuals = [*self._residuals[-_DEPTH:], residual.reshape(-1)]
        if len(self._images) == 1:
            return image
        of = library(image)
        residuals, images = of.stack(self._residuals), of.stack(self._images)
        changes = residuals[:-1] - residuals[-1]
        # By normal equations of rows of length 1: their loss of digits costs an iteration, a decomposition many.
        sizes = ((changes * changes).sum(1) + library(image).finfo(image.dtype).tiny) ** 0.5
        products = changes @ changes.T / (sizes[:, None] * sizes)
        products = products + of.diag(0.0 * sizes + 10.0 * rounding(image))
        factors = of.linalg.solve(products, -(changes @ residuals[-1]) / sizes) / sizes
        return (images[-1] + factors @ (images[:-1] - images[-1])).reshape(image.shape)


def done(step: Array, state: Array) -> bool:
    """Whether a step is one of rounding."""
    return norm(step) <= max(8.0 * rounding(state) * norm(state), library(state).finfo(state.dtype).tiny)


def within_rounding(step: Array, state: Array) -> bool:
    """Whether a step that a new Jacobian does not make shorter is one of rounding: stiff slopes are large."""
    return norm(step) <= _ROUNDINGS * rounding(state) * norm(state)


def _not_converged(equation: StageEquation, what: str, iterations: int, residual: torch.Tensor) -> NotConvergedError:
    return NotConvergedError(
        f"{what} did not converge in {iterations} iterations {equation.name}: the residual is {norm(residual):.3g}; "
        f"use smaller steps (step_size, n_steps), or check that func is smooth there"
    )
