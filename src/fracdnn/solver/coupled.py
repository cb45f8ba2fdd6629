"""Solve states that are coupled through their slopes: u = known + W · func(t, u), [groups, S, components].

Newton's method with a dense matrix for few unknowns; for many the plain iteration, and where that fails, Newton's with
one Jacobian for all points (`shifted`). Both are accelerated by Anderson's mixing.
Neither is differentiated: one more step from the slopes that were found, attached to the graph, has the solution's
first derivatives as its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import NotConvergedError
from fracdnn.solver.arrays import Array, as_kind, as_numpy, as_tensor, is_finite, library, norm, sizes
from fracdnn.solver.constraints import MassMatrix
from fracdnn.solver.convergence import Mixing, Progress
from fracdnn.solver.linear import Dense, attached_by_iteration, attached_slopes, attached_states
from fracdnn.solver.problem import Problem
from fracdnn.tracing import being_transformed

# Unknowns up to which a matrix is made at once, and where an iteration without it does not converge.
SMALL, DENSE = 512, 2048
_LARGEST = 1e-2  # part of a state that rounding is thought to move
_ROUNDINGS = 100.0  # of all that is added up in an equation, which rounding may leave of its residual
# Iterations after which changes that are no shorter are taken for func's noise: by Newton's method, and without it.
_NEWTON_WINDOW, _WINDOW = 4, 10
_FAILURES = 3  # of iterations without a matrix, after which there will be one
_FEW = 16  # iterations after which a search makes a matrix instead
_LONGER, _LONGEST = 4, 15  # for iterations without a matrix, to rounding; and for gradients
# Components up to which modes are looked for, and the exponent of e by which they have to grow.
_MOST_MODES, _GROWING = 64, 3.0
_CALM_RATIO, _MAX_CALM_TRIES = 10.0, 60  # of times that are tried, until one in which no mode grows
_SHORTEST_PART = 1e-3  # of Newton's step that a line search tries
_MAX_JACOBIANS = 8  # of one system in a search: iterations that converge take three or fewer
_MAX_PLAIN = 5  # steps of the plain iteration while the Jacobian is infinite
_SAME = 1e-13  # change of the states after which Jacobians are taken for the same
# Jacobians that make a change no shorter than this, or need so many more iterations, are made anew.
_SLOW, _PATIENCE = 0.3, 6


@dataclass(frozen=True, eq=False)
class System:
    """S states at the times of a clock; `name` is what messages call them. Arrays of either kind."""

    clock: tuple[torch.Tensor, ...]
    known: Array  # [G, S, d]
    weights: Array  # [G, S, S]
    name: Callable[[], str]
    mass: MassMatrix | None = None  # mass · u in place of u on the left

    def states(self, slopes: Array, near: Array) -> Array:
        """Return the states with these slopes; components without a derivative stay as they are in `near`."""
        integrals = self.known + self.weights @ slopes
        return integrals if self.mass is None else self.mass.completed(integrals, near)

    def residual(self, states: Array, slopes: Array) -> Array:
        left = states if self.mass is None else self.mass.times(states)
        return left - (self.known + self.weights @ slopes)

    def derivatives(self, values: Array) -> Array:
        """Return values with zeros in the rows of constraints, whose unit is not that of any state."""
        return values if self.mass is None else self.mass.derivatives(values)

    def detached(self) -> "System":
        if not isinstance(self.known, torch.Tensor):
            return self
        return replace(self, known=self.known.detach(), weights=self.weights.detach())


class CoupledSolver:
    """Solves the systems of one problem, one after the other; a Jacobian serves as many of them as it can.

    `enough` says, for states, which change of each component is small enough to end with; without it, it is rounding.
    `noise` is that of func's values for each component, [G, d], where it is known: changes that come of it end an
    iteration. `acceptable` are changes that do where rounding keeps them from becoming smaller. After a solve, `moving`
    says by how much the states still moved when func's noise stopped the iteration, [G, d]; None where it converged.
    `is_stiff` says that an iteration without a matrix has failed.
    """

    def __init__(self, problem: Problem, max_iterations: int) -> None:
        self.problem, self._max_iterations = problem, max_iterations
        self.enough: Callable[[Array], Array] | None = None
        self.noise: Array | None = None
        self.acceptable: Callable[[Array], Array] | None = None
        self.moving: Array | None = None
        self._kind: Any = None  # of matrix: `Dense`, or `OnePoint` where there are many components
        self._jacobians: Any = None  # as that kind has them
        self._linear: Any = None  # of that kind, that of the last system, where there is one
        self._at_solution = self.is_stiff = self._diverged = False
        self._n_failed = 0
        self.kept: dict[str, Any] = {}  # factors for systems to come, by what these are
        self._dtype = problem.value.dtype
        self._epsilon, self._tiny = torch.finfo(self._dtype).eps, torch.finfo(self._dtype).tiny

    def solve(self, system: System, guess: Array, *, close: bool = False) -> tuple[Array, Array]:
        """States and slopes [G, S, d], attached to the graph of what they depend on; from states that are guessed.

        A guess that is `close` is worth new Jacobians, the more so as the derivatives need them at the solution.
        """
        self.moving = self._linear = None
        transformed = being_transformed()
        wanted = torch.is_grad_enabled() or transformed
        unknowns = math.prod(system.known.shape)
        small = unknowns <= SMALL or transformed or system.mass is not None
        by_shifts = not small and len(system.weights) == 1
        dense = small or (self.is_stiff and not by_shifts)
        with torch.no_grad():
            if not small and not self.is_stiff:
                try:
                    # A few iterations are quicker than a matrix, where one can be had.
                    few = self.enough is not None and unknowns <= DENSE
                    found = self._iterated(system.detached(), guess, _FEW if few else self._max_iterations)
                except NotConvergedError:
                    # One that only takes too long may do for a shorter panel; not where that happens again and again.
                    self._n_failed += 1
                    if unknowns > DENSE and not (by_shifts and (self._diverged or self._n_failed >= _FAILURES)):
                        raise
                    self.is_stiff, dense = True, not by_shifts
            if self.is_stiff and not dense:
                from fracdnn.solver.shifted import OnePoint  # late, since SciPy's factors take long to import

                try:
                    found = self._newton(OnePoint, system.detached(), guess)
                except NotConvergedError:
                    if self.enough or unknowns > DENSE:  # a search tries a shorter panel
                        raise
                    dense = True
            if dense:
                found = self._by_newton(system, guess, in_numpy=not transformed, always_anew=close and wanted)
        if not wanted:
            return found
        if system.mass is not None:
            states = self._attached(system, *found)
            return states, system.derivatives(self.problem.slopes(system.clock, states))
        slopes = (self._attached if dense else self._attached_by_iteration)(system, *found)
        return system.states(slopes, found[0]), slopes

    def after(self, residual: Array) -> Array:
        """What states [G, S, d] become of such a residual of the last system's equations: less of it in a stiff one."""
        return residual if self._linear is None else self._linear.solve(residual)

    def keep(self, kept: dict[str, Any]) -> None:
        """The last system's factors, if they took long, for a solver that will solve it again."""
        if self._linear is not None and self._kind.is_costly:
            kept[_key(self._linear.weights)] = self._linear

    def calm_time(self, orders: Array, duration: float) -> float:
        """Return for how long, at most a duration, small changes of the last system's states do not grow.

        Jacobians that are not known count as calm.
        """
        if self._kind is not Dense or self._linear is None:
            return duration
        if isinstance(self._jacobians, torch.Tensor) and being_transformed():
            return duration
        ends, orders = as_numpy(self._jacobians[[0, -1]]), as_numpy(orders).reshape(-1)
        if self.problem.mass is not None:
            ends = self.problem.mass.without_constraints(ends)
        orders = np.repeat(orders, ends.shape[1] // len(orders))
        return float(calm_times(ends[None], orders[:, None], np.full((1, 1), duration))[0, 0])

    def note_noise(self, states: Array, time: torch.Tensor) -> None:
        """Tell the problem of states that func's noise kept moving; for the warning after a solve.

        Where changes are acceptable that a search for steps has judged, there is nothing to tell.
        """
        if self.moving is not None and self.acceptable is None:
            scale = as_numpy(sizes(states)).clip(min=np.finfo(float).tiny)
            self.problem.note_noise(float((as_numpy(self.moving) / scale).max()), time)

    def _by_newton(self, system: System, guess: Array, *, in_numpy: bool, always_anew: bool) -> tuple[Array, Array]:
        """In NumPy, which has less to do for each operation on few numbers, where that can be."""
        if not in_numpy or not isinstance(guess, torch.Tensor) or guess.device.type != "cpu":
            return self._newton(Dense, system.detached(), guess, always_anew=always_anew)
        with np.errstate(over="ignore", invalid="ignore"):
            apart = replace(system, known=as_numpy(system.known), weights=as_numpy(system.weights))
            states, slopes = self._newton(Dense, apart, as_numpy(guess), always_anew=always_anew)
        return as_tensor(states, self._dtype), as_tensor(slopes, self._dtype)

    def _newton(self, kind: Any, system: System, states: Array, *, always_anew: bool = False) -> tuple[Array, Array]:
        if self._kind is not kind:
            self._kind, self._jacobians = kind, None
        linear, mixing, anew, n_plain, n_jacobians = None, Mixing(), always_anew, 0, 0
        mass = () if system.mass is None else (system.mass,)
        progress, self._at_solution = Progress(_NEWTON_WINDOW), False
        if kind.is_costly and self.kept:
            linear = self.kept.pop(_key(system.weights), None)
            self._jacobians = self._jacobians if linear is None else linear.jacobian
        for _ in range(self._max_iterations):
            if anew or self._jacobians is None:
                slopes, self._jacobians = kind.jacobians(self, system.clock, states)
                linear, mixing, anew = None, Mixing(), True
            else:
                slopes = self.slopes(system.clock, states)
            linear = linear or kind(system.weights, self._jacobians, *mass)
            residual = system.residual(states, slopes)
            change = linear.solve(residual)
            if not is_finite(change):
                # The Jacobian may be infinite at the guess: the plain iteration moves away from there.
                n_plain += anew
                if n_plain > _MAX_PLAIN or (n_plain and not is_finite(slopes)):
                    break
                states = system.states(slopes, states) if anew else states
                anew, self._jacobians = True, None
                continue
            rate, goal = progress.note(change), self._goal(system, states)
            # To a small change belongs a small residual, unless func is steep: then its slopes are not yet known.
            short = rate * progress.length <= goal
            residual = residual if system.mass is None else system.mass.derivatives(residual)
            done = short & (rate * sizes(residual) <= goal)
            ends = bool(done.all())
            # Whether a component is left that needs other Jacobians, or too many iterations.
            needs_more = (rate > _SLOW) | (rate**_PATIENCE * progress.length > goal)
            slow = not progress.begins and bool((~done & needs_more).any())
            hopeless = slow and (anew or kind.is_costly)
            if not ends and (hopeless or bool(short.all())):
                rounding = self._rounded(system, states, abs(slopes) + linear.times_sizes(states))
                done |= short & (sizes(residual) <= sizes(rounding))
                if hopeless:
                    moved = linear.moved(residual, rounding)
                    done |= progress.length <= library(states).minimum(moved, _LARGEST * sizes(states))
                    if anew and self.acceptable is not None:
                        done |= progress.length <= self.acceptable(states)
                ends = bool(done.all())
            if ends or progress.is_stuck(done, states):
                self.moving = None if ends else library(states).where(done, 0.0, progress.length)
                self._linear = linear
                self._at_solution = anew and bool((progress.length <= _SAME * sizes(states)).all())
                # To first order the slopes at the new states; with them, the equation holds.
                return states - change, system.derivatives(slopes - linear.times(change))
            damped, n_jacobians = system.mass is not None, n_jacobians + anew
            # A search tries a shorter step.
            if self.enough and not damped and (n_jacobians > _MAX_JACOBIANS or progress.stalls(done)):
                break
            states = self._damped(system, linear, states, change) if damped else mixing.next(states - change, -change)
            anew = always_anew or (slow and not (anew and kind.is_costly))
        self._jacobians = None
        raise self._not_converged(system, progress.largest)

    def _damped(self, system: System, linear: Any, states: Array, change: Array) -> Array:
        """Return the next iterate: the longest part of Newton's step after which the next step is shorter."""
        unit, part, trial = (sizes(states) + sizes(change)).clip(min=self._tiny)[:, None], 1.0, states - change
        while part > _SHORTEST_PART:
            next_change = linear.solve(system.residual(trial, self.slopes(system.clock, trial)))
            if norm(next_change / unit) <= (1.0 - 0.25 * part) * norm(change / unit):
                break
            part *= 0.25
            trial = states - part * change
        return trial

    def _iterated(self, system: System, states: Array, most: int) -> tuple[Array, Array]:
        mixing, progress = Mixing(), Progress(_WINDOW)
        for _ in range(most * (1 if self.enough else _LONGER)):  # a search would take shorter panels
            slopes = self.slopes(system.clock, states)
            image = system.states(slopes, states)
            change = image - states
            if not is_finite(change):
                break
            rate, goal = progress.note(change), self._goal(system, states)
            done = rate * progress.length <= goal
            if not bool(done.all()) and not progress.begins and bool((~done & (rate > _SLOW)).any()):
                done |= progress.length <= sizes(self._rounded(system, states, abs(slopes)))
            ends = bool(done.all())
            stuck = not ends and progress.is_stuck(done, states)
            if stuck and math.prod(states.shape) <= DENSE:
                break  # a matrix will tell whether that is noise
            if ends or stuck:
                self.moving = None if ends else library(states).where(done, 0.0, progress.length)
                return image, slopes
            states = mixing.next(image, change)
        self._diverged = not is_finite(change) or progress.grew
        raise self._not_converged(system, progress.largest)

    def _goal(self, system: System, states: Array) -> Array:
        """The change to end with, [G, d]."""
        goal = 8.0 * self._epsilon * sizes(states) if self.enough is None else self.enough(states)
        if self.noise is not None:
            noise = as_kind(self.noise, states)[:, None]
            goal = goal + sizes(library(states).sum(abs(system.weights), 2)[..., None] * noise)
        return goal.clip(min=self._tiny)

    def _rounded(self, system: System, states: Array, slopes: Array) -> Array:
        """What rounding may leave of all that is added up in an equation, for slopes of such sizes; [G, S, d]."""
        return _ROUNDINGS * self._epsilon * (abs(states) + abs(system.known) + abs(system.weights) @ slopes)

    def _attached(self, system: System, states: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            if self._at_solution and self._jacobians is not None:
                jacobians = torch.as_tensor(self._jacobians).to(states.dtype)
            else:
                _, jacobians = Dense.jacobians(self, system.clock, states)
        if system.mass is not None:
            return attached_states(self.problem, system, states, jacobians)
        return attached_slopes(self.problem, system, slopes, jacobians)

    def _attached_by_iteration(self, system: System, states: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        apart, about = system.detached(), None if self._linear is None else self._linear.transposed()
        return attached_by_iteration(
            self.problem.slopes(system.clock, system.states(slopes, states)),
            slopes,
            lambda slopes: self.problem.slopes(system.clock, apart.states(slopes, states)),
            self._max_iterations * (_LONGER if about else _LONGEST),
            partial(self._not_converged, system),
            about,
        )

    def slopes(self, clock: tuple[torch.Tensor, ...], states: Array) -> Array:
        if isinstance(states, torch.Tensor):
            return self.problem.slopes(clock, states)
        return self.problem.slopes(clock, as_tensor(states, self._dtype), transformed=False).double().numpy()

    def _not_converged(self, system: System, last: float) -> NotConvergedError:
        remedy = "use shorter steps (n_steps=, or grid=Adaptive(max_step=…)), or check that func is smooth there"
        if self.acceptable is not None:  # a search has found steps, only the derivatives fail
            remedy = "a gradient needs a func that is smooth there: make it so, or solve under torch.no_grad()"
        elif len(system.weights) > 1 and math.prod(system.known.shape) > DENSE:
            most = DENSE // system.known.shape[1]
            remedy += f"; with several orders a stiff func needs a state of at most {most} components"
        return NotConvergedError(
            f"the iteration did not converge {system.name()}: the last change is {last:.3g}; {remedy}"
        )


def calm_times(jacobians: Any, orders: Any, durations: Any) -> Any:
    """Return for how long, at most durations [B, 1], no mode of NumPy's Jacobians [B, E, n, n] grows; [B, 1].

    Orders, of the components, are [n, 1], or [B, 1, 1] of samples.
    """
    largest = orders.max((-2, -1)) * np.ones(len(jacobians))
    for _ in range(_MAX_CALM_TRIES):
        grow = _have_growing_modes((durations[..., None] ** orders)[:, None] * jacobians, largest)
        if not grow.any():
            break
        durations = np.where(grow[:, None], durations / _CALM_RATIO, durations)
    return durations


@np.errstate(over="ignore", invalid="ignore")
def _have_growing_modes(matrices: Any, orders: Any) -> Any:
    """Which of NumPy's Jacobians [B, E, n, n], each times duration^order, have a mode that grows; [B], for orders [B].

    A mode of the eigenvalue λ grows where |arg λ| < order · π/2, by exp(|λ|^(1/order) · duration) in the end.
    (Source: Matignon, "Stability results for fractional differential equations", 1996.)
    """
    bounds = abs(matrices).sum(-1).max((1, 2), initial=0.0)  # of the modes
    least = _GROWING**orders
    may = (bounds > least) & (bounds < math.inf) & (matrices.shape[-1] <= _MOST_MODES)
    modes = np.linalg.eigvals(matrices[may])
    grow = (abs(np.angle(modes)) < 0.5 * math.pi * orders[may, None, None]) & (abs(modes) > least[may, None, None])
    may[may] = grow.any((1, 2))
    return may


def _key(weights: Array) -> str:
    return f"{float(weights.sum()):.9e}"  # the same for the same weights, but for rounding
