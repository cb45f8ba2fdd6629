"""What a fit found: numbers, a table, a file."""

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fracdnn.exceptions import FileContentError
from fracdnn.files import write_whole
from fracdnn.fitting.profiles import Profile

_FORMAT = "fracdnn fit 4"
# Of data, below which their residuals are no noise.
ROUNDING = 1e-12


@dataclass(eq=False)
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


@dataclass(eq=False)
class FitResult:
    """What `fracdnn.fit` gives. `summary()` is the table, `plot()` the figure, `warnings` says what not to trust.

    `values` and standard `errors` are by name, of all parameters; `free` names those that were fitted, and `covariance`
    [p, p] and `correlation` are of these. `sets` holds one `SetResult` for each data set, `profiles` the ends and the
    trace of each interval. `n_starts` is how many starts came to the best fit, and of how many. `lmfit` is lmfit's own
    result, which is not in a file.
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

    def save(self, path: str | os.PathLike) -> Path:
        """Write all numbers as JSON."""
        content = {"format": _FORMAT} | {name: value for name, value in vars(self).items() if name != "lmfit"}
        text = json.dumps(_plain(content), allow_nan=False, indent=1)
        return write_whole(Path(path), lambda temporary: temporary.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, path: str | os.PathLike) -> "FitResult":
        """Read what `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content.pop("format") != _FORMAT:
                raise ValueError
            found = cls(**content)
            found.errors = {name: float(error) for name, error in found.errors.items()}
            found.bounds = {name: (float(low), float(high)) for name, (low, high) in found.bounds.items()}
            found.covariance, (n_agree, n_starts) = _array(found.covariance), found.n_starts
            found.n_starts = (n_agree, n_starts)
            found.profiles = {name: _profile(**each) for name, each in content["profiles"].items()}
            found.sets = [SetResult(**{name: _array(part) for name, part in each.items()}) for each in content["sets"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise FileContentError(f"{os.fspath(path)} is no fit of this version; write it by FitResult.save") from None
        return found


def _plain(value: Any) -> Any:
    """For JSON, which has no infinity and no NaN: these as texts."""
    if isinstance(value, np.ndarray):
        return _plain({"real": value.real, "imaginary": value.imag} if np.iscomplexobj(value) else value.tolist())
    if isinstance(value, Profile | SetResult):
        return _plain(vars(value))
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _array(content: Any) -> Any:
    if isinstance(content, dict):
        return _array(content["real"]) + 1j * _array(content["imaginary"])
    return None if content is None else np.array(content, dtype=np.float64)


def _profile(low: Any, high: Any, values: list, excess: list) -> Profile:
    return Profile(float(low), float(high), values, list(map(float, excess)))
