"""What a fit found: numbers, a table, a file."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fracdnn.exceptions import FileContentError, InvalidArgumentError, MissingExtraError
from fracdnn.files import write_whole
from fracdnn.fitting.profiles import Profile
from fracdnn.validation import check_count

_FORMAT = "fracdnn fit 3"
# Of data, below which their residuals are no noise.
ROUNDING = 1e-12


@dataclass
class SetResult:
    """One data set: where, what was measured, what the model gives, and one standard deviation of that, `band`."""

    t: np.ndarray
    data: np.ndarray
    fitted: np.ndarray
    sigma: np.ndarray | None
    band: np.ndarray

    @property
    def residuals(self) -> np.ndarray:
        """The data minus the fit."""
        return self.data - self.fitted

    @property
    def squares(self) -> np.ndarray:
        """|residuals/sigma|²."""
        return np.abs(self.residuals / (1.0 if self.sigma is None else self.sigma)) ** 2

    @property
    def n_numbers(self) -> int:
        return self.data.size * (2 if np.iscomplexobj(self.data) else 1)


@dataclass
class FitResult:
    """What `fracdnn.fit` gives. `summary()` is the table, `plot()` the figure, `warnings` says what not to trust.

    `values` and standard `errors` are by name, of all parameters; `free` names those that were fitted, and `covariance`
    [p, p] and `correlation` are of these. `sets` holds one `SetResult` for each data set, `profiles` the ends and the
    trace of each interval. `n_starts` is how many starts came to the best fit, and of how many. `lmfit` is lmfit's own
    result; it and `sample` are not in a file.
    """

    values: dict[str, float]
    errors: dict[str, float]
    free: list[str]
    bounds: dict[str, tuple[float, float]]
    covariance: np.ndarray
    profiles: dict[str, Profile]
    sets: list[SetResult]
    absolute_sigma: bool
    estimated_noise: bool
    loss: str
    converged: bool
    interrupted: bool
    n_starts: tuple[int, int]
    n_evaluations: int
    seconds: float
    warnings: list[str] = field(default_factory=list)
    lmfit: Any = field(default=None, repr=False, compare=False)
    misfit: Any = field(default=None, repr=False, compare=False)

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 %, by profile likelihood; without profiles the estimate ± 1.96 standard errors, within the bounds."""
        found = {}
        for name in self.free:
            ends = self.values[name] + 1.96 * self.errors[name] * np.array([-1.0, 1.0])
            low, high = np.clip(ends, *self.bounds[name]).tolist()
            found[name] = (self.profiles[name].low, self.profiles[name].high) if name in self.profiles else (low, high)
        return found

    @property
    def correlation(self) -> np.ndarray:
        """Of the free parameters, [p, p]."""
        with np.errstate(invalid="ignore", divide="ignore"):
            sizes = np.sqrt(np.diag(self.covariance))
            return self.covariance / np.outer(sizes, sizes)

    @property
    def exact(self) -> bool:
        """Whether residuals are no larger than rounding, as of data without noise; intervals are then about 0 wide."""
        sizes = [(np.linalg.norm(each.residuals), np.linalg.norm(each.data)) for each in self.sets]
        return not self.absolute_sigma and all(left <= ROUNDING * (size or 1.0) for left, size in sizes)

    @property
    def residuals(self) -> list[np.ndarray]:
        """The data minus the fit, for each data set."""
        return [each.residuals for each in self.sets]

    @property
    def n_data(self) -> int:
        """Numbers that were measured; a complex value counts as two."""
        return sum(each.n_numbers for each in self.sets)

    @property
    def chi2(self) -> float:
        """Σ |residual/sigma|², or Σ |residual|² without sigma."""
        return float(sum(each.squares.sum() for each in self.sets))

    @property
    def reduced_chi2(self) -> float:
        """chi2 by degrees of freedom: about 1 where sigma is right."""
        return self.chi2 / (self.n_data - len(self.free))

    @property
    def aic(self) -> float:
        """Akaike's criterion: chi2 + 2p where sigma is known, else n ln(chi2/n) + 2p; compare on the same data."""
        return self._deviance() + 2 * len(self.free)

    @property
    def bic(self) -> float:
        """As `aic`, with p ln n."""
        return self._deviance() + math.log(self.n_data) * len(self.free)

    def _deviance(self) -> float:
        if self.absolute_sigma:
            return self.chi2
        parts = [(self.n_data, self.chi2, 0.0)]
        if self.estimated_noise:  # of each set sigma times a factor
            parts = [(each.n_numbers, each.squares.sum(), np.log(np.array(each.sigma)).mean()) for each in self.sets]
        return float(sum(n * (math.log(max(size, 1e-300) / n) + 2 * log_sigma) for n, size, log_sigma in parts))

    def rows(self) -> list[tuple[str, ...]]:
        """The table of parameters as texts, its headings first."""
        found: list[tuple[str, ...]] = [("parameter", "value", "std. error", "95 % interval")]
        intervals = self.intervals
        for name, value in self.values.items():
            error = f"{self.errors[name]:.2g}" if self.errors[name] else ""
            ends = "{:.6g} … {:.6g}".format(*intervals[name]) if name in intervals else ""
            found.append((name, f"{value:.6g}", error, ends or ("from others" if error else "fixed")))
        return found

    def figures(self) -> str:
        """The size of data and misfit, in one line."""
        return (
            f"{self.n_data} numbers, {len(self.free)} free parameters; chi2 {self.chi2:.5g}, "
            f"reduced {self.reduced_chi2:.4g}; AIC {self.aic:.2f}, BIC {self.bic:.2f}"
        )

    def summary(self) -> str:
        """A table of the parameters with errors and intervals, the size of the misfit, and the warnings."""
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, tuple("-" * width for width in widths))
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, "", self.figures(), *(f"warning: {text}" for text in self.warnings)])

    def plot(self) -> Any:
        """A Matplotlib figure: data, fit and 95 % band; residuals; profiles."""
        from fracdnn.fitting.fit_plot import figure_of

        return figure_of(self)

    def sample(self, n_steps: int = 2000, *, n_walkers: int = 32, random_state: int | None = None) -> dict[str, Any]:
        """Draws from the posterior by name, [n] each, through emcee; see `fracdnn.fitting.LogDensity`.

        Uniform priors within the bounds. Of `n_steps` of each of the walkers the first third is dropped.
        """
        if self.misfit is None:
            raise InvalidArgumentError("sample must be called on a result of fit, got one from a file; fit again")
        if self.loss != "linear":
            raise InvalidArgumentError(f"loss must be 'linear' for a posterior, got {self.loss!r}; fit with that")
        check_count(n_steps, "n_steps", minimum=3)
        check_count(n_walkers, "n_walkers", minimum=2 * len(self.free) + 2)
        try:
            from emcee import EnsembleSampler
        except ImportError:
            raise MissingExtraError("emcee is missing: run pip install emcee", name="emcee") from None

        def log_density(x: np.ndarray) -> float:
            if not self.misfit.allows(x):
                return -math.inf
            size = float(np.sum(self.misfit.residual(x) ** 2))  # NaN where there is no model
            value = -0.5 * size if self.absolute_sigma else -0.5 * self.n_data * math.log(max(size, 1e-300))
            return value if math.isfinite(value) else -math.inf

        generator = np.random.default_rng(random_state)
        center, error = (np.array([values[name] for name in self.free]) for values in (self.values, self.errors))
        spread = 0.5 * error * generator.standard_normal((n_walkers, len(self.free)))
        sampler = EnsembleSampler(n_walkers, len(self.free), log_density)
        sampler.random_state = np.random.RandomState(generator.integers(2**31)).get_state()
        sampler.run_mcmc(np.clip(center + spread, self.misfit.lower, self.misfit.upper), n_steps)
        return dict(zip(self.free, sampler.get_chain(discard=n_steps // 3, flat=True).T, strict=True))

    def save(self, path: str | os.PathLike) -> Path:
        """Write all numbers as JSON."""
        content = {name: value for name, value in vars(self).items() if name not in ("lmfit", "misfit")}
        text = json.dumps(_plain({"format": _FORMAT} | content), allow_nan=False, indent=1)
        return write_whole(Path(path), lambda temporary: temporary.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, path: str | os.PathLike) -> "FitResult":
        """Read what `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"), object_hook=_revived)
            if content.pop("format") != _FORMAT:
                raise ValueError
            return cls(**content)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise FileContentError(f"{os.fspath(path)} is no fit of this version; write it by FitResult.save") from None


# By keys that no parameter's name can be: what JSON does not have, from what it has.
_REVIVERS: dict[str, Callable[[Any], Any]] = {
    **{"a tuple": tuple, "a number": float, "an array": np.array, "a complex array": lambda parts: parts @ [1, 1j]},
    **{"a profile": lambda content: Profile(**content), "a data set": lambda content: SetResult(**content)},
}


def _plain(value: Any) -> Any:
    """As JSON has it; else as one of `_REVIVERS` takes it."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"a number": str(value)}
    if isinstance(value, tuple):
        return {"a tuple": _plain(list(value))}
    if isinstance(value, Profile | SetResult):
        return {"a profile" if isinstance(value, Profile) else "a data set": _plain(vars(value))}
    if isinstance(value, np.ndarray) and np.iscomplexobj(value):
        return {"a complex array": _plain(np.stack([value.real, value.imag], -1))}
    return {"an array": _plain(value.tolist())} if isinstance(value, np.ndarray) else value


def _revived(found: dict[str, Any]) -> Any:
    (key, content), *others = found.items() or [("", None)]
    return _REVIVERS[key](content) if key in _REVIVERS and not others else found
