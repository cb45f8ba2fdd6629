"""Collocation in panels: the slope is a polynomial on each, the solution its integral, to any order of accuracy.

On a panel [a, a + h] the slopes at Radau's points c_1 < … < c_m = 1 define a polynomial of degree m − 1, and

    u(t) = u_0 + ∫_a^t (t − s)^(γ−1)/Γ(γ) p(s) ds + the same over all panels before

holds at the points: a system for their states, implicit. The integral over the own panel is known in closed form (a
fractional integral of Legendre's polynomials is a Jacobi polynomial times a power), over the panel before by Gauss's
rule, refined toward the point, and over all others through modes (`fracdnn.caputo.modes`), which a panel advances.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from fracdnn.caputo.modes import Modes
from fracdnn.caputo.weights import gamma
from fracdnn.tracing import outside_of_modes

# Gauss's rule for the panel before: so many parts, each a quarter of the one before, with so many points.
_PARTS, _PART_POINTS = 8, 12


@dataclass(frozen=True)
class Points:
    """m points of a panel [0, 1], the last at its end, and what interpolates there."""

    places: torch.Tensor  # [m]
    to_legendre: torch.Tensor  # [m, m]: values at the points to coefficients of P_0, …, P_{m−1}(2x − 1)
    fine: torch.Tensor  # [Q]: quadrature points for a panel seen from later ones
    fine_weights: torch.Tensor  # [Q]
    at_fine: torch.Tensor  # [Q, m]: values at the points to those at the quadrature's

    @property
    def count(self) -> int:
        """M."""
        return len(self.places)

    def own_weights(self, orders: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """[G, R, m]: ∫_0^x (x − s)^(γ−1)/Γ(γ) p(s) ds at places x [R] of a panel of length 1, by the values of p."""
        order, x = orders.view(-1, 1, 1), places.unsqueeze(-1)
        degree = torch.arange(self.count, dtype=torch.float64, device=orders.device)
        scale = gamma(degree + 1.0) / gamma(degree + 1.0 + order)
        powers = torch.where(x > 0, torch.where(x > 0, x, 1.0) ** order, 0.0)
        return (powers * scale * _jacobi(orders, places, self.count)) @ self.to_legendre

    def values_at(self, places: torch.Tensor) -> torch.Tensor:
        """[R, m]: values at the points to those of their polynomial at places [R]."""
        x = 2.0 * places - 1.0
        found = [torch.ones_like(x), x]
        for n in range(2, self.count):
            found.append(((2.0 * n - 1.0) * x * found[-1] - (n - 1.0) * found[-2]) / n)
        return torch.stack(found[: self.count], dim=-1) @ self.to_legendre

    def later_weights(self, orders: torch.Tensor, distance: torch.Tensor) -> torch.Tensor:
        """[G, R, m]: the same over the whole panel of length 1, seen from distances [R] > 0 after its end."""
        gap = distance.unsqueeze(-1) + (1.0 - self.fine)
        order = orders.view(-1, 1, 1)
        kernel = torch.exp((order - 1.0) * torch.log(gap) - torch.lgamma(order))
        return (kernel * self.fine_weights) @ self.at_fine

    def absorbed(self, modes: Modes, length: torch.Tensor) -> torch.Tensor:
        """[K + 1, m]: what a panel adds to the modes at its end."""
        rest = length * (1.0 - self.fine)
        seen = torch.cat([torch.exp(-modes.rates.unsqueeze(-1) * rest), rest.unsqueeze(0)])
        return (seen * (length * self.fine_weights)) @ self.at_fine

    def to(self, device: torch.device) -> "Points":
        """The same on a device."""
        return Points(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))


@lru_cache(maxsize=32)
def points(count: int) -> Points:
    """Radau's points."""
    return outside_of_modes(lambda: _made(count))


def _made(count: int) -> Points:
    from scipy.special import roots_jacobi  # takes long to import

    legendre = np.polynomial.legendre
    # The roots of P_m − P_{m−1}: 1, and those of a Jacobi polynomial.
    inner = roots_jacobi(count - 1, 1.0, 0.0)[0] if count > 1 else np.zeros(0)
    places = np.append(inner, 1.0)
    to_legendre = np.linalg.inv(legendre.legvander(places, count - 1))
    base, weights = legendre.leggauss(_PART_POINTS)
    ends = np.concatenate([[0.0], 1.0 - 0.25 ** np.arange(1, _PARTS), [1.0]])
    half = np.diff(ends) / 2.0
    fine = (ends[:-1, None] + half[:, None] * (1.0 + base)).ravel()
    at_fine = legendre.legvander(2.0 * fine - 1.0, count - 1) @ to_legendre
    arrays = ((places + 1.0) / 2.0, to_legendre, fine, (half[:, None] * weights).ravel(), at_fine)
    return Points(*map(torch.from_numpy, arrays))


def _jacobi(orders: torch.Tensor, places: torch.Tensor, count: int) -> torch.Tensor:
    """[G, R, count]: P_k^(−γ, γ)(2x − 1) for k = 0, …, count − 1, by their recurrence."""
    a, b = -orders.view(-1, 1), orders.view(-1, 1)
    x = 2.0 * places - 1.0
    found = [torch.ones_like(a * x), (a + 1.0) + (a + b + 2.0) * (x - 1.0) / 2.0]
    for n in range(2, count):
        # a + b = 0 throughout.
        first = 2.0 * n * n * (2.0 * n - 2.0)
        second = (2.0 * n - 1.0) * ((2.0 * n) * (2.0 * n - 2.0) * x + a * a - b * b)
        third = 2.0 * (n + a - 1.0) * (n + b - 1.0) * (2.0 * n)
        found.append((second * found[-1] - third * found[-2]) / first)
    return torch.stack(found[:count], dim=-1)
