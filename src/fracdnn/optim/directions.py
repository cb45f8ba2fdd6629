"""Where to go: search directions from gradients, each a small state that learns from the steps taken.

`state` holds tensors and lists of them, so that it can be saved. Without one the direction is that of steepest descent,
unscaled: its first step needs a length. And how far: Armijo's rule, with backtracking by safeguarded interpolation
(Kelley 1999, section 3.2).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


class InverseHessian:
    """−H∇f with the full inverse-Hessian approximation of BFGS; O(n²) memory and work.

    H ← (I − ρ s yᵀ) H (I − ρ y sᵀ) + ρ s sᵀ, ρ = 1/(yᵀs), from H = I. If `scaled`, the first step is of unit size at
    most, and before the first update H becomes sᵀs/sᵀy · I (Nocedal & Wright, eq. 6.17; the longer of the two usual
    scales, since BFGS corrects too large an H faster).
    """

    names = frozenset({"matrix"})  # of what the state holds

    def __init__(self, *, scaled: bool = True) -> None:
        self.state: dict[str, Any] = {}
        self._scaled = scaled

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        return -(self.state["matrix"] @ gradient) if self.state else -gradient

    def update(self, step: torch.Tensor, gradient_change: torch.Tensor, curvature: float) -> None:
        """Learn from a step s that changed the gradient by y; its curvature sᵀy is positive."""
        if not self.state:
            scale = (step @ step) / curvature if self._scaled else step.new_ones(())
            self.state["matrix"] = torch.diag(scale.expand(step.numel())).contiguous()
        matrix = self.state["matrix"]
        image = matrix @ gradient_change
        rho = 1.0 / curvature
        inner = gradient_change @ image
        factor = rho * (1.0 + rho * (inner if inner.is_cuda else float(inner)))
        # The symmetric form of the update above, as one product of two columns and two rows: H is gone through once.
        correction = torch.add(step * (0.5 * factor), image, alpha=-rho)
        matrix.addmm_(torch.stack([step, correction]).T, torch.stack([correction, step]))

    def first_length(self, gradient: torch.Tensor, last: float | None) -> float:
        """How far to try first; `last` is the length of the step before."""
        return _unit_size(gradient) if self._scaled and not self.state else 1.0


class LimitedMemory:
    """−H∇f with H from the last `memory` steps by the two-loop recursion (Nocedal & Wright, Alg. 7.4).

    Without memory it is steepest descent, which first tries twice the last length.
    """

    def __init__(self, memory: int) -> None:
        self.state: dict[str, Any] = {}
        self.names = frozenset({"steps", "changes"} if memory else {})
        self._memory = memory

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        if not self.state:
            return -gradient
        q, weights = gradient.clone(), []
        pairs = list(zip(self.state["steps"], self.state["changes"], strict=True))
        for step, change in reversed(pairs):
            weight = (step @ q) / (step @ change)
            weights.append(weight)
            q -= weight * change
        step, change = pairs[-1]
        q *= (step @ change) / (change @ change)
        for (step, change), weight in zip(pairs, reversed(weights), strict=True):
            q += (weight - (change @ q) / (step @ change)) * step
        return -q

    def update(self, step: torch.Tensor, gradient_change: torch.Tensor, curvature: float) -> None:
        for name, latest in (("steps", step), ("changes", gradient_change)) if self._memory else ():
            self.state[name] = [*self.state.get(name, ()), latest][-self._memory :]

    def first_length(self, gradient: torch.Tensor, last: float | None) -> float:
        if not self._memory:
            return 1.0 if last is None else 2.0 * last
        return 1.0 if self.state else _unit_size(gradient)


def _unit_size(gradient: torch.Tensor) -> float:
    """The length of a step of unit size at most, for a direction of which no curvature is known."""
    return min(1.0, 1.0 / max(float(gradient.abs().sum()), 1e-30))


@dataclass(frozen=True)
class Armijo:
    """Accept a length t if f(x + td) ≤ f(x) + decrease · t · ⟨∇f, d⟩; else shorten it and try again.

    The next length minimizes the quadratic through f(x), the slope and the last trial (the cubic through one more trial
    from the third on), kept between `shortest` and `longest` times the last length. A trial that is not finite is
    cut to `shortest`.
    """

    decrease: float = 1e-4
    shortest: float = 0.1
    longest: float = 0.5
    max_trials: int = 20


def search(rule: Armijo, value: Callable[[float], float], start: float, slope: float, length: float) -> float | None:
    """An acceptable length for f(x + td) = value(t), f(x) = start, ⟨∇f, d⟩ = slope < 0, from a first guess, or None.

    Each trial calls `value` once, the last one with the length that is returned.
    """
    before: tuple[float, float] | None = None
    for _ in range(rule.max_trials):
        found = value(length)
        # Strictly below: for a tiny length the right-hand side rounds to the start itself.
        if math.isfinite(found) and found < start and found <= start + rule.decrease * length * slope:
            return length
        shorter = length * rule.shortest
        if math.isfinite(found):
            guess = _interpolate(start, slope, (length, found), before)
            before = (length, found)
            shorter = min(max(guess, length * rule.shortest), length * rule.longest)
        length = shorter
    return None


def _interpolate(start: float, slope: float, last: tuple[float, float], before: tuple[float, float] | None) -> float:
    """The minimizer of the quadratic, or of the cubic where two trials are known."""
    t, f = last
    quadratic = -slope * t * t / (2.0 * (f - start - slope * t))
    if before is None:
        return quadratic
    u, g = before
    first, second = (f - start - slope * t) / (t * t), (g - start - slope * u) / (u * u)
    a = (first - second) / (t - u)
    b = (u * -first + t * second) / (t - u)
    discriminant = b * b - 3.0 * a * slope
    if discriminant < 0.0:
        return quadratic
    root = math.sqrt(discriminant)
    # Two forms of one number; the first does not cancel where the cubic is all but a quadratic, with b > 0.
    return -slope / (b + root) if b > 0.0 else (root - b) / (3.0 * a) if a else quadratic
