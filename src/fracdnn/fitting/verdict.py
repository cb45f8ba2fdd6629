"""When not to trust a fit, in words."""

import math
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

# Correlations from here on; p-values of structure in residuals and of chi2 from here down; fewest residuals of a test.
_CORRELATED, _UNLIKELY, _FEWEST = 0.99, 1e-3, 10
# Distance to a bound, in standard errors and in parts of its size.
_AT, _AT_PART = 0.05, 1e-6


def verdict(result: Any, alone: dict[str, float]) -> list[str]:
    """One sentence for each reason; `alone` are standard errors with all other parameters held."""
    found = []
    if result.interrupted:
        found.append("the fit was interrupted; this is the best so far")
    elif not result.converged:
        found.append("the fit did not converge; pass other start values, n_starts=10, or a larger max_iter")
    at_bound = {name: _at_bounds(result, name, alone[name]) for name in result.free}
    for name, words in at_bound.items():
        found += [
            f"{name} is at its {word} bound, {bound:g}, where its standard error means nothing; if the bound is a law "
            f"of the model, fix {name} there and fit again, else widen the bound"
            for word, bound in words.items()
        ]
    for name, words in at_bound.items():
        found += _unknown(result, name, words)
    for (i, first), (j, second) in combinations(enumerate(result.free), 2):
        if abs(correlation := result.correlation[i, j]) > _CORRELATED:
            found.append(
                f"{first} and {second} cannot be distinguished by these data (correlation {correlation:.4f}); measure "
                f"longer, or fix one of them"
            )
    freedom = result.n_data - len(result.free)
    if result.absolute_sigma and result.loss == "linear" and stats.chi2.sf(result.chi2, freedom) < _UNLIKELY:
        times = f"{math.sqrt(result.reduced_chi2):.3g} times"
        found.append(f"residuals are {times} what sigma says; the model or sigma is wrong")
    return found if result.exact else [*found, *_structure(result)]


def _at_bounds(result: Any, name: str, alone: float) -> dict[str, float]:
    """Those of its bounds, by their words, that an estimate lies at."""
    value, (low, high) = result.values[name], result.bounds[name]
    near = {end: max(_AT_PART * max(abs(end), abs(value)), _AT * alone) for end in (low, high) if math.isfinite(end)}
    ends = {"lower": low, "upper": high}
    return {word: end for word, end in ends.items() if end in near and abs(value - end) <= near[end] < high - low}


def _unknown(result: Any, name: str, at_bound: dict[str, float]) -> list[str]:
    """Whether the data hold a parameter on both sides."""
    profile, (low, high), found = result.profiles.get(name), result.bounds[name], []
    if math.isinf(result.errors[name]) or (profile is None and result.errors[name] > high - low):
        return [f"these data say nothing about {name} by itself; fix it, or measure what depends on it"]
    ends = (("lower", "below", profile.low, low), ("upper", "above", profile.high, high)) if profile else ()
    if flat := [side for _, side, end, _ in ends if not math.isfinite(end)]:
        found.append(
            f"the profile of {name} is flat: these data do not limit it from {' or '.join(flat)}; "
            f"measure longer or with less noise, or fix it"
        )
    return found + [
        f"the interval of {name} ends at its {word} bound, {end:g}: these data do not limit it from {side}; if the "
        f"bound is no law of the model, widen it, or measure longer"
        for word, side, end, bound in ends
        if math.isfinite(end) and end == bound and word not in at_bound
    ]


def _structure(result: Any) -> list[str]:
    """Residuals that keep their sign too long, in the order of t; of several columns the worst counts."""
    worst, count = {}, 0
    for place, each in enumerate(result.sets):
        residuals = each.residuals[np.argsort(each.t, kind="stable")].reshape(len(each.t), -1)
        is_complex = np.iscomplexobj(residuals)
        parts = {"real ": residuals.real, "imaginary ": residuals.imag} if is_complex else {"": residuals}
        where = f" of data set {place}" if len(result.sets) > 1 else ""
        for word, part in parts.items():
            worst[f"{word}residuals{where}"] = min(map(runs_test, part.T))
            count += part.shape[1]
    return [
        f"{words} are structured (runs test p = {chance:.1g}): the model misses something, and intervals are too narrow"
        for words, chance in worst.items()
        if chance < _UNLIKELY / count
    ]


def runs_test(residuals: np.ndarray) -> float:
    """Wald and Wolfowitz: the chance of as few changes of sign in independent residuals, or fewer; 1 for under 10."""
    signs = residuals[residuals != 0] > 0
    n, up = len(signs), int(signs.sum())
    down = n - up
    if n < _FEWEST:
        return 1.0
    if min(up, down) == 0:
        return 0.5 ** (n - 1)
    runs = 1 + int((signs[1:] != signs[:-1]).sum())
    mean = 1.0 + 2.0 * up * down / n
    variance = (mean - 1.0) * (mean - 2.0) / (n - 1.0)
    return float(stats.norm.cdf((runs + 0.5 - mean) / math.sqrt(variance))) if variance > 0 else 1.0
