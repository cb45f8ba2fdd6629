"""Paired comparisons: what differs between two ways of doing the same, seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm as normal
from scipy.stats import t as student
from scipy.stats import wilcoxon

LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences with its 95 % interval (Student's t) and Wilcoxon's two-sided p, not corrected.

    With `is_ratio` the differences were those of logarithms, and mean and interval are the factors they stand for.
    """

    mean: float
    low: float
    high: float
    p: float
    n: int
    is_ratio: bool = False


def difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """First minus second."""
    return _difference(np.subtract(first, second), False)


def ratio(first: Sequence[float], second: Sequence[float]) -> Difference:
    """First over second, of positive numbers: the geometric mean of the ratios."""
    return _difference(np.log(first) - np.log(second), True)


def _difference(values: np.ndarray, is_ratio: bool) -> Difference:
    mean, (low, high) = float(values.mean()), t_interval(values)
    back = math.exp if is_ratio else float
    return Difference(back(mean), back(low), back(high), signed_rank_p(values), len(values), is_ratio)


def t_interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Of the mean: mean ± t_{0.975, n−1} s/√n; of a single value, all numbers."""
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return -math.inf, math.inf
    half = float(student.ppf(1 - LEVEL / 2, n - 1) * np.std(values, ddof=1) / math.sqrt(n))
    return mean - half, mean + half


def signed_rank_p(differences: np.ndarray) -> float:
    """Wilcoxon's two-sided test that differences lie about 0; infinite ones are the largest."""
    finite = np.abs(differences[np.isfinite(differences)])
    largest = 1 + 2 * finite.max(initial=0.0)
    found = np.nan_to_num(differences, nan=0.0, posinf=largest, neginf=-largest)
    return float(wilcoxon(found, zero_method="zsplit").pvalue) if found.any() else 1.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p-values of several tests."""
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        corrected[index] = largest
    return corrected


def wilson(count: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share, count of n (Wilson's)."""
    z = float(normal.ppf(1 - LEVEL / 2))
    middle, half = count + z**2 / 2, z * math.sqrt(count * (n - count) / n + z**2 / 4)
    return (middle - half) / (n + z**2), (middle + half) / (n + z**2)
