"""Solve states that are coupled through their slopes: u = known + W · func(t, u), [groups, S, components].

Newton's method with a dense matrix for few unknowns; for many the plain iteration, and where that fails, Newton's with
one Jacobian for all points (`shifted`). Both are accelerated by Anderson's mixing.
Neither is differentiated: one more step from the slopes that were found, attached to the graph, has the solution's
first derivatives as its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import NotConvergedError
from fracdnn.solver.arrays import Array, as_kind, as_numpy, as_tensor, library, norm
from fracdnn.solver.convergence import Progress, component_sizes, is_finite, sizes
from fracdnn.solver.implicit import Mixing, attached, attached_by_iteration
from fracdnn.solver.jacobians import slopes_with_jacobians
from fracdnn.solver.problem import Problem
from fracdnn.tracing import being_transformed

# Unknowns up to which a matrix is made at once, and where an iteration without it does not converge.
SMALL, DENSE = 512, 2048
_LARGEST = 1e-2  # part of a state that rounding is thought to move
_ROUNDINGS = 100.0  # of all that is added up in an equation, which rounding may leave of its residual
# Iterations after which changes that are no shorter are taken for func's noise: by Newton's method, and without it.
_NEWTON_WINDOW, _WINDOW = 4, 10
_FEW = 16  # iterations after which a search makes a matrix instead
_LONGER = 4  # for iterations without a matrix, to rounding
# Components up to which modes are looked for, and how large they have to be to grow.
MOST_MODES, GROWING = 64, 3.0
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

    `enough` says, for states, which change of each component is small enough to end with; without it, it is rounding.
    `noise` is that of func's values for each component, [G, d], where it is known: changes that come of it end an
    iteration. `acceptable` are changes that do where rounding keeps them from becoming smaller. After a solve, `moving`
    says by how much the states still moved when func's noise stopped the iteration, [G, d]; None where it converged.
    `is_stiff` says that an iteration without a matrix has failed.
    """

    def __init__(self, problem: Problem, max_iterations: int, enough: Callable[[Array], Array] | None = None) -> None:
        self._problem, self._max_iterations, self._enough = problem, max_iterations, enough
        self.noise: Array | None = None
        self.acceptable: Callable[[Array], Array] | None = None
        self.moving: Array | None = None
        self._jacobians: Array | None = None  # [S, n, n]
        self._inverse: Array | None = None  # of the last system's matrix, where there is one
        self._jacobian: Any = None  # at one point, where there are many components
        self._shifted: Any = None  # of the last system, the same
        self._at_solution = self.is_stiff = self._diverged = False
        self._dtype = problem.value.dtype
        self._epsilon, self._tiny = torch.finfo(self._dtype).eps, torch.finfo(self._dtype).tiny

    def solve(self, system: System, guess: Array, *, close: bool = False) -> tuple[Array, Array]:
        """States and slopes [G, S, d], attached to the graph of what they depend on; from states that are guessed.

        A guess that is `close` is worth new Jacobians, the more so as the derivatives need them at the solution.
        """
        self.moving = self._inverse = None
        transformed = being_transformed()
        wanted = torch.is_grad_enabled() or transformed
        unknowns = math.prod(system.known.shape)
        small = unknowns <= SMALL or transformed
        by_shifts = not small and len(system.weights) == 1
        dense = small or (self.is_stiff and not by_shifts)
        self._shifted = None
        with torch.no_grad():
            if not small and not self.is_stiff:
                try:
                    # A few iterations are quicker than a matrix, where one can be had.
                    few = self._enough is not None and unknowns <= DENSE
                    found = self._iterated(system.detached(), guess, _FEW if few else self._max_iterations)
                except NotConvergedError:
                    # Changes that do not become longer are those of noise, about which a matrix knows nothing.
                    if unknowns > DENSE and not (by_shifts and self._diverged):
                        raise
                    self.is_stiff, dense = True, not by_shifts
            if self.is_stiff and not dense:
                try:
                    found = self._by_shifts(system.detached(), guess)
                except NotConvergedError:
                    if self._enough or unknowns > DENSE:  # a search tries a shorter panel
                        raise
                    dense = True
            if dense:
                found = self._by_newton(system, guess, always_anew=close and wanted)
        if not wanted:
            return found
        slopes = (self._attached if dense else self._attached_by_iteration)(system, *found)
        return system.states(slopes), slopes

    def after(self, residual: Array) -> Array:
        """What states [G, S, d] become of such a residual of the last system's equations: less of it in a stiff one."""
        if self._shifted is not None:
            return self._shifted.solve(residual)
        if self._inverse is None:
            return residual
        return _by_points(as_kind(self._inverse, residual) @ _flat(residual), residual)

    def grows(self, orders: Array, duration: float) -> bool:
        """Whether a small change of the last system's states grows within a time, by its Jacobians, if there are any.

        A mode of the eigenvalue λ grows where |arg λ| < order · π/2, soon where |λ| · duration^order is large.
        (Source: Matignon, "Stability results for fractional differential equations", 1996.)
        """
        if self._inverse is None or self._jacobians is None or self._jacobians.shape[1] > MOST_MODES:
            return False
        if isinstance(self._jacobians, torch.Tensor) and being_transformed():
            return False
        ends = self._jacobians[[0, -1]]
        ends, orders = (as_numpy(each.cpu()) if isinstance(each, torch.Tensor) else each for each in (ends, orders))
        orders = orders.reshape(-1)
        ends = np.repeat(duration**orders, ends.shape[1] // len(orders))[:, None] * ends
        if not np.isfinite(ends).all():
            return False
        modes = np.linalg.eigvals(ends)
        return bool(((abs(np.angle(modes)) < 0.5 * math.pi * orders.max()) & (abs(modes) > GROWING)).any())

    def note_noise(self, states: Array, time: torch.Tensor) -> None:
        """Tell the problem of states that func's noise kept moving; for the warning after a solve.

        Where changes are acceptable that a search for steps has judged, there is nothing to tell.
        """
        if self.moving is not None and self.acceptable is None:
            scale = sizes(states.detach()).double().cpu().clip(min=float(np.finfo(float).tiny))
            self._problem.note_noise(float((torch.as_tensor(self.moving).double().cpu() / scale).max()), time)

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
        inverse, mixing, anew = None, Mixing(), always_anew
        progress, self._at_solution = Progress(_NEWTON_WINDOW), False
        for _ in range(self._max_iterations):
            if anew or self._jacobians is None:
                slopes, self._jacobians = self._with_jacobians(system.clock, states)
                inverse, mixing, anew = None, Mixing(), True
            else:
                slopes = self.slopes(system.clock, states)
            if inverse is None:
                inverse = _inverse(_matrix(system.weights, self._jacobians))
            residual = states - system.states(slopes)
            change = _by_points(inverse @ _flat(residual), states)
            if not is_finite(change):
                if anew:
                    break
                anew, self._jacobians = True, None
                continue
            rate, goal = progress.note(change), self._goal(system, states)
            # To a small change belongs a small residual, unless func is steep: then its slopes are not yet known.
            done = (rate * progress.length <= goal) & (rate * sizes(residual) <= goal)
            ends = bool(done.all())
            slow = not progress.begins and _any_slow(~done, rate, progress.length, goal)
            if not ends and ((slow and anew) or bool((rate * progress.length <= goal).all())):
                rounding = _ROUNDINGS * self._epsilon * self._rounded(system, states, slopes, self._jacobians)
                done |= (rate * progress.length <= goal) & (sizes(residual) <= sizes(rounding))
                if slow and anew:
                    moved = sizes(_by_points(abs(inverse) @ _flat(rounding), states))
                    done |= progress.length <= library(states).minimum(moved, _LARGEST * sizes(states))
                    if self.acceptable is not None:
                        done |= progress.length <= self.acceptable(states)
                ends = bool(done.all())
            if ends or progress.is_stuck(done, states):
                self.moving = None if ends else _left(done, progress.length, states)
                self._inverse = inverse
                self._at_solution = anew and bool((progress.length <= _SAME * sizes(states)).all())
                # To first order the slopes at the new states; with them, the equation holds.
                return states - change, slopes - _times(self._jacobians, change)
            if self._enough and progress.stalls(done):  # a search tries a shorter step
                break
            states = mixing.next(states - change, -change)
            anew = slow or always_anew
        self._jacobians = None
        raise self._not_converged(system, progress.largest)

    def _by_shifts(self, system: System, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Newton's method with one Jacobian for all points, which is made anew where it has become a bad one."""
        from fracdnn.solver.shifted import Shifted, jacobian_at  # late, since SciPy's factors take long to import

        progress, shifted, is_new = Progress(_NEWTON_WINDOW), None, False
        middle, weights = len(system.clock) // 2, as_numpy(system.weights[0].cpu())
        for _ in range(self._max_iterations):
            if self._jacobian is None:
                self._jacobian = jacobian_at(self._problem, system.clock[middle], states[:, middle])
                shifted, is_new = None, True
            shifted = shifted or Shifted(weights, self._jacobian)
            slopes = self.slopes(system.clock, states)
            residual = states - system.states(slopes)
            change = shifted.solve(residual)
            if not is_finite(change):
                if is_new:
                    break
                self._jacobian = None
                continue
            rate, goal = progress.note(change), self._goal(system, states)
            short = rate * progress.length <= goal
            done = short & (rate * sizes(residual) <= goal)
            slow = not progress.begins and _any_slow(~done, rate, progress.length, goal)
            if not bool(done.all()) and (slow or bool(short.all())):
                inside = abs(slopes) + shifted.times_sizes(states)
                rounding = abs(states) + abs(system.known) + abs(system.weights) @ inside
                if slow:
                    short = progress.length <= _LARGEST * sizes(states)
                done |= short & (sizes(residual) <= _ROUNDINGS * self._epsilon * sizes(rounding))
            ends = bool(done.all())
            if ends or progress.is_stuck(done, states):
                self.moving = None if ends else _left(done, progress.length, states)
                self._shifted = shifted
                return states - change, slopes - shifted.times(change)
            if self._enough and progress.stalls(done):  # a search tries a shorter step
                break
            states = states - change
            if slow and not is_new:
                self._jacobian = None
            is_new = False
        self._jacobian = None
        raise self._not_converged(system, progress.largest)

    def _iterated(self, system: System, states: Array, most: int) -> tuple[Array, Array]:
        mixing, progress = Mixing(), Progress(_WINDOW)
        for _ in range(most * (1 if self._enough else _LONGER)):  # a search would take shorter panels
            slopes = self.slopes(system.clock, states)
            image = system.states(slopes)
            change = image - states
            if not is_finite(change):
                break
            rate, goal = progress.note(change), self._goal(system, states)
            done = rate * progress.length <= goal
            if not bool(done.all()) and not progress.begins and bool((~done & (rate > _SLOW)).any()):
                rounding = abs(states) + abs(system.known) + abs(system.weights) @ abs(slopes)
                done |= progress.length <= _ROUNDINGS * self._epsilon * sizes(rounding)
            ends = bool(done.all())
            stuck = not ends and progress.is_stuck(done, states)
            if stuck and math.prod(states.shape) <= DENSE:
                break  # a matrix will tell whether that is noise
            if ends or stuck:
                self.moving = None if ends else _left(done, progress.length, states)
                return image, slopes
            states = mixing.next(image, change)
        self._diverged = not is_finite(change) or progress.grew
        raise self._not_converged(system, progress.largest)

    def _goal(self, system: System, states: Array) -> Array:
        """The change to end with, [G, d]."""
        goal = 8.0 * self._epsilon * sizes(states) if self._enough is None else self._enough(states)
        if self.noise is not None:
            noise = as_kind(self.noise, states)[:, None]
            goal = goal + sizes(library(states).sum(abs(system.weights), 2)[..., None] * noise)
        return goal.clip(min=self._tiny)

    def _rounded(self, system: System, states: Array, slopes: Array, jacobians: Array) -> Array:
        """The sizes of all that is added up in an equation, inside of func by its derivatives; [G, S, d]."""
        inside = abs(slopes) + _times(abs(jacobians), abs(states))
        return abs(states) + abs(system.known) + abs(system.weights) @ inside

    def _attached(self, system: System, states: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            if self._at_solution and self._jacobians is not None:
                jacobians = torch.as_tensor(self._jacobians).to(states.dtype)
            else:
                _, jacobians = self._with_jacobians(system.clock, states)
            matrix = _matrix(system.weights.detach().mT, jacobians.mT).T  # I − J W

            # In units of each component, since factors of a matrix with entries of very different size lose digits.
            unit = component_sizes(slopes) + 0.0 * slopes.detach()
            matrix = matrix * _flat(unit).T / _flat(unit)

        def step(slopes: torch.Tensor) -> torch.Tensor:
            residual = slopes - self._problem.slopes(system.clock, system.states(slopes))
            return unit * _by_points(torch.linalg.solve(matrix, _flat(residual / unit)), slopes)

        return attached(step, slopes)

    def _attached_by_iteration(self, system: System, states: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        apart = system.detached()
        return attached_by_iteration(
            self._problem.slopes(system.clock, system.states(slopes)),
            slopes,
            lambda slopes: self._problem.slopes(system.clock, apart.states(slopes)),
            self._max_iterations * _LONGER,
            lambda residual: self._not_converged(system, norm(residual)),
            None if self._shifted is None else partial(self._shifted.solve, transposed=True),
        )

    def slopes(self, clock: tuple[torch.Tensor, ...], states: Array) -> Array:
        """Func at several times, for states [G, S, d] of either kind."""
        if isinstance(states, torch.Tensor):
            return self._problem.slopes(clock, states)
        return self._problem.slopes(clock, as_tensor(states, self._dtype)).double().numpy()

    def _with_jacobians(self, clock: tuple[torch.Tensor, ...], states: Array) -> tuple[Array, Array]:
        """Slopes, and their derivatives by the states [S, n, n] with n = G · d."""
        if isinstance(states, torch.Tensor):
            return slopes_with_jacobians(self._problem, clock, states)
        found = slopes_with_jacobians(self._problem, clock, as_tensor(states, self._dtype))
        return found[0].double().numpy(), found[1].double().numpy()

    def _not_converged(self, system: System, last: float) -> NotConvergedError:
        remedy = "use shorter steps (n_steps=, or step_size or max_step in options), or check that func is smooth there"
        if self.acceptable is not None:  # a search has found steps, only the derivatives fail
            remedy = "a gradient needs a func that is smooth there: make it so, or solve under torch.no_grad()"
        elif len(system.weights) > 1 and math.prod(system.known.shape) > DENSE:
            most = DENSE // system.known.shape[1]
            remedy += f"; with several orders a stiff func needs a state of at most {most} components"
        return NotConvergedError(
            f"the iteration did not converge {system.name()}: the last change is {last:.3g}; {remedy}"
        )


def _left(done: Array, length: Array, states: Array) -> Array:
    """Of the changes, those that are not done."""
    return library(states).where(done, 0.0, length)


def _any_slow(left: Array, rate: Array, length: Array, goal: Array) -> bool:
    """Whether a component is left that needs other Jacobians, or too many iterations."""
    return bool((left & ((rate > _SLOW) | (rate**_PATIENCE * length > goal))).any())


def _matrix(weights: Array, jacobians: Array) -> Array:
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
