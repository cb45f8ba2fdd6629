"""Runs of a part, compared seed by seed: a fractional network with its residual rivals in each arm."""

from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any

from numpy import quantile

from reproduction.arms import ARMS, TUNED, is_tried, name_of, rival_of
from reproduction.statistics import Difference, difference, ratio

Run = dict[str, Any]
Measure = Callable[[Run], float]


def effects(
    runs: Sequence[Run], order: float, measure: Measure, *, is_ratio: bool = False, tuned_by: Measure | None = None
) -> dict[str, Difference]:
    """Fractional against residual in each arm that was run; `tuned_by` is the held-out error that chooses a step."""
    compare = ratio if is_ratio else difference
    fractional, found = of_network(runs, name_of(order)), {}
    for arm in ARMS:
        rival = of_network(runs, rival_of(order, arm))
        if rival:
            found[arm] = compare(*_paired(fractional, rival, measure))
    if tuned_by is not None:
        pair = (tuned(runs, order, tuned_by), tuned(runs, 1.0, tuned_by))
        found[TUNED] = compare(*_paired(*pair, measure))
    return found


def of_network(runs: Sequence[Run], name: str) -> dict[int, Run]:
    """A network's runs by seed."""
    return {r["seed"]: r for r in runs if r["network"] == name}


def tuned(runs: Sequence[Run], order: float, tuned_by: Measure) -> dict[int, Run]:
    """For each seed an order's run with the step that does best on held-out data."""
    found: dict[int, Run] = {}
    for r in runs:
        if is_tried(r["network"], order) and (r["seed"] not in found or tuned_by(r) < tuned_by(found[r["seed"]])):
            found[r["seed"]] = r
    return found


def _paired(first: dict[int, Run], second: dict[int, Run], measure: Measure) -> tuple[list[float], list[float]]:
    seeds = sorted(first.keys() & second.keys())
    return [measure(first[seed]) for seed in seeds], [measure(second[seed]) for seed in seeds]


def spread(values: Sequence[float], digits: str = ".3g") -> str:
    """Mean ± standard deviation over the seeds."""
    deviation = stdev(values) if len(values) > 1 else 0.0
    return f"{mean(values):{digits}} ± {deviation:{digits}}"


def middle(values: Sequence[float], digits: str = ".2g") -> str:
    """Median, and the quarters about it."""
    low, half, high = quantile(values, (0.25, 0.5, 0.75))
    return f"{half:{digits}} ({low:{digits}} to {high:{digits}})"


def effect_text(effect: Difference) -> str:
    """Mean difference, or factor, with its interval."""
    if effect.is_ratio:
        return f"× {effect.mean:.3g} ({effect.low:.3g} to {effect.high:.3g})"
    return f"{effect.mean:+.3g} ({effect.low:+.3g} to {effect.high:+.3g})".replace("-", "−")


def grouped(runs: Sequence[Run], *keys: str) -> dict[tuple[Any, ...], list[Run]]:
    """The runs by their values of these keys, in their order."""
    found: dict[tuple[Any, ...], list[Run]] = {}
    for r in runs:
        found.setdefault(tuple(r[key] for key in keys), []).append(r)
    return found


def names(runs: Sequence[Run], key: str = "network") -> list[Any]:
    """The values of a key, in their order."""
    return list(dict.fromkeys(r[key] for r in runs))
