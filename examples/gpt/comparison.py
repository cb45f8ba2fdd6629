"""What the runs of one depth say: losses at equal tokens and at equal time, paired with the residual stream's."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from examples.gpt.streams import RESIDUAL, STREAMS
from examples.gpt.training import Record

LEVEL = 0.95


@dataclass(frozen=True)
class Difference:
    """Of paired values: the mean, its t-interval over two or more seeds, and how many are below 0."""

    mean: float
    interval: tuple[float, float] | None
    below: int
    seeds: int

    @property
    def sign(self) -> int:
        """−1 or 1 where the interval does not hold 0; else 0: nothing is claimed."""
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return 0
        return 1 if self.mean > 0 else -1


def difference(values: np.ndarray, base: np.ndarray) -> Difference | None:
    """None where a value is missing, that is, where a training diverged."""
    from scipy.stats import t

    gaps = values - base
    if not len(gaps) or not np.isfinite(gaps).all():
        return None
    interval = None
    if len(gaps) > 1:
        reach = float(t.ppf((1 + LEVEL) / 2, len(gaps) - 1) * gaps.std(ddof=1) / math.sqrt(len(gaps)))
        interval = (float(gaps.mean()) - reach, float(gaps.mean()) + reach)
    return Difference(float(gaps.mean()), interval, int((gaps < 0).sum()), len(gaps))


def identity(run: Record) -> tuple[Any, ...]:
    """What runs must share to be compared: settings, text, versions and device."""
    made_with = run["made_with"]
    return run["settings"], run["text"], made_with["versions"], made_with["machine"].get("gpu")


class Comparison:
    """The runs of one depth, of seeds that every stream has finished."""

    def __init__(self, runs: Iterable[Record]) -> None:
        everything = list(runs)
        finished = {(run["arm"], run["seed"]): run for run in everything if "failed" not in run}
        kinds = [identity(run) for run in finished.values()]
        if any(kind != kinds[0] for kind in kinds):
            raise ValueError(
                f"runs of {everything[0]['depth']} blocks must share settings, text, versions and device, "
                "got different ones; train them anew into an empty folder"
            )
        self.depth: int = everything[0]["depth"]
        self.failed = [run for run in everything if "failed" in run]
        self.arms = [arm for arm in STREAMS if any(arm == one for one, _ in finished)]
        seeds = sorted({seed for _, seed in finished})
        self.seeds = [seed for seed in seeds if all((arm, seed) in finished for arm in self.arms)]
        self._finished = finished

    @property
    def is_whole(self) -> bool:
        """Whether there is something to compare, and what to compare it with."""
        return bool(self.seeds) and RESIDUAL in self.arms

    def of(self, arm: str) -> list[Record]:
        """The runs of a stream, seed by seed."""
        return [self._finished[arm, seed] for seed in self.seeds]

    @property
    def any_run(self) -> Record:
        return self.of(RESIDUAL)[0]

    def last(self, arm: str) -> np.ndarray:
        """The losses at the end, NaN where a training diverged."""
        return np.array([curve(run)[-1] for run in self.of(arm)])

    def times(self) -> np.ndarray:
        """When the fastest stream had finished, for each seed."""
        return np.array([min(self._finished[arm, seed]["seconds"][-1] for arm in self.arms) for seed in self.seeds])

    def at_times(self, arm: str) -> np.ndarray:
        """The losses at those times, between two measurements by a straight line."""
        pairs = zip(self.of(arm), self.times(), strict=True)
        return np.array([np.interp(time, run["seconds"], curve(run)) for run, time in pairs])

    def ratios(self, arm: str, measure: str) -> np.ndarray:
        """Time of a step or memory, by that of the residual stream; none where it was not measured."""
        pairs = zip(self.of(arm), self.of(RESIDUAL), strict=True)
        found = [(_cost(run, measure), _cost(base, measure)) for run, base in pairs]
        return np.array([own / other for own, other in found if own is not None and other])


def curve(run: Record) -> np.ndarray:
    return np.array([math.nan if loss is None else loss for loss in run["losses"]])


def _cost(run: Record, measure: str) -> float | None:
    return run["step_seconds"]["median"] if measure == "step_seconds" else run[measure]


def comparisons(runs: Iterable[Record]) -> list[Comparison]:
    """One for each depth that has a whole seed."""
    by_depth: dict[int, list[Record]] = {}
    for run in runs:
        by_depth.setdefault(run["depth"], []).append(run)
    found = [Comparison(by_depth[depth]) for depth in sorted(by_depth)]
    return [comparison for comparison in found if comparison.is_whole]
