"""The column to be predicted: classes or values."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fracdnn.exceptions import InvalidArgumentError, TableError
from fracdnn.tables.cells import Marks, has_no_text, missing_as_null, numbers_in, parsed
from fracdnn.tables.dates import orders_of, seconds_in
from fracdnn.tables.late import pl
from fracdnn.tables.words import check_target_name, listed, quoted

# A target of whole numbers with at most this many different ones is taken for classes.
MOST_CLASSES = 20
# Whole numbers up to this size are exact in float64.
MOST_EXACT = 2**53


@dataclass(frozen=True, eq=False)
class Target:
    """A target: its labels or values `y`, the `classes` with the number of rows that have them, or the range of values.

    `decimal` is the sign with which numbers are written.
    """

    name: str
    y: np.ndarray
    classes: np.ndarray | None
    counts: np.ndarray
    least: float = math.nan
    most: float = math.nan
    decimal: str = ""

    @property
    def task(self) -> str:
        """What to train: "regression" or "classification"."""
        return "regression" if self.classes is None else "classification"

    @classmethod
    def of(cls, column: "pl.Series", task: str = "auto", decimal: str = "") -> "Target":
        """Read a column without missing cells; `task` "auto" lets its cells decide."""
        task = task_of(column, decimal) if task == "auto" else task
        y, name = target_values(column, task, decimal), quoted(column.name)
        if task == "regression":
            sign = Marks.of(missing_as_null(column)).decimal(column.name, decimal)
            return cls(column.name, y, None, np.array([len(y)]), float(y.min()), float(y.max()), sign)
        classes, counts = np.unique(y, return_counts=True)
        if len(classes) < 2:
            raise TableError(
                f"the target column {name} must hold two classes at least, got only {str(classes[0])!r}; "
                f"add rows of another class, or name another column"
            )
        if counts.max() < 2:  # a class that occurs once is a name, of which nothing can be learned
            raise TableError(
                f"the target column {name} must hold classes of several rows, got {len(counts):,} of one row "
                f"each; name another column, or pass --task regression for numbers"
            )
        return cls(column.name, y, classes, counts)


def split_target(table: "pl.DataFrame", target: str) -> "tuple[pl.DataFrame, pl.Series, np.ndarray]":
    """Return the other columns and the target of the rows that have one, and the places of these rows."""
    check_target_name(target, table.columns)
    values = target_column(table, target)
    places = values.is_not_null().arg_true().to_numpy()
    if not len(places):
        raise no_values(target)
    return table[places].drop(target), values.drop_nulls(), places


def target_column(table: "pl.DataFrame", target: str) -> "pl.Series":
    """Return the target with nulls for missing cells."""
    return missing_as_null(table[target])


def task_of(values: "pl.Series", decimal: str = "") -> str:
    """Return "classification" for text, truth values and few whole numbers, "regression" for other numbers.

    Dates are refused: as classes they would be many, and nothing says that they are values.
    """
    numbers = None if values.dtype == pl.Boolean else numbers_in(values, decimal=decimal)
    if numbers is None:
        refuse_dates(values)
        return "classification"
    few = numbers.n_unique() <= MOST_CLASSES and _are_labels(numbers)
    return "classification" if few else "regression"


def _are_labels(numbers: "pl.Series") -> bool:
    """Return True for whole numbers that float64 holds exactly."""
    return bool(((numbers == numbers.round()) & (numbers.abs() < MOST_EXACT)).all())


def target_values(values: "pl.Series", task: str, decimal: str = "") -> np.ndarray:
    """Return class labels as text or whole numbers, or values as float64."""
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


def check_no_text(y: Any) -> None:
    """Raise an error that names the first cell of a regression's target which is text, but not a number."""
    cells = np.asarray(y)
    width = cells.shape[1] if cells.ndim == 2 else 1
    for place, cell in enumerate(cells.ravel().tolist() if cells.dtype.kind in "OU" else ()):
        try:
            float(cell if isinstance(cell, str) else 0)
        except ValueError:
            names = list(getattr(y, "columns", ())) or [getattr(y, "name", None)]
            name = names[place % width] if place % width < len(names) else None
            column = "" if name is None else f" of column {quoted(str(name))}"
            raise InvalidArgumentError(
                f"y must hold numbers for a regression, got {quoted(cell)} in row {place // width} (the first is 0)"
                f"{column}; correct the cell or leave out the row, or use FractionalClassifier for classes"
            ) from None


def check_every_class(counts: np.ndarray) -> None:
    """Raise an error if a class has no row to learn from."""
    if not counts.all():
        raise TableError(
            f"the rows to learn from must hold all {len(counts)} classes, got {np.count_nonzero(counts)}; "
            f"pass a smaller --test-fraction"
        )


def refuse_dates(values: "pl.Series") -> None:
    """Raise an error for a column of dates or times of day."""
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
    """Return the error for a target without values."""
    return TableError(f"the target column {quoted(target)} must hold values, got none; check the table")


def no_finite_numbers(values: "pl.Series") -> TableError:
    """Return the error for a target that is not all numbers, with examples of its other cells."""
    refuse_dates(values)
    others = values.filter(parsed(values).is_null()) if values.dtype == pl.String else values.head(0)
    got = listed(others.unique(maintain_order=True).to_list(), 3) if len(others) else "other cells"
    return TableError(
        f"the target column {quoted(values.name)} must hold finite numbers for a regression, got {got}; "
        f"correct such cells or leave them empty, or pass --task classification"
    )
