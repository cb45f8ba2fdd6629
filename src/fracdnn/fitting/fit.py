"""Fit a model to measurements: lmfit's least squares with exact derivatives, then intervals and a verdict."""

import sys
import time
from typing import Any

import numpy as np
import torch
from scipy import stats

from fracdnn.fitting.arguments import start_points
from fracdnn.fitting.fit_result import ROUNDING, FitResult, SetResult
from fracdnn.fitting.misfit import Misfit
from fracdnn.fitting.profiles import BetterFitError, Profile, Profiler
from fracdnn.fitting.verdict import verdict
from fracdnn.validation import check_choice, check_count, check_flag

# Robust losses ρ(z) of squared residuals z, as SciPy defines them.
_RHO = {
    "soft_l1": lambda z: 2.0 * ((1.0 + z).sqrt() - 1.0),
    "huber": lambda z: torch.where(z <= 1.0, z, 2.0 * z.clamp(min=1.0).sqrt() - 1.0),
    "cauchy": torch.log1p,
}
LOSSES = ("linear", *_RHO)
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
    signature; the noise of each set without sigma, or with "modulus", is estimated.

    `loss` other than "linear" bends large residuals: "soft_l1", "huber", "cauchy"; intervals are then estimate
    ± 1.96 standard errors, of the sandwich formula. `n_starts` fits from further random points, and keeps the best.
    Ctrl-C keeps the best so far. Cost: one Jacobian for each iteration, about 10 fits for each parameter's interval.
    """
    began, misfit = time.perf_counter(), Misfit(model, parameters, t, data, sigma)
    if absolute_sigma is None:
        absolute_sigma = all(each.noise == "known" for each in misfit.sets)
    misfit.verbose = check_flag(verbose, "verbose")
    starts = start_points(
        [misfit.start[name] for name in misfit.free], check_count(n_starts, "n_starts", minimum=1), random_state
    )
    search = _Search(misfit, starts, check_choice(loss, "loss", LOSSES), check_count(max_iter, "max_iter", minimum=1))
    search.relative = not check_flag(absolute_sigma, "absolute_sigma")
    profiles: dict[str, Profile] = {}
    try:
        search.run()
        if check_flag(intervals, "intervals") and loss == "linear" and not search.exact():
            profiles = search.profiles()
    except KeyboardInterrupt:
        search.interrupted = True
    if misfit.verbose:
        print(file=sys.stderr)
        misfit.verbose = False
    return search.result(profiles, time.perf_counter() - began)


class _Search:
    def __init__(self, misfit: Misfit, starts: list[np.ndarray], loss: str, max_iter: int) -> None:
        self.misfit, self._starts, self._loss, self._max_iter = misfit, starts, loss, max_iter
        self.relative, self.interrupted, self.converged, self.n_agree = True, False, False, 0
        self.scale, self.found = 1.0, None

    @property
    def _weighs(self) -> bool:
        sets = self.misfit.sets
        return self.relative and len(sets) > 1 and any(each.noise != "known" for each in sets)

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
            self.scale = _BEND * (deviation if self.relative else 1.0) or 1.0
            self._minimize(self.misfit.best[1], self._loss)

    def exact(self) -> bool:
        """Whether the model meets the data to rounding; there are no profiles to follow then."""
        is_exact = self.relative and self.misfit.best[0] <= self._rounding()
        self.converged |= is_exact
        return is_exact

    def _rounding(self) -> float:
        size = sum(float((each.data / each.sigma).abs().square().sum()) for each in self.misfit.sets)
        return ROUNDING**2 * (size or 1.0)

    def _minimize(self, start: np.ndarray, loss: str) -> float:
        """χ² of the result. The best result is kept; with a robust loss the last."""
        from lmfit import Minimizer

        misfit, parameters = self.misfit, self.misfit.start.copy()
        for name, value in zip(misfit.free, start.tolist(), strict=True):
            parameters[name].set(value=value)
        if not np.isfinite(misfit.residual(misfit.point(parameters))).all():
            return np.inf
        minimizer = Minimizer(
            lambda given: misfit.residual(misfit.point(given)), parameters, nan_policy="propagate",
            max_nfev=self._max_iter,
        )  # fmt: skip
        options = {"x_scale": "jac", "loss": loss, "f_scale": self.scale, "ftol": 1e-12, "xtol": 1e-12, "gtol": 1e-12}
        with np.errstate(all="ignore"):  # lmfit's own errors, which are not used
            found = minimizer.least_squares(jac=lambda given: misfit.jacobian(misfit.point(given)), **options)
        found.minimizer = minimizer
        if loss != "linear":
            misfit.best = (misfit.best[0], misfit.point(found.params))
        if loss != "linear" or self.found is None or found.chisqr <= self.found.chisqr:
            self.found, self.converged = found, bool(found.success) and not found.aborted
        return float(found.chisqr)

    def _reweigh(self) -> float:
        """Multiply sigma of each set whose noise is unknown by what its residuals say; the largest relative change."""
        misfit, changes = self.misfit, []
        for each, part in zip(misfit.sets, misfit.split(misfit.residual(misfit.best[1])), strict=True):
            if each.noise != "known":
                size = float(np.sqrt(np.mean(part**2) / (1.0 - len(misfit.free) / misfit.n_numbers))) or 1.0
                each.sigma = each.sigma * size
                changes.append(abs(size - 1.0))
        misfit.best, self.found = (np.inf, misfit.best[1]), None
        self._minimize(misfit.best[1], "linear")
        return max(changes)

    def _variance(self, residual: np.ndarray) -> float:
        """Of a weighted residual: 1 where sigma is known, else estimated, and not below rounding."""
        freedom = len(residual) - len(self.misfit.free)
        return max(float(residual @ residual), self._rounding()) / freedom if self.relative else 1.0

    def profiles(self) -> dict[str, Profile]:
        """Of all free parameters; where one finds a better fit, that is taken and they begin again."""
        for _ in range(_RESTARTS):
            x = self.misfit.best[1]
            residual = self.misfit.residual(x)
            freedom = len(residual) - len(x)
            limit = stats.f.ppf(0.95, 1, freedom) if self.relative else stats.chi2.ppf(0.95, 1)
            limit = max(float(limit) * self._variance(residual), 1e-300)
            found = {}
            try:
                profiler = Profiler(self.misfit, x, inverse_of(self.misfit.jacobian(x)), limit)
                for place, name in enumerate(self.misfit.free):
                    self.misfit.stage = f"interval of {name}"
                    found[name] = profiler.profile(place)
                return found
            except BetterFitError:
                self._minimize(self.misfit.best[1], "linear")
        self.converged = False
        return {}

    def result(self, profiles: dict[str, Profile], seconds: float) -> FitResult:
        misfit, x = self.misfit, self.misfit.best[1]
        residual, jacobian = misfit.residual(x), misfit.jacobian(x)
        variance = self._variance(residual)
        covariance = inverse_of(jacobian) * variance
        if self._loss != "linear":
            part = len(residual) / (len(residual) - len(x))
            covariance = _sandwich(residual / self.scale, jacobian, self._loss) * self.scale**2 * part
        errors = _deviations(misfit.derivatives(x), np.nan_to_num(covariance, posinf=1e300))
        errors[errors > 1e100] = np.inf
        sets, bands = [], misfit.split(_deviations(jacobian, np.nan_to_num(covariance, posinf=0.0)))
        with torch.no_grad():
            values = misfit.parameters(torch.tensor(x, dtype=torch.float64))
            for each, band in zip(misfit.sets, bands, strict=True):
                sigma = each.sigma.numpy() if self._weighs or each.noise != "unknown" else None
                fitted = each.predicted(values).numpy()
                sets.append(SetResult(each.t.numpy(), each.data.numpy(), fitted, sigma, each.like_data(band)))
        found = FitResult(
            values={name: float(value) for name, value in values.items()},
            errors=dict(zip(misfit.start, map(float, errors), strict=True)),
            free=list(misfit.free),
            bounds={name: (float(each.min), float(each.max)) for name, each in misfit.start.items()},
            covariance=covariance,
            profiles=profiles,
            sets=sets,
            absolute_sigma=not self.relative,
            estimated_noise=self._weighs,
            loss=self._loss,
            converged=self.converged,
            interrupted=self.interrupted,
            n_starts=(self.n_agree, len(self._starts)),
            n_evaluations=misfit.n_evaluations,
            seconds=seconds,
        )
        with np.errstate(divide="ignore"):
            alone = np.sqrt(variance) / np.linalg.norm(jacobian, axis=0)
        found.warnings = verdict(found, dict(zip(found.free, alone, strict=True)))
        found.lmfit = self.found
        return found


def _deviations(jacobian: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", jacobian, covariance, jacobian), 0.0))


def inverse_of(jacobian: np.ndarray) -> np.ndarray:
    """(JᵀJ)⁻¹; infinite variances, and correlations that are NaN, for parameters that the data say nothing about."""
    sizes = np.linalg.norm(jacobian, axis=0)
    sizes[sizes == 0] = 1.0
    _, singular, directions = np.linalg.svd(jacobian / sizes, full_matrices=False)
    good = singular > _SINGULAR * singular[0]
    part = directions[good] / singular[good, None] / sizes
    inverse = part.T @ part
    lost = (np.abs(directions[~good]) > 1e-3).any(axis=0)
    inverse[lost, :] = inverse[:, lost] = np.nan
    inverse[lost, lost] = np.inf
    return inverse


def _sandwich(u: np.ndarray, jacobian: np.ndarray, loss: str) -> np.ndarray:
    """H⁻¹ (Σ ψ² j jᵀ) H⁻¹ of an M-estimator, with ψ the derivative of ρ(u²)/2 in units of the residuals."""
    place = torch.tensor(u, requires_grad=True)
    (score,) = torch.autograd.grad(0.5 * _RHO[loss](place**2).sum(), place, create_graph=True)
    (slope,) = torch.autograd.grad(score.sum(), place)
    half = inverse_of(slope.clamp(min=1e-6).sqrt().numpy()[:, None] * jacobian)
    known, scores = np.nan_to_num(half, posinf=0.0), score.detach().numpy()[:, None] * jacobian
    return np.where(np.isfinite(half), known @ scores.T @ scores @ known, half)
