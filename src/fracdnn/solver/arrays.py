"""One formula for two kinds of arrays: torch's tensors, and NumPy's, which take a fifth of the time for few numbers.

The latter carry no derivatives: they serve where none is needed, such as the search for a grid.
"""

import math
from typing import Any

import numpy as np
import torch

Array = Any  # torch.Tensor or np.ndarray


def library(array: Array) -> Any:
    """The module whose functions take an array of this kind."""
    return torch if isinstance(array, torch.Tensor) else np


def cast(array: Array, like: Array) -> Array:
    """A tensor to the dtype of another; NumPy's arrays are float64 throughout."""
    return array.to(like.dtype) if isinstance(array, torch.Tensor) else array


def as_numpy(tensor: Array) -> Array:
    """Of float64, apart from any graph; an array of NumPy's as it is."""
    return tensor.detach().double().cpu().numpy() if isinstance(tensor, torch.Tensor) else tensor


def as_tensor(array: Array, dtype: torch.dtype) -> torch.Tensor:
    """An array of NumPy's as a tensor; a tensor as it is."""
    return array if isinstance(array, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(array)).to(dtype)


def as_kind(array: Array, like: Array) -> Array:
    """An array of the other's kind and dtype."""
    return torch.as_tensor(array).to(like) if isinstance(like, torch.Tensor) else as_numpy(array)


def norm(values: Array) -> float:
    """The largest size of an entry; infinite where one is not a number."""
    if isinstance(values, torch.Tensor):
        size = float(values.detach().abs().max()) if values.numel() else 0.0
    else:
        size = float(np.abs(values).max()) if values.size else 0.0
    return size if size == size else float("inf")


def rounding(values: Array) -> float:
    """The distance from 1 to the next number."""
    return float(library(values).finfo(values.dtype).eps)


def sizes(values: Array) -> Array:
    """The largest size of each component over the points; [G, d] for [G, S, d]."""
    return values.abs().amax(1) if isinstance(values, torch.Tensor) else abs(values).max(1)


def component_sizes(values: Array) -> Array:
    """The same as a unit for each component, [G, 1, d]: that of the largest where one is 0."""
    of_each = sizes(values)[:, None]
    largest = norm(of_each)
    return library(values).where(of_each > 0, of_each, largest if 0.0 < largest < math.inf else 1.0)


def is_finite(values: Array) -> bool:
    """Whether all numbers are."""
    return math.isfinite(float(abs(values).sum())) or bool(library(values).isfinite(values).all())
