"""What is to be predicted from a table: classes or values, and what one pass keeps of their column."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fracdnn.exceptions import TableError
from fracdnn.tables.cells import Marks, has_no_text, may_be_numbers, missing_as_null, numbers_in, parsed
from fracdnn.tables.dates import orders_of, seconds_in
from fracdnn.tables.late import pl
from fracdnn.tables.summaries import Sums
from fracdnn.tables.summary import Reading, merged_readings, number_readings
from fracdnn.tables.words import check_target_name, listed, quoted

MOST_LABELS = 10_000
# A target of whole numbers with at most this many different ones is taken for classes.
MOST_CLASSES = 20


@dataclass(frozen=True, eq=False)
class Target:
    """What is to be predicted: classes with the number of rows to learn from that have them, or values."""

    name: str
    classes: np.ndarray | None
    counts: np.ndarray
    least: float = math.nan
    most: float = math.nan
    decimal: str = ""
    unit: str = ""

    @property
    def task(self) -> str:
        return "regression" if self.classes is None else "classification"

    def values(self, column: "pl.Series") -> np.ndarray:
        """Labels or values as the whole table has them, whatever this part of it looks like."""
        if self.classes is None:
            return parsed(column, self.decimal, self.unit).to_numpy()
        if self.classes.dtype.kind == "U":
            return column.cast(pl.String).to_numpy().astype(str)
        return parsed(column).cast(pl.Int64).to_numpy()


def _both(mine: "pl.DataFrame | None", theirs: "pl.DataFrame | None") -> "pl.DataFrame | None":
    return None if mine is None or theirs is None else _few(pl.concat([mine, theirs], how="vertical_relaxed"))


@dataclass(frozen=True, eq=False)
class TargetSummary(Sums):
    """The numbers of a target by their decimal sign, none where a cell is no number, what tells which it is, and its
    labels while they are few, with the number of rows to learn from; or None.
    """

    ways: ClassVar = {"labels": _both, "numbers": merged_readings}
    numbers: dict[str, Reading]
    marks: Marks
    labels: "pl.DataFrame | None"

    @classmethod
    def of(
        cls,
        column: "pl.Series",
        learned: np.ndarray,
        *,
        most_labels: int = MOST_LABELS,
        before: "TargetSummary | None" = None,
    ) -> "TargetSummary":
        """Of one more part, in which no cell is missing; `learned` [n] says which rows to learn from.

        What the part `before` has turned out not to be is not tried again.
        """
        target_values(column.head(0), "classification")  # which refuses some types
        marks, numbers, labels = Marks.of(column), {}, None
        if may_be_numbers(column.dtype) and (before is None or before.numbers):
            numbers = number_readings(column, marks, learned.astype(float))
        if before is None or before.labels is not None:
            labels = _few(pl.DataFrame({"label": column, "learned": learned}), most_labels)
        return cls({} if any(each.strays.count for each in numbers.values()) else numbers, marks, labels)

    def target(self, name: str, task: str, decimal: str = "") -> Target:
        """The target of that name, whose whole column this is the summary of."""
        if task == "auto" and self.labels is not None:
            task = task_of(self.labels["label"].alias(name), decimal)
        elif task == "auto":
            task = "regression" if self.numbers and self.marks.are_one_unit else "classification"
        return self._values(name, decimal) if task == "regression" else self._classes(name)

    def _values(self, name: str, decimal: str) -> Target:
        are_numbers = bool(self.numbers) and self.marks.are_one_unit
        decimal = self.marks.decimal(name, decimal) if are_numbers else ""
        numbers = self.numbers.get(decimal) or self.numbers["."] if are_numbers else None
        if numbers is None or numbers.infinite:
            cells = pl.Series([]) if self.labels is None else self.labels["label"]
            raise no_finite_numbers(cells.alias(name))
        count = numbers.moments.count
        return Target(name, None, count, float(numbers.least[0]), float(numbers.most[0]), decimal, self.marks.unit)

    def _classes(self, name: str) -> Target:
        if self.labels is None:
            raise TableError(
                f"the target column {quoted(name)} must hold at most {MOST_LABELS:,} classes, "
                f"got more; group them, or pass --task regression for numbers"
            )
        labels = target_values(self.labels["label"].alias(name), "classification")
        classes, which = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise TableError(
                f"the target column {quoted(name)} must hold two classes at least, got only {str(classes[0])!r}; "
                f"add rows of another class, or name another column"
            )
        counts = np.bincount(which, weights=self.labels["learned"].to_numpy())
        if counts.max() < 2:  # what occurs once is a name, and nothing can be learned of it
            raise TableError(
                f"the target column {quoted(name)} must hold classes of several rows, got {len(counts):,} of one row "
                f"each; name another column, or pass --task regression for numbers"
            )
        check_every_class(counts)
        return Target(name, classes, counts)


def check_every_class(counts: np.ndarray) -> None:
    if not counts.all():
        raise TableError(
            f"the rows to learn from must hold all {len(counts)} classes, got {np.count_nonzero(counts)}; "
            f"pass a smaller --test-fraction"
        )


def _few(labels: "pl.DataFrame", most: int = MOST_LABELS) -> "pl.DataFrame | None":
    """Each label once, in the order in which they come."""
    found = labels.group_by("label", maintain_order=True).agg(pl.col("learned").sum().cast(pl.Int64))
    return found if found.height <= most else None


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
