"""Collocation in panels: the slope is a polynomial on each, the solution its integral, to any order of accuracy.

On a panel [a, a + h] the slopes at Radau's points c_1 < … < c_m = 1 define a polynomial of degree m − 1, and

    u(t) = u_0 + ∫_a^t (t − s)^(γ−1)/Γ(γ) p(s) ds + the same over all panels before

holds at the points: a system for their states, implicit. The integral over the own panel is known in closed form (a
fractional integral of Legendre's polynomials is a Jacobi polynomial times a power), over the panel before by Gauss's
rule, refined toward the point, and over all others through modes (`fracdnn.caputo.modes`), which a panel advances.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from fracdnn.caputo.modes import Modes, kernel_modes
from fracdnn.caputo.weights import gamma
from fracdnn.solver.arrays import Array, as_numpy, cast, library, norm
from fracdnn.tracing import outside_of_modes

# Gauss's rule for the panel before: so many parts, each a quarter of the one before, with so many points.
_PARTS, _PART_POINTS = 8, 12
# Rates, in half lengths of a panel, up to which moments of modes come by a recurrence downward, and its further terms.
_SLOW_RATE, _MORE_TERMS = 15.0, 14
MODES_TOLERANCE = 1e-12
_NEAR = 1e-3  # distances after a panel, in its lengths, for which that rule is not fine enough
_CACHED = 16384  # numbers that are best computed with at a time
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True)
class Points:
    """m points of a panel [0, 1], the last at its end, and what interpolates there; arrays of either kind."""

    places: Array  # [m]
    to_legendre: Array  # [m, m]: values at the points to coefficients of P_0, …, P_{m−1}(2x − 1)
    fine: Array  # [Q]: quadrature points for a panel seen from later ones
    fine_weights: Array  # [Q]
    at_fine: Array  # [Q, m]: values at the points to those at the quadrature's

    def values_at(self, places: Array) -> Array:
        """[R, m]: values at the points to those of their polynomial at places [R]."""
        return _jacobi(places, len(self.places)) @ self.to_legendre

    def absorbed(self, rates: Array, length: Array, slopes: Array) -> Array:
        """[G, K + 1, d]: what a panel with slopes [G, m, d] of float64 adds to the modes at its end."""
        x, coefficients = rates * length, self.to_legendre @ slopes
        if x.ndim == 1:
            fresh = exponential_moments(x, len(self.places)) @ coefficients
        else:  # on a CPU in parts that its caches hold
            rows = max(_CACHED // len(rates), 1) if x.device.type == "cpu" else len(x)
            parts = zip(x.split(rows), coefficients.split(rows), strict=True)
            fresh = torch.cat([exponential_moments(each, len(self.places)) @ own for each, own in parts])
        duration = length[..., None]
        of_t = duration * (coefficients[:, :1] / 2.0 - coefficients[:, 1:2].sum(1)[:, None] / 6.0)
        return duration * library(fresh).concatenate([fresh, of_t], axis=1)

    def tail(self, values: Array) -> Array:
        """What their polynomial misses, by the last Legendre coefficients and how they decay; [G, d] for [G, m, d].

        Two of them, since one may be small by chance, next to a jump or by symmetry.
        """
        values = cast(values, self.to_legendre)
        if len(self.places) < 4:
            return abs(self.to_legendre[-1:] @ values)[:, 0]
        sizes = abs(self.to_legendre[-4:] @ values)
        before, last = library(values).amax(sizes.reshape(len(sizes), 2, 2, -1), 2).swapaxes(0, 1)
        return last * ((last / before.clip(min=_TINY)) ** 0.5).clip(max=1.0)

    def on(self, device: torch.device) -> "Points":
        return self if self.places.device == device else self.each(lambda array: array.to(device))

    def each(self, made: Callable[[Array], Array]) -> "Points":
        return Points(*(made(getattr(self, name)) for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Weights:
    """All that panels of some orders, with m points, are integrated by; arrays of either kind."""

    points: Points
    orders: Array  # [G, 1, 1]
    log_gamma: Array  # of them
    scale: Array  # [G, 1, m]: Γ(n + 1) / Γ(n + 1 + γ)
    own: Array  # [G, m, m], of a panel of length 1
    rates: Array  # [K], of the kernel's modes
    of_modes: Array  # [G, K + 1]

    @classmethod
    def of(cls, orders: torch.Tensor, count: int, modes: Modes) -> "Weights":
        chosen, modes, each = points(count).on(orders.device), modes.to(orders.device), orders.view(-1, 1, 1)
        degree = torch.arange(1, count + 1, dtype=torch.float64, device=orders.device)
        scale = gamma(degree) / gamma(degree + each)
        weights = cls(chosen, each, torch.lgamma(each), scale, None, modes.rates, modes.weights(orders))
        return replace(weights, own=weights.own_at(chosen.places))

    def numpy(self) -> "Weights":
        arrays = (self.orders, self.log_gamma, self.scale, self.own, self.rates, self.of_modes)
        return Weights(self.points.each(as_numpy), *map(as_numpy, arrays))

    def own_at(self, places: Array) -> Array:
        """[G, R, m]: ∫_0^x (x − s)^(γ−1)/Γ(γ) p(s) ds at places x of a panel of length 1, [R] or [G, R]."""
        of, x = library(places), places[..., None]
        powers = of.where(x > 0, of.where(x > 0, x, 1.0) ** self.orders, 0.0)
        polynomials = _jacobi(places, len(self.points.places), self.orders[..., 0])
        return (powers * self.scale * polynomials) @ self.points.to_legendre

    def later(self, distance: Array) -> Array:
        """[G, R, m]: ∫_0^1 of kernel and p by the values of p, seen from distances [R] or [G, R] > 0 after a panel."""
        of, points, gap = library(distance), self.points, distance[..., None] + (1.0 - self.points.fine)
        kernel = of.exp((self.orders - 1.0) * of.log(gap) - self.log_gamma)
        weights = (kernel * points.fine_weights) @ points.at_fine
        near = distance < _NEAR
        if not bool(near.any()):
            return weights
        close = self._later_by_continuation(of.where(near, distance, _NEAR))
        return of.where(near[..., None], close, weights)

    def _later_by_continuation(self, distance: Array) -> Array:
        """For distances too short for quadrature: in closed form, as ∫_0^{1+d} − ∫_1^{1+d} of p continued."""
        whole, at_end = self.own_at(1.0 + distance), self.own_at(self.points.places[-1:])  # the latter is [G, 1, m]
        continued = self.points.values_at(1.0 + distance[..., None] * self.points.places)  # [R, m, m]
        return whole - distance[..., None] ** self.orders * (at_end[:, None] @ continued).squeeze(-2)


@lru_cache(maxsize=32)
def constant_weights(orders: tuple[float, ...], count: int, shortest: float, longest: float) -> Weights:
    """Of NumPy's arrays, for panels not shorter than one length on a grid not longer than another."""

    def made() -> Weights:
        modes = kernel_modes(shortest, longest, MODES_TOLERANCE)
        return Weights.of(torch.tensor(orders, dtype=torch.float64), count, modes).numpy()

    return outside_of_modes(made)


@lru_cache(maxsize=32)
def points(count: int) -> Points:
    return outside_of_modes(lambda: _made(count))


def exponential_moments(x: Array, count: int) -> Array:
    """[…, count]: ∫_0^1 e^(−x(1−s)) P_n(2s − 1) ds for x ≥ 0, Legendre's polynomials and n = 0, …, count − 1.

    That is e^(−z) i_n(z) with z = x/2 and the modified spherical Bessel functions: by ratios of neighbors, which a
    recurrence downward finds however wrong it begins, or for large z by the recurrence upward.
    """
    of = library(x)
    z = (x / 2.0).clip(max=_SLOW_RATE)
    last = count + _MORE_TERMS
    ratio, ratios = z / (last + ((last + 1.0) ** 2 + z * z) ** 0.5), []
    for n in range(last - 1, 0, -1):
        ratio = z / (2.0 * n + 1.0 + z * ratio)
        ratios.append(ratio)
    slow = [of.where(x > 0.0, -of.expm1(-2.0 * z) / of.where(x > 0.0, 2.0 * z, 1.0), 1.0)]
    for n in range(1, count):
        slow.append(slow[-1] * ratios[-n])
    slow = of.stack(slow, axis=-1)
    if norm(x) <= 2.0 * _SLOW_RATE:
        return slow
    z = (x / 2.0).clip(min=_SLOW_RATE)
    first = -of.expm1(-2.0 * z) / (2.0 * z)
    fast = [first, (1.0 + of.exp(-2.0 * z)) / (2.0 * z) - first / z]
    for n in range(1, count - 1):
        fast.append(fast[-2] - (2.0 * n + 1.0) / z * fast[-1])
    is_slow = (x <= 2.0 * _SLOW_RATE)[..., None]
    return of.where(is_slow, slow, of.stack(fast[:count], axis=-1))


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


def _jacobi(places: Array, count: int, order: Array = 0.0) -> Array:
    """[..., count]: P_k^(−γ, γ)(2x − 1) for k = 0, …, count − 1, by their recurrence; Legendre's where γ is 0."""
    x = 2.0 * places - 1.0
    found = [0.0 * (x - order) + 1.0, x - order]
    for n in range(2, count):
        found.append(((2.0 * n - 1.0) * x * found[-1] - (n - 1.0 - order * order / (n - 1.0)) * found[-2]) / n)
    return library(x).stack(found[:count], axis=-1)
