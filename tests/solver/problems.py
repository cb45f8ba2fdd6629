"""Fractional initial value problems with known solutions, in many digits, and one that has none."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import mpmath
import torch

from tests.references import mittag_leffler


@dataclass(frozen=True)
class Problem:
    """d_t^order u = func(t, u) on [0, span], from u(0) = value and, for an order above 1, u'(0) = slope.

    `func` takes tensors and, where a solution is known, numbers of mpmath; `exact` takes the latter.
    """

    name: str
    func: Callable[[Any, Any], Any]
    value: float | tuple[float, ...]
    order: float | tuple[float, ...]
    span: float
    exact: Callable[[mpmath.mpf], mpmath.mpf] | None
    slope: float | None = None

    def start(self, dtype: torch.dtype = torch.float64) -> Any:
        """y0 as `fdeint` takes it."""
        value = torch.tensor(self.value, dtype=dtype)
        return value if self.slope is None else (value, torch.tensor(self.slope, dtype=dtype))

    def at(self, times: torch.Tensor) -> torch.Tensor:
        """The known solution, float64."""
        return torch.tensor([_exact(self, float(time)) for time in times], dtype=torch.float64)


@lru_cache(maxsize=4096)
def _exact(problem: Problem, time: float) -> float:
    if problem.exact is None:
        raise ValueError(f"no solution is known of {problem.name}")
    with mpmath.workdps(30):
        return float(problem.exact(mpmath.mpf(time)))


def power_sum(order: float) -> Problem:
    """P1 of Diethelm, Ford and Freed, 2004: smooth powers and t^order; not linear."""
    half = order / 2

    def func(t: Any, y: Any) -> Any:
        forcing = (
            40320 / math.gamma(9 - order) * t ** (8 - order)
            - 3 * math.gamma(5 + half) / math.gamma(5 - half) * t ** (4 - half)
            + 2.25 * math.gamma(order + 1)
        )
        return forcing + (1.5 * t**half - t**4) ** 3 - abs(y) ** 1.5

    return Problem(
        f"power sum, order {order}",
        func,
        0.0,
        order,
        1.0,
        lambda t: t**8 - 3 * t ** (4 + mpmath.mpf(half)) + 2.25 * t ** mpmath.mpf(order),
        slope=0.0 if order > 1 else None,
    )


def relaxation(rate: float) -> Problem:
    """P6: u = e^(rate² t) erfc(rate √t); of any stiffness."""
    return Problem(
        f"relaxation, rate {rate:g}",
        lambda t, y: -rate * y,
        1.0,
        0.5,
        1.0,
        lambda t: mpmath.exp(rate**2 * t) * mpmath.erfc(rate * mpmath.sqrt(t)),
    )


def charging(order: float = 1.8) -> Problem:
    """P7: u = t^order E_{order,order+1}(−t^order), from rest."""
    return Problem(
        f"charging, order {order}",
        lambda t, y: 1.0 - y,
        0.0,
        order,
        1.0,
        lambda t: t**order * mittag_leffler(-(t**order), order, order + 1),
        slope=0.0 if order > 1 else None,
    )


def parabola(order: float) -> Problem:
    """A smooth solution, u = t². Source: Diethelm, Ford, Freed, 2002."""
    return Problem(
        f"parabola, order {order}",
        lambda t, y: 2 / math.gamma(3 - order) * t ** (2 - order) + t**2 - y,
        0.0,
        order,
        1.0,
        lambda t: t**2,
        slope=0.0 if order > 1 else None,
    )


def oscillator(order: float = 1.5) -> Problem:
    """Damped by its memory alone. Source: Mainardi, "Fractional relaxation-oscillation", 1996."""
    return Problem(
        f"oscillator, order {order}",
        lambda t, y: -y,
        1.0,
        order,
        4.0,
        lambda t: mittag_leffler(-(t**order), order, 1) - 0.5 * t * mittag_leffler(-(t**order), order, 2),
        slope=-0.5,
    )


def _lorenz(t: Any, y: torch.Tensor) -> torch.Tensor:
    x, v, z = y.unbind(-1)
    return torch.stack([10.0 * (v - x), x * (28.0 - z) - v, x * v - 8.0 / 3.0 * z], dim=-1)


# Chaotic, with an order for each component. Source: Grigorenko, Grigorenko, "Chaotic dynamics of the fractional Lorenz
# system", 2003.
LORENZ = Problem("Lorenz", _lorenz, (1.0, 1.5, 20.0), (0.995, 0.99, 0.985), 1.0, None)

KNOWN = [
    *(power_sum(order) for order in (0.3, 0.5, 0.8, 1.25)),
    *(relaxation(rate) for rate in (1.0, 4.0, 1e4)),
    charging(),
    parabola(0.5),
    oscillator(),
]
