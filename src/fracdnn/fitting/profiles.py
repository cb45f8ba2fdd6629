"""95 % intervals by profile likelihood: how far a parameter can go while the others make up for it.

At each value of a parameter the others are fitted again. The interval ends where the sum of squares χ² exceeds its
minimum by Δ: 3.84 where sigma is known, else F₀.₉₅(1, n − p) χ²_min/(n − p). √((χ² − χ²_min)/Δ) is almost linear in the
parameter, 0 at the estimate and 1 at the end, so Brent's method finds it in a few fits.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import brentq, least_squares

from fracdnn.fitting.misfit import Misfit

# Fits for one end of an interval; standard errors after which a profile counts as flat; precision of an end, in parts
# of its distance; an excess from which on a fit is tried from elsewhere, too.
_MOST_FITS, _FAR, _CLOSE, _DOUBTFUL = 60, 100.0, 1e-3, 10.0
# Of its size, closer than which a parameter is at its bound.
_AT = 1e-6


@dataclass
class Profile:
    """Of one parameter: the ends of its interval, infinite where neither the data nor a bound sets one, and the values
    tried. `excess` are (χ² − χ²_min)/Δ at `values`; 1 is the limit.
    """

    low: float
    high: float
    values: list[float]
    excess: list[float]


class BetterFitError(Exception):
    """A profile went below the minimum; the misfit remembers where."""


class Profiler:
    """Profiles around the minimum x̂, where JᵀJ has the inverse `covariance`; `limit` is Δ."""

    def __init__(self, misfit: Misfit, x: np.ndarray, covariance: np.ndarray, limit: float) -> None:
        self._misfit, self._x, self._covariance, self._limit = misfit, x, covariance, limit
        self._least = float(np.sum(misfit.residual(x) ** 2))

    def profile(self, place: int) -> Profile:
        points = [(float(self._x[place]), 0.0)]
        low, high = (self._end(place, sign, points) for sign in (-1.0, 1.0))
        values, excess = (list(column) for column in zip(*sorted(points), strict=True))
        return Profile(low, high, values, excess)

    def _end(self, place: int, sign: float, points: list[tuple[float, float]]) -> float:
        """Where the excess is 1 on one side; the parameter's bound if that comes first, infinite if nowhere."""
        start = float(self._x[place])
        bound = float((self._misfit.lower if sign < 0 else self._misfit.upper)[place])
        unit, room = float(np.sqrt(self._limit * self._covariance[place, place])), abs(bound - start)
        if not np.isfinite(unit) or room <= _AT * abs(start):
            return bound
        # Of the other parameters, by this one: linear at first, then through the last fit inside.
        slope = np.nan_to_num(np.delete(self._covariance[:, place], place) / self._covariance[place, place])
        best = others = np.delete(self._x, place)

        @cache
        def beyond(distance: float) -> float:
            """√excess − 1, which is 0 where it is nearly so."""
            nonlocal slope, others
            if distance == 0.0:
                return -1.0
            excess, found = self._excess(place, sign * distance, slope, others)
            points.append((start + sign * distance, excess))
            root = float(np.sqrt(excess))
            if root < 1.0:
                others, slope = found, (found - best) / (sign * distance)
            return root - 1.0 if abs(root - 1.0) >= _CLOSE else 0.0

        inside, distance = 0.0, min(unit, room)
        while (excess := beyond(distance)) < 0.0:
            if distance >= room:
                return bound
            if distance > _FAR * unit:
                return sign * np.inf
            inside, distance = distance, min(room, distance * min(4.0, max(1.05, 1.0 / max(1.0 + excess, 0.25))))
        distance = brentq(beyond, inside, distance, xtol=1e-300, maxiter=_MOST_FITS, disp=False)
        return start + sign * distance

    def _excess(self, place: int, change: float, slope: np.ndarray, others: np.ndarray) -> tuple[float, np.ndarray]:
        """(χ² − χ²_min)/Δ with the parameter held that far from its best value; and the best values of the other ones.

        The fit starts on a line through earlier ones, or where that seems to fail from the last one inside.
        """
        value, best = self._x[place] + change, (np.inf, others)
        lower, upper, at_best = (np.delete(each, place) for each in (self._misfit.lower, self._misfit.upper, self._x))
        ftol = max(1e-10, min(1e-4, 1e-4 * self._limit / (self._least + 1e-300)))  # relative precision of χ²
        options = {"x_scale": "jac", "ftol": ftol, "xtol": 1e-9, "gtol": 1e-12, "max_nfev": 60}

        def residual(others: np.ndarray) -> np.ndarray:
            return self._misfit.residual(np.insert(others, place, value))

        def jacobian(others: np.ndarray) -> np.ndarray:
            return np.delete(self._misfit.jacobian(np.insert(others, place, value)), place, axis=1)

        line = at_best + slope * change
        for guess in [line, others] if bool(((line > lower) & (line < upper)).all()) else [others]:
            found = np.clip(guess, lower, upper)
            if len(found) and np.isfinite(residual(found)).all():  # else there is no model, as at a bound
                with np.errstate(all="ignore"):  # SciPy divides by the room to a bound
                    found = least_squares(residual, found, jacobian, (lower, upper), **options).x
            size = float(np.sum(residual(found) ** 2))
            size = size if np.isfinite(size) else 1e300
            if size < self._least - 1e-3 * self._limit:
                raise BetterFitError
            best = min(best, (max(0.0, size - self._least) / self._limit, found), key=lambda each: each[0])
            if best[0] < _DOUBTFUL:
                break
        return best
