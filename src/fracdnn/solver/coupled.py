"""Solve states that are coupled through their slopes: u = known + W · func(t, u), [groups, S, components].

Newton's method with a dense matrix for few unknowns, else the plain iteration, both accelerated by Anderson's mixing.
Neither is differentiated: one more step from the slopes that were found, attached to the graph, has the solution's
first derivatives as its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from fracdnn.exceptions import NotConvergedError
from fracdnn.solver.arrays import Array, as_numpy, as_tensor, is_rounding, library, norm
from fracdnn.solver.implicit import Mixing, attached, attached_by_iteration, jacobian, unhooked
from fracdnn.solver.problem import Problem
from fracdnn.tracing import being_transformed

# Unknowns up to which the matrix is dense, and components up to which rows of a Jacobian come one by one.
DENSE, _ROW_BY_ROW = 512, 8
_ROUNDINGS = 1e4  # of the state, up to which rounding may move the solution of a stiff system
_LONGER = 4  # for iterations without a matrix, to rounding
_SAME = 1e-13  # change of the states after which Jacobians are taken for the same
# Jacobians that make a change no shorter than this, or need so many more iterations, are made anew.
_SLOW, _PATIENCE = 0.3, 6


@dataclass(frozen=True)
class System:
    """S states at the times of a clock; `name` is what messages call them. Arrays of either kind."""

    clock: tuple[torch.Tensor, ...]
    known: Array  # [G, S, d]
    weights: Array  # [G, S, S]
    name: Callable[[], str]

    def states(self, slopes: Array) -> Array:
        """Known + W · slopes."""
        return self.known + self.weights @ slopes

    def detached(self) -> "System":
        """Apart from any graph."""
        if not isinstance(self.known, torch.Tensor):
            return self
        return System(self.clock, self.known.detach(), self.weights.detach(), self.name)

    def numpy(self) -> "System":
        """Of NumPy's arrays."""
        return System(self.clock, as_numpy(self.known), as_numpy(self.weights), self.name)


class CoupledSolver:
    """Solves the systems of one problem, one after the other; a Jacobian serves as many of them as it can.

    `enough` says, for states, which change of each is small enough to end with; without it, it is rounding.
    """

    def __init__(self, problem: Problem, max_iterations: int, enough: Callable[[Array], Array] | None = None) -> None:
        self._problem, self._max_iterations, self._enough = problem, max_iterations, enough
        self._jacobians: Array | None = None  # [S, n, n]
        self._at_solution = False
        self._dtype = problem.value.dtype
        self._epsilon = torch.finfo(self._dtype).eps

    def solve(self, system: System, guess: Array, *, close: bool = False) -> tuple[Array, Array]:
        """States and slopes [G, S, d], attached to the graph of what they depend on; from states that are guessed.

        A guess that is `close` is worth new Jacobians, the more so as the derivatives need them at the solution.
        """
        wanted = torch.is_grad_enabled() or being_transformed()
        dense = math.prod(system.known.shape) <= DENSE or being_transformed()
        with torch.no_grad():
            if dense:
                found = self._by_newton(system, guess, always_anew=close and wanted)
            else:
                found = self._iterated(system.detached(), guess)
        if not wanted:
            return found
        slopes = (self._attached if dense else self._attached_by_iteration)(system, *found)
        return system.states(slopes), slopes

    def _by_newton(self, system: System, guess: Array, *, always_anew: bool) -> tuple[Array, Array]:
        """In NumPy, which has less to do for each operation on few numbers, where that can be."""
        if not isinstance(guess, torch.Tensor):
            return self._newton(system, guess, always_anew=always_anew)
        if guess.device.type != "cpu" or being_transformed():
            return self._newton(system.detached(), guess, always_anew=always_anew)
        with np.errstate(over="ignore", invalid="ignore"):
            states, slopes = self._newton(system.numpy(), as_numpy(guess), always_anew=always_anew)
        return as_tensor(states, self._dtype), as_tensor(slopes, self._dtype)

    def _newton(self, system: System, states: Array, *, always_anew: bool) -> tuple[Array, Array]:
        inverse, mixing, size, anew = None, Mixing(), math.inf, always_anew
        change, self._at_solution = states, False
        for _ in range(self._max_iterations):
            if anew or self._jacobians is None:
                slopes, self._jacobians = self._with_jacobians(system.clock, states)
                inverse, mixing, anew = None, Mixing(), True
            else:
                slopes = self._slopes(system.clock, states)
            if inverse is None:
                inverse = _inverse(_matrix(system.weights, self._jacobians))
            change = _by_points(inverse @ _flat(states - system.states(slopes)), states)
            length = norm(change)
            if math.isinf(length):
                if anew:
                    break
                anew, self._jacobians = True, None
                continue
            rate = length / size  # 0 for the first
            slow = rate > _SLOW or (rate > 0 and not self._ends(change, states, rate**_PATIENCE))
            if self._ends(change, states, rate) or (
                slow and anew and is_rounding(change, states, self._epsilon, _ROUNDINGS)
            ):
                self._at_solution = anew and length <= _SAME * norm(states)
                # To first order the slopes at the new states; with them, the equation holds.
                return states - change, slopes - _times(self._jacobians, change)
            states = mixing.next(states - change, -change)
            anew, size = slow or always_anew, length
        self._jacobians = None
        raise self._not_converged(system, change)

    def _iterated(self, system: System, states: Array) -> tuple[Array, Array]:
        mixing, change, size = Mixing(), states, math.inf
        for _ in range(self._max_iterations * (1 if self._enough else _LONGER)):  # a search would take shorter panels
            slopes = self._slopes(system.clock, states)
            image = system.states(slopes)
            change = image - states
            length = norm(change)
            if math.isinf(length):
                break
            rounded = length > _SLOW * size and is_rounding(change, states, self._epsilon, _ROUNDINGS)
            if rounded or self._ends(change, states, length / size):
                return image, slopes
            size, states = length, mixing.next(image, change)
        raise self._not_converged(system, change)

    def _ends(self, change: Array, states: Array, rate: float = 1.0) -> bool:
        """Whether nothing to speak of is left, with changes that become shorter at a rate."""
        left = (rate or 1.0) * change
        if self._enough is None:
            return is_rounding(left, states, self._epsilon)
        return norm(left / self._enough(states)) <= 1.0

    def _attached(self, system: System, states: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            if self._at_solution and self._jacobians is not None:
                jacobians = torch.as_tensor(self._jacobians).to(states.dtype)
            else:
                _, jacobians = self._with_jacobians(system.clock, states)
            matrix = _matrix(system.weights.detach().mT, jacobians.mT).T  # I − J W

        def step(slopes: torch.Tensor) -> torch.Tensor:
            residual = slopes - self._problem.slopes(system.clock, system.states(slopes))
            return _by_points(torch.linalg.solve(matrix, _flat(residual)), slopes)

        return attached(step, slopes)

    def _attached_by_iteration(self, system: System, states: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        apart = system.detached()
        return attached_by_iteration(
            self._problem.slopes(system.clock, system.states(slopes)),
            slopes,
            lambda slopes: self._problem.slopes(system.clock, apart.states(slopes)),
            self._max_iterations * _LONGER,
            lambda residual: self._not_converged(system, residual),
        )

    def _slopes(self, clock: tuple[torch.Tensor, ...], states: Array) -> Array:
        if isinstance(states, torch.Tensor):
            return self._problem.slopes(clock, states)
        return self._problem.slopes(clock, as_tensor(states, self._dtype)).double().numpy()

    def _with_jacobians(self, clock: tuple[torch.Tensor, ...], states: Array) -> tuple[Array, Array]:
        """Slopes, and their derivatives by the states [S, n, n] with n = G · d."""
        if isinstance(states, torch.Tensor):
            return slopes_with_jacobians(self._problem, clock, states)
        found = slopes_with_jacobians(self._problem, clock, as_tensor(states, self._dtype))
        return found[0].double().numpy(), found[1].double().numpy()

    def _not_converged(self, system: System, change: Array) -> NotConvergedError:
        return NotConvergedError(
            f"the iteration did not converge {system.name()}: the last change is {norm(change):.3g}; use shorter steps "
            f"(max_step, step_size, n_steps), method='adams' for large states, or check that func is smooth there"
        )


def slopes_with_jacobians(
    problem: Problem, clock: tuple[torch.Tensor, ...], states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Func at several times, and its derivatives by the states there; [G, S, d] and [S, n, n] with n = G · d."""
    groups, count, d = states.shape
    n = groups * d
    if being_transformed() or torch.is_inference_mode_enabled():
        each = zip(clock, states.unbind(1), strict=True)
        found = [jacobian(partial(problem.packed_slope, time), state) for time, state in each]
        return problem.slopes(clock, states), torch.stack(found)
    with torch.enable_grad(), unhooked():
        at = states.detach().requires_grad_()
        slopes = problem.slopes(clock, at)
        if not n or not slopes.requires_grad:  # func does not look at the state
            return slopes.detach(), states.new_zeros(count, n, n)
        # A slope depends on the state of its own point alone: one pass gives a row for all points.
        rows = torch.eye(n, dtype=slopes.dtype, device=slopes.device).view(n, groups, 1, d).expand(n, groups, count, d)
        if n > _ROW_BY_ROW:
            (whole,) = torch.autograd.grad(slopes, at, rows, is_grads_batched=True, allow_unused=True)
        else:
            found = [torch.autograd.grad(slopes, at, row, retain_graph=True, allow_unused=True)[0] for row in rows]
            whole = None if found[0] is None else torch.stack(found)
    if whole is None:
        return slopes.detach(), states.new_zeros(count, n, n)
    return slopes.detach(), whole.permute(2, 0, 1, 3).reshape(count, n, n)


def _matrix(weights: Array, jacobians: Array) -> Array:
    """I − W J, [S n, S n], where the unknowns of a point come together."""
    groups, count, _ = weights.shape
    n = jacobians.shape[-1]
    if n > groups:  # [n, S, S]
        weights = library(weights).stack([weights] * (n // groups), axis=1).reshape(n, count, count)
    product = weights.swapaxes(0, 1)[..., None] * jacobians.swapaxes(0, 1)  # [S, n, S, n]
    identity = library(weights).eye(count * n)
    if isinstance(weights, torch.Tensor):
        identity = identity.to(weights)
    return identity - product.reshape(count * n, count * n)


def _inverse(matrix: Array) -> Array:
    """Not a number where there is none."""
    try:
        return library(matrix).linalg.inv(matrix)
    except (np.linalg.LinAlgError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
        return math.nan * matrix


def _times(jacobians: Array, states: Array) -> Array:
    """J u at each point."""
    groups, count, d = states.shape
    by_point = jacobians @ states.swapaxes(0, 1).reshape(count, groups * d, 1)
    return by_point.reshape(count, groups, d).swapaxes(0, 1)


def _flat(states: Array) -> Array:
    return states.swapaxes(0, 1).reshape(-1, 1)


def _by_points(flat: Array, like: Array) -> Array:
    groups, count, d = like.shape
    return flat.reshape(count, groups, d).swapaxes(0, 1)
