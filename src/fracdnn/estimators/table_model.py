"""A model of a table: which columns it uses, how they become features, and the estimator."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fracdnn.container import checked, read_document, write_document
from fracdnn.estimators.classifier import FractionalClassifier
from fracdnn.estimators.estimator import FractionalEstimator
from fracdnn.estimators.regressor import FractionalRegressor
from fracdnn.exceptions import TableError
from fracdnn.extras import require
from fracdnn.tables.encoder import Encoded, Encoder
from fracdnn.tables.frames import as_polars
from fracdnn.tables.targets import target_values
from fracdnn.tables.words import check_columns, listed

if TYPE_CHECKING:
    import polars as pl

# The estimators that a model file may hold: reading one builds no other class.
ESTIMATORS: dict[str, type[FractionalEstimator]] = {
    kind.__name__: kind for kind in (FractionalClassifier, FractionalRegressor)
}


@dataclass(frozen=True)
class TableModel:
    """Predictions for tables with the columns of the training table, in any order.

    `details` says how the model came about: settings of the training and what it reached on the held-out part.
    """

    estimator: FractionalEstimator
    target: str
    details: dict[str, Any]

    @property
    def is_classifier(self) -> bool:
        return isinstance(self.estimator, FractionalClassifier)

    @property
    def encoding(self) -> Encoder:
        return self.estimator.encoding_

    def features(self, table: Any, *, row_numbers: np.ndarray | None = None) -> Encoded:
        """The table's features as the estimator takes them, from columns in any order; others are not looked at.

        `row_numbers` are those of its rows in messages, from 1 on unless they are passed.
        """
        names = self.encoding.names
        frame = as_polars(table, names)
        check_columns(names, frame.columns)
        frame = frame.select(names)
        numbers = np.arange(1, len(frame) + 1) if row_numbers is None else row_numbers
        inputs = self.encoding.transform(frame, lambda row: f"row {numbers[row]}")
        return Encoded(inputs, self.encoding, self.encoding.unseen(frame))

    def predict(self, table: Any, **options: Any) -> Any:
        """A class or a value for each row of a Polars or pandas frame; a warning counts categories that are new.

        The options are those of the estimator's `predict`, such as `interval=0.9`.
        """
        return self.estimator.predict(self.features(table), **options)

    def predict_proba(self, table: Any) -> np.ndarray:
        """The probability of each class of `estimator.classes_`."""
        return self.estimator.predict_proba(self.features(table))

    def save(self, path: str | os.PathLike) -> Path:
        """Write the estimator and what it is for to one file; `fracdnn.load` reads it."""
        table = {"target": self.target, "details": self.details}
        return write_document(path, "model", {**self.estimator._to_document(), "table": table})


def load(path: str | os.PathLike) -> Any:
    """What `save` wrote: an estimator, or a `TableModel` where the file was made from a table."""
    document = read_document(path, "model")
    with checked(path, "model"):
        estimator = ESTIMATORS[document["estimator"]]._from_document(document)
        if "table" not in document:
            return estimator
        require("polars")
        table = document["table"]
        if not isinstance(table["target"], str) or not isinstance(table["details"], dict):
            raise TypeError("a target that is no name, or details that are none")
        return TableModel(estimator, table["target"], table["details"])


def true_answers(model: TableModel, values: "pl.Series") -> np.ndarray:
    """The true values, or the classes as the model has them; a class it has never seen is an error."""
    if not model.is_classifier:
        return target_values(values, "regression", model.details.get("decimal", ""))
    classes = model.estimator.classes_
    if classes.dtype.kind == "U" and values.dtype == str and values.is_in(classes.tolist()).all():
        return values.to_numpy().astype(str)  # as they are, also where all of this part look like numbers
    labels = target_values(values, "classification")
    if classes.dtype.kind == "U":
        labels = labels.astype(str)
    unknown = sorted({str(label) for label in labels} - {str(name) for name in classes})
    if unknown:
        raise TableError(
            f"the target column {model.target!r} must hold classes of the training table, got {listed(unknown)}; "
            f"it knows {listed([str(name) for name in classes])}"
        )
    return labels
