"""Samples on their way into a network: tables, arrays, tensors, weights."""

from numbers import Real
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils import check_array, compute_class_weight
from sklearn.utils.validation import check_X_y, validate_data

from fracdnn.columns.encoding import Encoded, Encoding, row_from_0
from fracdnn.columns.frames import as_table
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.training import together
from fracdnn.training.together import Rows


def as_numpy(values: Any) -> Any:
    """A tensor of any device as an array; anything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values


def as_tensor(values: np.ndarray) -> torch.Tensor:
    """Without a copy where the array may be written; some tables' columns may not."""
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def checked_table(
    estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool, **options: Any
) -> tuple[Any, np.ndarray]:
    """X, and y where it is given, as scikit-learn wants them; cells may be missing, and numbers must be finite.

    X becomes an array or sparse matrix of numbers, a Polars frame, or stays `Encoded`.
    """
    options = {"dtype": np.float64, "accept_sparse": "csr", "ensure_all_finite": "allow-nan", **options}
    alone, given, X = isinstance(y, str), X, as_table(X)
    if isinstance(X, Encoded):
        if reset:
            estimator._take_encoding(X.encoding)
        elif X.encoding != estimator.encoding_:
            raise InvalidArgumentError("X must be encoded as in fit, got another encoding; pass the table itself")
    elif hasattr(X, "iter_columns"):
        validate_data(estimator, given, reset=reset, skip_check_array=True)  # names and number of columns
    else:
        found = validate_data(estimator, X, y, reset=reset, **options)
        return (found, y) if alone else found
    rows = np.zeros((len(X), 1))  # for scikit-learn's messages on their number
    if alone:
        check_array(rows, estimator=estimator, input_name="X", **options)
        return X, y
    return X, check_X_y(rows, y, estimator=estimator, **options)[1]


def inputs_of(encoding: Encoding, table: Any, rows: slice = slice(None)) -> np.ndarray:
    """The network's inputs for some rows of what `checked_table` gives."""
    if isinstance(table, Encoded):
        return table.inputs[rows]
    part = table[rows]
    return encoding(part.toarray() if issparse(part) else part, lambda row: row_from_0((rows.start or 0) + row))


def unseen_notes(encoding: Encoding, table: Any) -> list[str]:
    """What a user should know of categories in what `checked_table` gives that the training has not seen."""
    if isinstance(table, np.ndarray) or issparse(table):
        return []
    return encoding.unseen_notes(table.unseen if isinstance(table, Encoded) else encoding.unseen(table))


def check_one_label_each(y: Any) -> None:
    """Refuse several labels for a sample; scikit-learn itself takes [n, 1] for [n] and warns."""
    shape = y.shape if hasattr(y, "shape") else np.asarray(y).shape
    if len(shape) == 2 and shape[1] > 1:
        raise ValueError(
            f"y must hold one label for each sample, got shape {tuple(shape)}; FractionalRegressor takes several "
            f"outputs, and sklearn.multioutput.MultiOutputClassifier makes one classifier for each label"
        )


def checked_weights(given: Any, n: int) -> np.ndarray:
    """A weight for each of n samples, float64, from one for each, one for all, or None, which is 1."""
    with together.joint("checking sample_weight"):
        given = as_numpy(given)
        if not together.is_alone() and (not n or (given is not None and not np.any(given))):
            return np.zeros(n)  # other processes may have samples, or some with a weight
        if given is None or isinstance(given, Real):
            given = np.full(n, 1.0 if given is None else given)
        weight = check_array(given, dtype=np.float64, ensure_2d=False, input_name="sample_weight")
        if weight.shape != (n,) or (weight < 0).any():
            got = f"shape {weight.shape}" if weight.shape != (n,) else f"{weight.min()}"
            raise ValueError(
                f"sample_weight must hold a number for each of the {n} samples, none negative, got {got}; "
                f"pass an array of shape ({n},)"
            )
        return weight


def heaviest(weight: np.ndarray) -> float:
    """The largest weight of all processes, which must be above 0."""
    found = float(together.largest(torch.tensor([weight.max(initial=0.0)]), "the largest weight"))
    if not found > 0:
        raise ValueError(
            "sample_weight and class_weight must leave a sample with a weight above 0, got zero for all; raise one"
        )
    return found


def merge_repeated(
    X: np.ndarray, target: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Rows]:
    """Distinct samples of all processes in sorted order with their weights added up, those without weight left out.

    The objective is the same and costs less; and a weight is then worth a repetition to the last bit. Only the ratios
    of weights count: they are divided by a power of 2, so that in single precision none overflows and none is lost.

    Of several processes, the first that has a sample keeps it; the rows say which those of this one are. So a training
    does not depend on which process was given which samples.
    """
    largest = heaviest(weight)
    kept = weight > 0
    given = X[kept], target[kept], np.ldexp(weight[kept], -int(np.frexp(largest)[1]))
    several = together.from_each(given, "the samples, to find repeated ones")
    begin = sum(len(each[0]) for each in several[: together.rank()])
    X, target, weight = given if together.is_alone() else map(np.concatenate, zip(*several, strict=True))
    both = np.column_stack([X, target.astype(np.float64)])
    _, first, which = np.unique(both, axis=0, return_index=True, return_inverse=True)
    weight = np.bincount(which.reshape(-1), weights=weight, minlength=len(first))
    places = ((begin <= first) & (first < begin + len(given[0]))).nonzero()[0]
    rows = Rows(len(first), None if together.is_alone() else torch.from_numpy(places))
    return X[first], target[first], weight, rows


def classes_of_all(y: np.ndarray) -> np.ndarray:
    """The classes in the labels of all processes, in order."""
    found = [each for each in together.from_each(np.unique(y), "the classes") if len(each)]
    kinds = {"text" if labels.dtype.kind in "UO" else "numbers" for labels in found}
    if len(kinds) != 1:
        got = "labels of both kinds" if found else "no samples on all processes"
        raise ValueError(f"y must hold text on all processes or numbers on all, got {got}; pass labels of one kind")
    return np.unique(np.concatenate(found))


def class_weights(given: dict | str | None, classes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """A weight for each class, 1 where none is given; "balanced" divides by `counts`, how many samples a class has."""
    if given == "balanced":
        return counts.sum() / (len(classes) * counts)
    for name, weight in given.items() if isinstance(given, dict) else ():
        if not (np.isfinite(weight) and weight >= 0):
            raise ValueError(
                f"class_weight must hold finite numbers not below 0, got {weight} for class {name!r}; "
                f"0 leaves a class out"
            )
    return compute_class_weight(given, classes=classes, y=classes)
