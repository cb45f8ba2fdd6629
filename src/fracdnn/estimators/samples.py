"""Samples on their way into a network: arrays, tensors, weights."""

import json
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse

from fracdnn.estimators.model_file import labels_document, labels_of
from fracdnn.training.rows import Rows
from fracdnn.training.together import Ranks


def as_numpy(values: Any) -> Any:
    """A tensor of any device as an array; anything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values


def as_tensor(values: np.ndarray) -> torch.Tensor:
    """Without a copy where the array may be written; some tables' columns may not."""
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def dense(X: Any) -> np.ndarray:
    """A sparse matrix or array with its zeros; anything else as it is."""
    return X.toarray() if issparse(X) else X


def check_one_label_each(y: Any) -> None:
    """Refuse several labels for a sample; scikit-learn itself takes [n, 1] for [n] and warns."""
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        raise ValueError(
            f"y must hold one label for each sample, got shape {tuple(shape)}; FractionalRegressor takes several "
            f"outputs, and sklearn.multioutput.MultiOutputClassifier makes one classifier for each label"
        )


def heaviest(weight: np.ndarray, ranks: Ranks) -> float:
    """The largest weight of all ranks, which must be above 0."""
    found = float(ranks.largest(torch.tensor([weight.max(initial=0.0)]), "the largest weight"))
    if not found > 0:
        raise ValueError(
            "sample_weight and class_weight must leave a sample with a weight above 0, got 0 for all; raise one of them"
        )
    return found


def merge_repeated(
    X: np.ndarray, target: np.ndarray, weight: np.ndarray, ranks: Ranks
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Rows]:
    """Distinct samples in sorted order with their weights added up, those without weight left out.

    The objective is the same and costs less; and a weight is then worth a repetition to the last bit. Only the ratios
    of weights count: they are divided by a power of 2, so that in single precision none overflows and none is lost.

    Of several processes, the first that has a sample keeps it; the rows are numbered in sorted order over all. So a
    training does not depend on which process was given which samples.
    """
    largest = heaviest(weight, ranks)
    kept = weight > 0
    X, target, weight = X[kept], target[kept], np.ldexp(weight[kept], -int(np.frexp(largest)[1]))
    both = np.column_stack([X, target.reshape(len(target), *target.shape[1:] or (1,)).astype(np.float64)])
    # By keys, which takes a quarter of the time that rows do.
    _, first, which = np.unique(_sorting_keys(both), return_index=True, return_inverse=True)
    # Of no samples, NumPy counts in integers.
    total = np.bincount(which, weights=weight, minlength=len(first)).astype(np.float64)
    X, target, weight = X[first], target[first], total
    if ranks.is_alone:
        return X, target, weight, Rows(len(X))
    mine, weight, rows = _merge_over_ranks(both[first], weight, ranks)
    return X[mine], target[mine], weight, rows


def _merge_over_ranks(both: np.ndarray, weight: np.ndarray, ranks: Ranks) -> tuple[np.ndarray, np.ndarray, Rows]:
    """Which of the sorted rows this process keeps, their weights, and their numbers among those of all."""
    what, keys = "the samples, to find repeated ones", _sorting_keys(both)
    mine, total = np.ones(len(both), dtype=bool), weight.copy()
    for rank in range(ranks.count):
        theirs, added = (ranks.from_rank(rank, as_tensor(each), what).numpy() for each in (both, weight))
        if rank == ranks.rank or not len(theirs):
            continue
        others = _sorting_keys(theirs)
        place = np.searchsorted(others, keys).clip(max=len(others) - 1)
        same = others[place] == keys
        total[same] += added[place[same]]
        if rank < ranks.rank:
            mine &= ~same
    keys = keys[mine]
    n, places = len(keys), np.arange(len(keys))
    for rank in range(ranks.count):
        theirs = ranks.from_rank(rank, as_tensor(both[mine]), what).numpy()
        if rank != ranks.rank:
            n, places = n + len(theirs), places + np.searchsorted(_sorting_keys(theirs), keys)
    return mine, total[mine], Rows(n, torch.from_numpy(places))


def _sorting_keys(rows: np.ndarray) -> np.ndarray:
    """Rows of finite numbers as bytes that sort as the rows do, number by number."""
    bits = (np.ascontiguousarray(rows) + 0.0).view(np.int64)  # with one zero in place of two
    bits ^= (bits >> 63) | np.iinfo(np.int64).min  # the sign of all, and the other bits of negative numbers
    return bits.astype(">i8").view(f"S{8 * rows.shape[1]}").reshape(-1)


def classes_of_all(y: np.ndarray, ranks: Ranks) -> np.ndarray:
    """The classes in the labels of all processes, in order."""
    mine = np.unique(y)
    if ranks.is_alone:
        return mine
    with ranks.together("naming the classes"):
        text = json.dumps(labels_document(mine) if len(mine) else None)
    found = [labels_of(each) for each in map(json.loads, ranks.texts(text, "the classes")) if each is not None]
    kinds = {"text" if labels.dtype.kind in "UO" else "numbers" for labels in found}
    if len(kinds) != 1:
        got = "labels of both kinds" if found else "no samples on all ranks"
        raise ValueError(f"y must hold text on all ranks or numbers on all, got {got}; pass labels of one kind")
    return np.unique(np.concatenate(found))


def rows_of_all(values: np.ndarray, ranks: Ranks) -> np.ndarray:
    """The rows of all ranks."""
    if ranks.is_alone:
        return values
    return torch.cat([ranks.from_rank(r, as_tensor(values), "the samples") for r in range(ranks.count)]).numpy()
