"""Fit a model to measurements: lmfit's least squares with exact derivatives, then intervals and a verdict."""

import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats

from fracdnn.extras import require
from fracdnn.fitting.fit_result import ROUNDING, FitResult, SetResult
from fracdnn.fitting.measurements import DataSet, data_sets
from fracdnn.fitting.misfit import Misfit
from fracdnn.fitting.profiles import BetterFitError, Profile, Profiler
from fracdnn.fitting.start_values import start_parameters, start_points
from fracdnn.fitting.verdict import verdict
from fracdnn.validation import check_choice, check_count, check_flag

LOSSES = ("linear", "soft_l1", "huber", "cauchy")
# Rounds in which the noise of several data sets is estimated; how often a profile may find a better fit.
_ROUNDS, _RESTARTS = 8, 3
# Singular values of the scaled Jacobian, in parts of the largest, below which data say nothing.
_SINGULAR = 1e-9
# Of a deviation: where a robust loss begins to bend, in standard deviations; Huber's 95 % efficiency.
_BEND = 1.345


def fit(
    model: Any,
    parameters: Any,
    t: Any,
    data: Any,
    sigma: Any = None,
    *,
    absolute_sigma: bool | None = None,
    loss: str = "linear",
    n_starts: int = 1,
    intervals: bool = True,
    max_iter: int = 300,
    random_state: int | np.random.Generator | None = None,
    verbose: bool = False,
) -> FitResult:
    """The parameters of `model(t, **parameters)` that fit `data` best, with uncertainty; a `FitResult`.

    `model` is any function of torch, `fdeint` or a `Circuit` inside of it; derivatives are exact. `parameters` are
    start values by name: a number, (start, low, high), an expression such as "2 * rate" of other parameters, or a dict
    for `lmfit.Parameter`, {"value": 0.5, "vary": False} to fix one. `t` [n] are times or frequencies, `data` [n, ...]
    real or complex.

    `sigma` are the data's standard deviations: one number, one for each value, or "modulus", proportional to |data|.
    Without them (or with absolute_sigma=False, the default for "modulus") their size is estimated from the residuals.
    Several data sets: lists of models, t, data and sigma; parameters are shared by name, each model takes those in its
    signature; without sigma the noise of each set is estimated.

    `loss` other than "linear" bends large residuals: "soft_l1", "huber", "cauchy"; intervals are then estimate
    ± 1.96 standard errors, of the sandwich formula. `n_starts` fits from further random points, and keeps the best.
    Ctrl-C keeps the best so far. Cost: one Jacobian for each iteration, about 10 fits for each parameter's interval.
    """
    require("lmfit")
    began = time.perf_counter()
    check_choice(loss, "loss", LOSSES)
    sets = data_sets(model, t, data, sigma)
    if absolute_sigma is None:
        given = sigma if isinstance(sigma, list | tuple) else [sigma]
        absolute_sigma = not any(each is None or isinstance(each, str) for each in given)
    check_flag(absolute_sigma, "absolute_sigma")
    misfit = Misfit(sets, start_parameters(parameters))
    misfit.verbose = check_flag(verbose, "verbose")
    starts = list(start_points(misfit.start, check_count(n_starts, "n_starts", minimum=1), random_state))
    search = _Search(misfit, starts, loss, relative=not absolute_sigma, has_sigma=sigma is not None)
    search.max_iter = check_count(max_iter, "max_iter", minimum=1)
    profiles: dict[str, Profile] = {}
    try:
        search.run()
        if check_flag(intervals, "intervals") and loss == "linear" and not search.exact():
            profiles = search.profiles()
    except KeyboardInterrupt:
        search.interrupted = True
    if verbose:
        print(file=sys.stderr)
        misfit.verbose = False
    return search.result(profiles, time.perf_counter() - began)


class _Search:
    """The state of a fit: what was found so far."""

    def __init__(self, misfit: Misfit, starts: list[dict], loss: str, *, relative: bool, has_sigma: bool) -> None:
        self.misfit, self._starts, self._loss, self.max_iter = misfit, starts, loss, 1
        self._relative, self._has_sigma = relative, has_sigma
        self._weighs = not has_sigma and len(misfit.sets) > 1
        self.interrupted, self.converged, self.n_agree = False, False, 0
        self.scale, self._cost, self.found = 1.0, np.inf, None

    def run(self) -> None:
        """From all starts; then with the noise that was found, where it matters."""
        costs = []
        for place, start in enumerate(self._starts):
            self.misfit.stage = f"start {place + 1} of {len(self._starts)}"
            costs.append(self._minimize(start, "linear"))
        self.n_agree = sum(cost <= 1.001 * min(costs) + 1e-300 for cost in costs)
        for _ in range(_ROUNDS if self._weighs and not self.exact() else 0):
            if self._reweigh() < 0.01:
                break
        if self._loss != "linear":
            deviation = 1.4826 * np.median(np.abs(self.misfit.residual(self.misfit.best[1])))
            self.scale = _BEND * (deviation if self._relative else 1.0) or 1.0
            self._minimize(self._best_point(), self._loss)

    def exact(self) -> bool:
        """Whether the model meets the data to rounding; there are no profiles to follow then."""
        if not self._relative or self.misfit.best[0] > self._rounding():
            return False
        self.converged = True
        return True

    def _rounding(self) -> float:
        """Of χ²."""
        return ROUNDING**2 * (
            sum(float((each.data / each.sigma).abs().square().sum()) for each in self.misfit.sets) or 1.0
        )

    def _best_point(self) -> dict[str, float]:
        return dict(zip(self.misfit.free, self.misfit.best[1], strict=True))

    def _minimize(self, start: dict[str, float], loss: str) -> float:
        """χ², or what a robust loss makes of it; keeps the best result, or with a robust loss the last."""
        from lmfit import Minimizer

        parameters = self.misfit.start.copy()
        for name, value in start.items():
            parameters[name].set(value=value)

        residual, jacobian, point = self.misfit.residual, self.misfit.jacobian, self.misfit.point
        if not np.isfinite(residual(point(parameters))).all():
            return np.inf
        minimizer = Minimizer(
            lambda given: residual(point(given)), parameters, nan_policy="propagate", max_nfev=self.max_iter
        )
        options = {"x_scale": "jac", "loss": loss, "f_scale": self.scale, "ftol": 1e-12, "xtol": 1e-12, "gtol": 1e-12}
        with np.errstate(all="ignore"):  # lmfit's own errors, which are not used
            found = minimizer.least_squares(jac=lambda given: jacobian(point(given)), **options)
        found.minimizer = minimizer
        if loss != "linear":
            self.misfit.best = (self.misfit.best[0], point(found.params))
        # lmfit tells no cost where it ran out of iterations.
        cost = 2.0 * float(getattr(found, "cost", 0.5 * np.sum(found.residual**2)))
        if loss != "linear" or self.found is None or cost <= self._cost:
            self.found, self._cost, self.converged = found, cost, bool(found.success) and not found.aborted
        return cost

    def _reweigh(self) -> float:
        """Divide each set's sigma by what its residuals say; the largest relative change."""
        total = sum(each.n_numbers for each in self.misfit.sets)
        changes, shares = [], self.misfit.split(self.misfit.residual(self.misfit.best[1]))
        for each, part in zip(self.misfit.sets, shares, strict=True):
            size = float(np.sqrt(np.mean(part**2) / (1.0 - len(self.misfit.free) / total))) or 1.0
            each.sigma = each.sigma * size
            changes.append(abs(size - 1.0))
        self.misfit.best, self.found = (np.inf, self.misfit.best[1]), None
        self._minimize(self._best_point(), "linear")
        return max(changes)

    def profiles(self) -> dict[str, Profile]:
        """Of all free parameters; where one finds a better fit, that is taken and they begin again."""
        for _ in range(_RESTARTS):
            numbers = self._numbers()
            found = {}
            try:
                profiler = Profiler(self.misfit, numbers.x, numbers.inverse, numbers.limit)
                for place, name in enumerate(self.misfit.free):
                    self.misfit.stage = f"interval of {name}"
                    found[name] = profiler.profile(place)
                return found
            except BetterFitError:
                self._minimize(self._best_point(), "linear")
        self.converged = False
        return {}

    def _numbers(self) -> "_Numbers":
        x = self.misfit.best[1]
        residual, jacobian = self.misfit.residual(x), self.misfit.jacobian(x)
        least = self._rounding() if self._relative else None
        return _Numbers.build(x, residual, jacobian, least, self._loss, self.scale)

    def _sigma(self, each: DataSet) -> np.ndarray | None:
        """None where all values count the same."""
        return each.sigma.numpy() if self._has_sigma or self._weighs else None

    def result(self, profiles: dict[str, Profile], seconds: float) -> FitResult:
        numbers = self._numbers()
        sets = self.misfit.sets
        point = torch.tensor(numbers.x, dtype=torch.float64)
        with torch.no_grad():
            values = self.misfit.parameters(point)
            predicted = [each.predicted(values).numpy() for each in sets]
        bands = self.misfit.split(numbers.band)
        derivatives = self.misfit.derivatives(numbers.x)
        variances = np.einsum("ij,jk,ik->i", derivatives, np.nan_to_num(numbers.covariance, posinf=1e300), derivatives)
        # Of products 0 · inf, and of parameters that data say nothing about.
        errors = np.where(variances > 1e200, np.inf, np.sqrt(np.maximum(variances, 0.0)))
        start = self.misfit.start
        found = FitResult(
            values={name: float(value) for name, value in values.items()},
            errors=dict(zip(start, map(float, errors), strict=True)),
            free=list(self.misfit.free),
            bounds={name: (float(each.min), float(each.max)) for name, each in start.items()},
            covariance=numbers.covariance,
            profiles=profiles,
            sets=[
                SetResult(each.t.numpy(), each.data.numpy(), fitted, self._sigma(each), _like(band, each))
                for each, fitted, band in zip(sets, predicted, bands, strict=True)
            ],
            absolute_sigma=not self._relative,
            estimated_noise=self._weighs,
            loss=self._loss,
            converged=self.converged,
            interrupted=self.interrupted,
            n_starts=(self.n_agree, len(self._starts)),
            n_evaluations=self.misfit.n_evaluations,
            seconds=seconds,
        )
        found.warnings = verdict(found, dict(zip(found.free, numbers.alone, strict=True)))
        found.lmfit, found.misfit = self.found, self.misfit
        return found


@dataclass
class _Numbers:
    """At the minimum: (JᵀJ)⁻¹, covariance, Δ of profiles, deviations of predictions, errors with all others held."""

    x: np.ndarray
    inverse: np.ndarray
    covariance: np.ndarray
    limit: float
    band: np.ndarray
    alone: np.ndarray

    @classmethod
    def build(
        cls, x: np.ndarray, residual: np.ndarray, jacobian: np.ndarray, least: float | None, loss: str, scale: float
    ) -> "_Numbers":
        """`least` is the χ² of rounding where the noise is estimated, None where it is known."""
        freedom, relative = len(residual) - len(x), least is not None
        variance = 1.0 if least is None else max(float(residual @ residual), least) / freedom
        inverse = inverse_of(jacobian)
        limit = variance * float(stats.f.ppf(0.95, 1, freedom)) if relative else float(stats.chi2.ppf(0.95, 1))
        covariance = inverse * variance
        if loss != "linear":
            covariance = _sandwich(residual / scale, jacobian, loss) * scale**2 * len(residual) / freedom
        known = np.nan_to_num(covariance, posinf=0.0)
        band = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", jacobian, known, jacobian), 0.0))
        with np.errstate(divide="ignore"):
            alone = np.sqrt(variance) / np.linalg.norm(jacobian, axis=0)
        return cls(x, inverse, covariance, max(limit, 1e-300), band, alone)


def inverse_of(jacobian: np.ndarray) -> np.ndarray:
    """(JᵀJ)⁻¹; infinite variances, and correlations that are NaN, for parameters that the data say nothing about."""
    sizes = np.linalg.norm(jacobian, axis=0)
    scaled = jacobian / np.where(sizes > 0, sizes, 1.0)
    _, singular, directions = np.linalg.svd(scaled, full_matrices=False)
    good = singular > _SINGULAR * singular[0]
    part = directions[good] / singular[good, None]
    inverse = part.T @ part / np.outer(np.where(sizes > 0, sizes, 1.0), np.where(sizes > 0, sizes, 1.0))
    lost = (np.abs(directions[~good]) > 1e-3).any(axis=0) | (sizes == 0)
    inverse[lost, :] = inverse[:, lost] = np.nan
    inverse[lost, lost] = np.inf
    return inverse


def _sandwich(u: np.ndarray, jacobian: np.ndarray, loss: str) -> np.ndarray:
    """H⁻¹ (Σ ψ² j jᵀ) H⁻¹ of an M-estimator, with ψ = ρ′(u²) u in units of the residuals."""
    z = u**2
    slope, second = {
        "soft_l1": ((1 + z) ** -0.5, -0.5 * (1 + z) ** -1.5),
        "huber": (
            np.where(z <= 1, 1.0, np.maximum(z, 1) ** -0.5),
            np.where(z <= 1, 0.0, -0.5 * np.maximum(z, 1) ** -1.5),
        ),
        "cauchy": (1 / (1 + z), -1 / (1 + z) ** 2),
    }[loss]
    curvature = np.maximum(slope + 2 * second * z, 1e-6)
    half = inverse_of(np.sqrt(curvature)[:, None] * jacobian)
    known, scores = np.nan_to_num(half, posinf=0.0), (slope * u)[:, None] * jacobian
    return np.where(np.isfinite(half), known @ scores.T @ scores @ known, half)


def _like(row: np.ndarray, each: DataSet) -> np.ndarray:
    """Numbers of `flat` in the shape and units of the data."""
    sigma = each.sigma.numpy()
    if not each.data.is_complex():
        return row.reshape(sigma.shape) * sigma
    real, imaginary = np.split(row, 2)
    return (real + 1j * imaginary).reshape(sigma.shape) * sigma
