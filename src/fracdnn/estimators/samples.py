"""Samples on their way into a network: arrays, tensors, weights."""

from typing import Any

import numpy as np
import torch


def as_numpy(values: Any) -> Any:
    """A tensor of any device as an array; anything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values


def as_tensor(values: np.ndarray) -> torch.Tensor:
    """Without a copy where the array may be written; some tables' columns may not."""
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def merge_repeated(X: np.ndarray, target: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct samples in sorted order with their weights added up, those without weight left out.

    The objective is the same and costs less; and a weight is then worth a repetition to the last bit. Only the ratios
    of weights count: they are divided by a power of 2, so that in single precision none overflows and none is lost.
    """
    kept = weight > 0
    if not kept.any():
        raise ValueError(
            "sample_weight and class_weight must leave a sample with a weight above 0, got 0 for all; raise one of them"
        )
    X, target, weight = X[kept], target[kept], np.ldexp(weight[kept], -int(np.frexp(weight.max())[1]))
    both = np.column_stack([X, target.reshape(len(target), -1).astype(np.float64)])
    _, first, which = np.unique(both, axis=0, return_index=True, return_inverse=True)
    return X[first], target[first], np.bincount(which.reshape(-1), weights=weight)
