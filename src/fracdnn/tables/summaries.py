"""What one pass keeps of columns of numbers: mean, deviation and quantiles. Summaries of parts merge into one.

They merge in a tree, whose order does not depend on who reads which part: sums in floating point and sketches of
quantiles are then the same bits for any number of processes.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

Summary = TypeVar("Summary")

# A quantile is exact up to this many different values; see `Quantiles` for the error beyond.
MOST_DISTINCT = 8192


class Sums:
    """A dataclass that merges with one of later parts field by field: by `both`, or as `ways` says."""

    ways: ClassVar[dict[str, Callable[[Any, Any], Any]]] = {}

    def merged(self, other: Self) -> Self:
        names = [each.name for each in fields(self)]  # type: ignore[arg-type]
        return type(self)(*(self.ways.get(name, both)(getattr(self, name), getattr(other, name)) for name in names))


def both(mine: Any, theirs: Any) -> Any:
    """Numbers and arrays add up, summaries merge, of dicts those that are in both; with None the result is None."""
    if mine is None or theirs is None:
        return None
    if isinstance(mine, tuple):
        return tuple(map(both, mine, theirs))
    if isinstance(mine, dict):
        return {key: both(mine[key], theirs[key]) for key in mine if key in theirs}
    return mine.merged(theirs) if hasattr(mine, "merged") else mine + theirs


@dataclass(frozen=True, eq=False)
class Moments(Sums):
    """Number, mean and deviation (that of all, not of a sample) of the numbers in each column, in float64."""

    count: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> "Moments":
        """Of columns [n, k], whose NaN are left out."""
        known = ~np.isnan(values)
        count = known.sum(0).astype(np.float64)
        share = known / np.maximum(count, 1.0)
        mean = (share * np.where(known, values, 0.0)).sum(0)
        # By the largest distance first: squares of large numbers overflow.
        distance = np.where(known, values - mean, 0.0)
        largest = np.abs(distance).max(0, initial=np.finfo(np.float64).tiny)
        return cls(count, mean, np.sqrt((share * (distance / largest) ** 2).sum(0)) * largest)

    def merged(self, other: "Moments") -> "Moments":
        """Of both together (Chan, Golub and LeVeque 1983), in deviations instead of squares, which overflow."""
        count = self.count + other.count
        mine, theirs = (each.count / np.maximum(count, 1.0) for each in (self, other))
        apart = np.where(theirs > 0, other.mean - self.mean, 0.0)
        within = np.hypot(np.sqrt(mine) * self.deviation, np.sqrt(theirs) * other.deviation)
        return Moments(count, self.mean + theirs * apart, np.hypot(within, np.sqrt(mine * theirs) * apart))


@dataclass(frozen=True, eq=False)
class Quantiles(Sums):
    """Quantiles of numbers, from at most `size` of them: sorted values with weights.

    More than `size` different ones become the `size` that lie at the places (j + ½) n / size, with equal weights: any
    rank moves by n / (2 size) at most. Where summaries are merged in a tree, as `Tree` does it, a number meets such a
    loss at its leaf and at each merge above it, so that a rank of N numbers in P parts is off by
    N (ceil(log2 P) + 1) / (2 size) at most. `rank_error` is the sum of the losses that happened, in numbers.
    """

    values: np.ndarray
    weights: np.ndarray
    rank_error: float = 0.0
    size: int = MOST_DISTINCT

    @classmethod
    def of(cls, values: np.ndarray, weight: np.ndarray | None = None, size: int = MOST_DISTINCT) -> "Quantiles":
        """Of finite numbers [n], each as often as its weight says."""
        distinct, which = np.unique(values, return_inverse=True)
        # Of no numbers, NumPy counts in integers.
        weights = np.bincount(which, weights=weight, minlength=len(distinct)).astype(np.float64)
        return cls(distinct, weights, 0.0, size)._compressed()

    def merged(self, other: "Quantiles") -> "Quantiles":
        values, which = np.unique(np.concatenate([self.values, other.values]), return_inverse=True)
        weights = np.bincount(which, weights=np.concatenate([self.weights, other.weights]))
        return Quantiles(values, weights, self.rank_error + other.rank_error, self.size)._compressed()

    def median(self) -> float:
        """The mean of the two numbers in the middle, where each stands as often as its weight says."""
        ends = self.weights.cumsum()
        low, high = (np.searchsorted(ends, ends[-1] / 2, side=side) for side in ("left", "right"))
        return _between(self.values[low], self.values[min(high, len(ends) - 1)])

    def _compressed(self) -> "Quantiles":
        if len(self.values) <= self.size:
            return self
        ends = self.weights.cumsum()
        each = float(ends[-1]) / self.size
        places = (np.arange(self.size) + 0.5) * each
        kept, counts = np.unique(np.searchsorted(ends, places, side="right"), return_counts=True)
        return Quantiles(self.values[kept], counts * each, self.rank_error + each / 2, self.size)


def median_of(values: np.ndarray, weight: np.ndarray) -> float:
    """The median of finite numbers, one at least; see `Quantiles`."""
    if (weight == weight[0]).all():
        middle = [(len(values) - 1) // 2, len(values) // 2]
        return _between(*np.partition(values, middle)[middle])
    return Quantiles.of(values, weight, len(values)).median()


def _between(low: float, high: float) -> float:
    """The mean of two numbers, whose sum may overflow."""
    return float(low if low == high else low / 2 + high / 2)


class Tree(Generic[Summary]):
    """Of a range of parts that come in order, the nodes whose parents are not complete: 2 log2(parts) at most.

    A node (level l, place i, summary) covers the parts from i 2^l up to (i + 1) 2^l, of which those beyond the last are
    nothing: it merges its two children, the left one first.
    """

    def __init__(self) -> None:
        self.nodes: list[tuple[int, int, Any]] = []

    def add_part(self, place: int, summary: Summary, level: int = 0) -> None:
        """The part, or a node of some level, that follows the last one."""
        while place % 2 and self.nodes and self.nodes[-1][0] == level:  # its left brother
            _, _, left = self.nodes.pop()
            level, place, summary = level + 1, place // 2, left.merged(summary)
        self.nodes.append((level, place, summary))

    def root(self) -> Summary:
        """Of all parts, where they are here from the first on; each node that is left has no brother but the next."""
        return reduce(lambda later, each: each.merged(later), (summary for _, _, summary in reversed(self.nodes)))
