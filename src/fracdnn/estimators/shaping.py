"""Between the scaled inputs and the network: outliers bent in, and each number a second time, in bins."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

FEWEST_BINS = 3
_FAR = 1e150


@dataclass(frozen=True, eq=False)
class Shaping:
    """Scaled inputs z become z / √(1 + (z / clip)²), which stays within ±clip, and beside them stand the bins.

    A bin of an input x is (x − low) / width, cut off at 0 and 1, less ½: over an input's bins, a network sees where
    among the quantiles x lies. `column`, `low` and `width` [n_bins_in_all] say which input a bin belongs to and where
    it is. Without a clip, inputs stay as they are.
    """

    clip: float | None
    column: torch.Tensor
    low: torch.Tensor
    width: torch.Tensor

    @classmethod
    def of(cls, inputs: np.ndarray, weight: np.ndarray, n_bins: int, clip: float | None) -> "Shaping":
        """Bins between quantiles of the rows, where each stands as often as its weight says.

        Inputs of few different values, such as categories, have none.
        """
        bins = [np.empty((3, 0))]
        for place in range(inputs.shape[1] if n_bins else 0):
            edges = _edges(inputs[:, place], weight, n_bins)
            if len(edges) > FEWEST_BINS:
                bins.append(np.stack([np.full(len(edges) - 1, place), edges[:-1], np.diff(edges)]))
        column, low, width = (torch.from_numpy(each.copy()) for each in np.concatenate(bins, axis=1))
        return cls(None if clip is None else float(clip), column.to(torch.int64), low, width)

    @classmethod
    def of_document(cls, document: dict[str, Any], n_inputs: int) -> "Shaping":
        """The inverse of `vars`; a ValueError unless it is one of so many inputs."""
        found = cls(**document)
        clip, column, low, width = vars(found).values()
        is_valid = (
            (clip is None or (isinstance(clip, float) and 0 < clip < float("inf")))
            and (column.dtype, low.dtype, width.dtype) == (torch.int64, torch.float64, torch.float64)
            and column.dim() == 1
            and column.shape == low.shape == width.shape
            and bool(((column >= 0) & (column < n_inputs) & torch.isfinite(low) & torch.isfinite(width)).all())
            and bool((width > 0).all())
        )
        if not is_valid:
            raise ValueError(f"invalid bins of {n_inputs} inputs, or an invalid clip of {clip!r:.40}")
        return found

    @property
    def n_added(self) -> int:
        return len(self.column)

    def __call__(self, inputs: torch.Tensor, scaled: torch.Tensor) -> torch.Tensor:
        """The network's features, of inputs and the same scaled."""
        if self.clip is not None:
            scaled = scaled.clamp(-_FAR * self.clip, _FAR * self.clip)  # the square overflows farther out
            scaled = scaled / (1.0 + (scaled / self.clip) ** 2).sqrt()
        if not self.n_added:
            return scaled
        bins = ((inputs[:, self.column] - self.low) / self.width).clamp(0.0, 1.0) - 0.5
        return torch.cat([scaled, bins], dim=1)


def quantiles(values: np.ndarray, weight: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The least values that these shares of the weight do not exceed, where each stands as often as its weight says."""
    order = np.argsort(values, kind="stable")
    up_to = np.cumsum(weight[order])
    places = np.searchsorted(up_to, shares * up_to[-1])
    return values[order[np.minimum(places, len(values) - 1)]]


def _edges(values: np.ndarray, weight: np.ndarray, n_bins: int) -> np.ndarray:
    """Of bins that hold the same weight each, as far as the values are different."""
    edges = np.unique(quantiles(values, weight, np.arange(n_bins + 1) / n_bins))
    # Of values next to each other or far apart, a width may vanish or overflow.
    with np.errstate(over="ignore"):
        widths = np.diff(edges)
    return edges if np.isfinite(widths).all() and (widths > np.finfo(np.float64).tiny).all() else edges[:0]
