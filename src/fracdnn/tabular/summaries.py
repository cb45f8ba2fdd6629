"""What one pass keeps of columns of numbers: mean, deviation and quantiles. Summaries of parts merge into one."""

from dataclasses import dataclass

import numpy as np

# A quantile is exact up to this many different values; see `Quantiles` for the error beyond.
MOST_DISTINCT = 8192


@dataclass(frozen=True)
class Moments:
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


class Quantiles:
    """Quantiles of numbers that come in parts, from at most `size` values for each doubling of the parts.

    Sorted values with weights. More than `size` different ones become the `size` that lie at the ranks
    (j + ½) n / size, with equal weights: any rank moves by n / (2 size) at most. As only summaries of equally many
    parts are merged, a number meets log2(parts) + 1 such losses at most, so that a rank of N numbers is off by
    N (log2(parts) + 1) / (2 size) at most. `rank_error` is the sum of the losses that happened, in numbers.
    """

    def __init__(self, size: int = MOST_DISTINCT) -> None:
        self.size, self.rank_error = size, 0.0
        # At place k a summary of 2^k parts, or None: a binary counter.
        self._summaries: list[tuple[np.ndarray, np.ndarray] | None] = []

    def add(self, values: np.ndarray) -> None:
        """Finite numbers [n] of one more part."""
        if len(values):
            distinct, counts = np.unique(values, return_counts=True)
            self._carry(0, distinct, counts.astype(np.float64))

    def merge(self, other: "Quantiles") -> None:
        self.rank_error += other.rank_error
        for place, summary in enumerate(other._summaries):
            if summary is not None:
                self._carry(place, *summary)

    def median(self) -> float:
        """As Polars has it: of an even number of values, the middle between two."""
        found = [summary for summary in self._summaries if summary is not None]
        values, weights = _merged(found)
        ends = weights.cumsum()
        low, high = (values[np.searchsorted(ends, rank, side="right")] for rank in _middle(round(ends[-1])))
        return float(low + 0.5 * (high - low))

    def _carry(self, place: int, values: np.ndarray, weights: np.ndarray) -> None:
        values, weights = self._compressed(values, weights)
        while place < len(self._summaries) and (here := self._summaries[place]) is not None:
            values, weights = self._compressed(*_merged([here, (values, weights)]))
            self._summaries[place] = None
            place += 1
        self._summaries += [None] * (place + 1 - len(self._summaries))
        self._summaries[place] = values, weights

    def _compressed(self, values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if len(values) <= self.size:
            return values, weights
        ends = weights.cumsum()
        each = ends[-1] / self.size
        ranks = (np.arange(self.size) + 0.5) * each
        kept, counts = np.unique(np.searchsorted(ends, ranks, side="right"), return_counts=True)
        self.rank_error += each / 2
        return values[kept], counts * each


def _middle(n: int) -> tuple[int, int]:
    return (n - 1) // 2, n // 2


def _merged(summaries: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    values, which = np.unique(np.concatenate([values for values, _ in summaries]), return_inverse=True)
    return values, np.bincount(which, weights=np.concatenate([weights for _, weights in summaries]))
