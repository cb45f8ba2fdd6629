"""The columns of X and the inputs of the network, as an estimator keeps them."""

import warnings
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_X_y, validate_data

from fracdnn.columns.encoding import Encoded, Encoding, learn, row_from_0
from fracdnn.columns.frames import as_table
from fracdnn.estimators.sample_checks import dense, heaviest
from fracdnn.estimators.shaping import Shaping
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import Standardization, together


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
    return encoding(dense(table[rows]), lambda row: row_from_0((rows.start or 0) + row))


def unseen_notes(encoding: Encoding, table: Any) -> list[str]:
    """What a user should know of categories in what `checked_table` gives that the training has not seen."""
    if isinstance(table, Encoded):
        return encoding.unseen_notes(table.unseen)
    return encoding.unseen_notes(encoding.unseen(table)) if hasattr(table, "iter_columns") else []


class Inputs:
    """What a fit learned of the columns of X: names, encoding, scaling."""

    network_: FractionalNetwork
    encoding_: Encoding
    standardization_: Standardization
    shaping_: Shaping
    n_features_in_: int
    feature_names_in_: np.ndarray

    def _encoded(self, table: Any, weight: np.ndarray, *, new: bool) -> np.ndarray:
        """The network's inputs; of a new fit these samples say which."""
        if new and not isinstance(table, Encoded):
            heaviest(weight)
            self.encoding_, notes = learn(table, weight, self._column_names())
            for note in notes if together.is_first() else ():
                warnings.warn(note.removeprefix("warning: "), stacklevel=4)
        with together.joint("encoding the samples"):
            return inputs_of(self.encoding_, table)

    def _column_names(self) -> list[str]:
        """As scikit-learn names them where X has no names."""
        names = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if names is None else [str(name) for name in names]

    def _take_encoding(self, encoding: Encoding) -> None:
        """Features are what this makes of columns with names."""
        self.encoding_, self.n_features_in_ = encoding, len(encoding.columns)
        self.feature_names_in_ = np.array(encoding.names, dtype=object)

    def _take_numbers(self) -> None:
        """Features are numbers of which no more is known than their means, which fill in missing ones."""
        self.encoding_ = Encoding.of_numbers(self.standardization_.mean.tolist(), self._column_names())

    def _features_document(self) -> dict[str, Any]:
        names = getattr(self, "feature_names_in_", None)
        return {
            "standardization": vars(self.standardization_),
            "shaping": vars(self.shaping_),
            "encoding": self.encoding_.to_document(),
            "features": {"n": self.n_features_in_, "names": None if names is None else [str(name) for name in names]},
        }

    def _take_features(self, document: dict[str, Any]) -> None:
        n, names = document["features"]["n"], document["features"]["names"]
        n_inputs = len(document["standardization"]["mean"])
        self.shaping_ = Shaping.of_document(document["shaping"], n_inputs)
        if self.network_.architecture.n_features != n_inputs + self.shaping_.n_added or n != len(document["encoding"]):
            raise ValueError("other features than the network's")
        self.standardization_ = Standardization.of_document(document["standardization"], n_inputs)
        self.encoding_, self.n_features_in_ = Encoding.of_document(document["encoding"]), n
        if names is not None:
            if names != self.encoding_.names:
                raise ValueError("names of other features than the network's")
            self.feature_names_in_ = np.array(names, dtype=object)
        if len(self.encoding_.feature_names) != n_inputs:
            raise ValueError("columns of other inputs than the network's")
