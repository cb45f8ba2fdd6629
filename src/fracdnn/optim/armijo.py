"""How far to go: Armijo's rule with backtracking by safeguarded interpolation (Kelley 1999, section 3.2)."""

import math
from collections.abc import Callable
from dataclasses import dataclass


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
