"""A model of a table: which columns it uses, how they become features, and the estimator."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fracdnn.columns.cells import has_no_text, missing_as_null, numbers_in, parsed
from fracdnn.columns.dates import orders_of, seconds_in
from fracdnn.columns.encoding import Encoded, Encoding
from fracdnn.columns.frames import as_polars
from fracdnn.columns.late import pl
from fracdnn.columns.words import check_columns, check_target_name, listed, quoted
from fracdnn.container import checked, read_document, write_document
from fracdnn.estimators.classifier import FractionalClassifier
from fracdnn.estimators.estimator import FractionalEstimator
from fracdnn.estimators.regressor import FractionalRegressor
from fracdnn.exceptions import TableError
from fracdnn.extras import require

# A target of whole numbers with at most this many different ones is taken for classes.
MOST_CLASSES = 20


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
    def encoding(self) -> Encoding:
        return self.estimator.encoding_

    def features(self, table: Any, *, row_numbers: np.ndarray | None = None) -> Encoded:
        """The table's features as the estimator takes them, from columns in any order; others are not looked at.

        `row_numbers` are those of its rows in messages, from 1 on unless they are passed.
        """
        names = self.encoding.names
        frame = as_polars(table, names)
        check_columns(names, frame.columns)
        frame = frame.select(names)
        inputs = self.encoding(frame, lambda row: f"row {row + 1 if row_numbers is None else row_numbers[row]}")
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


def split_target(table: "pl.DataFrame", target: str) -> "tuple[pl.DataFrame, pl.Series, np.ndarray]":
    """The other columns and the target of the rows that have one, and the places of these."""
    check_target_name(target, table.columns)
    values = target_column(table, target)
    places = values.is_not_null().arg_true().to_numpy()
    if not len(places):
        raise no_values(target)
    return table[places].drop(target), values.drop_nulls(), places


def target_column(table: "pl.DataFrame", target: str) -> "pl.Series":
    return missing_as_null(table[target])


def task_of(values: "pl.Series", decimal: str = "") -> str:
    """Text, truth values and few whole numbers call for "classification", other numbers for "regression".

    Dates are refused: as classes they would be many, and nothing says that they are values.
    """
    numbers = None if values.dtype == pl.Boolean else numbers_in(values, decimal=decimal)
    if numbers is None:
        refuse_dates(values)
        return "classification"
    few = numbers.n_unique() <= MOST_CLASSES and _are_labels(numbers)
    return "classification" if few else "regression"


def _are_labels(numbers: "pl.Series") -> bool:
    """Whole numbers that float64 holds exactly."""
    return bool(((numbers == numbers.round()) & (numbers.abs() < 2**53)).all())


def target_values(values: "pl.Series", task: str, decimal: str = "") -> np.ndarray:
    """Class labels as text or whole numbers, or values as float64."""
    if task == "regression":
        numbers = numbers_in(values, decimal=decimal)
        if numbers is None or not bool(numbers.is_finite().all()):
            raise no_finite_numbers(values)
        return numbers.to_numpy()
    numbers = None if values.dtype == pl.Boolean else numbers_in(values, units=False)
    if numbers is not None and _are_labels(numbers):
        return numbers.cast(pl.Int64).to_numpy()
    if has_no_text(values.dtype):
        raise TableError(
            f"the target column {quoted(values.name)} must hold numbers or text, got cells of type {values.dtype}; "
            f"save them as text"
        )
    return values.cast(pl.String).to_numpy().astype(str)


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


def refuse_dates(values: "pl.Series") -> None:
    found = [order for order in orders_of(values.dtype) if not seconds_in(values, order=order).null_count()]
    if found:
        name, what = quoted(values.name), "times of day" if found[0] == "clock" else "dates"
        since = "hours since midnight" if found[0] == "clock" else "days since a fixed one"
        raise TableError(
            f"the target column {name} must hold classes or numbers, got {what}; to predict them, add a column with "
            f"the {since}, pass that as --target, and leave this one out: --drop {name}; "
            f"--task classification takes each as a class"
        )


def no_values(target: str) -> TableError:
    return TableError(f"the target column {quoted(target)} must hold values, got none; check the table")


def no_finite_numbers(values: "pl.Series") -> TableError:
    refuse_dates(values)
    others = values.filter(parsed(values).is_null()) if values.dtype == pl.String else values.head(0)
    got = listed(others.unique(maintain_order=True).to_list(), 3) if len(others) else "other cells"
    return TableError(
        f"the target column {quoted(values.name)} must hold finite numbers for a regression, got {got}; "
        f"correct such cells or leave them empty, or pass --task classification"
    )
