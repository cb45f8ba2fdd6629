"""What is to be predicted from a table: classes or values, and what one pass keeps of their column."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from fracdnn.columns.cells import PLAIN, Marks, Writing, may_be_numbers, parsed
from fracdnn.columns.late import pl
from fracdnn.columns.summaries import Moments, Sums
from fracdnn.columns.words import quoted
from fracdnn.exceptions import TableError
from fracdnn.tabular.model import no_finite_numbers, target_values, task_of
from fracdnn.training import Standardization

MOST_LABELS = 10_000


@dataclass(frozen=True)
class Target:
    """What is to be predicted: classes with the number of rows to learn from that have them, or a scale of values."""

    name: str
    task: str
    classes: np.ndarray | None
    counts: np.ndarray
    scale: Standardization | None
    least: float
    most: float
    writing: Writing = PLAIN

    def digest(self) -> str:
        scale = None if self.scale is None else [self.scale.mean.tolist(), self.scale.deviation.tolist()]
        classes = None if self.classes is None else self.classes.tolist()
        return repr((self.name, self.task, classes, self.counts.tolist(), scale))

    def values(self, column: "pl.Series") -> np.ndarray:
        """Labels or values as the whole table has them, whatever this part of it looks like."""
        if self.classes is None:
            return parsed(column, *self.writing).to_numpy()
        if self.classes.dtype.kind == "U":
            return column.cast(pl.String).to_numpy().astype(str)
        return parsed(column).cast(pl.Int64).to_numpy()


@dataclass(frozen=True)
class TargetNumbers(Sums):
    """A target whose cells are all numbers: moments of those to learn from, the ends of all."""

    ways: ClassVar = {"least": min, "most": max}
    moments: Moments
    least: float
    most: float


def _both(mine: "pl.DataFrame | None", theirs: "pl.DataFrame | None") -> "pl.DataFrame | None":
    return None if mine is None or theirs is None else _few(pl.concat([mine, theirs], how="vertical_relaxed"))


@dataclass(frozen=True)
class TargetSummary(Sums):
    """The numbers of a target, with a decimal point and with a comma, what tells which it is, and its labels while they
    are few, with the number of rows to learn from; or None.
    """

    ways: ClassVar = {"labels": _both}
    numbers: tuple[TargetNumbers, ...] | None
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
        tries_numbers, tries_labels = may_be_numbers(column.dtype), True
        if before is not None:
            tries_numbers, tries_labels = before.numbers is not None, before.labels is not None
        labels = _few(pl.DataFrame({"label": column, "learned": learned}), most_labels) if tries_labels else None
        return cls(_numbers(column, learned) if tries_numbers else None, Marks.of(column), labels)

    def target(self, name: str, task: str, decimal: str = "") -> Target:
        """The target of that name, whose whole column this is the summary of."""
        if task == "auto" and self.labels is None:
            task = "regression" if self.numbers and self.marks.are_one_unit else "classification"
        elif task == "auto" and self.labels is not None:
            task = task_of(self.labels["label"].alias(name), decimal)
        return self._values(name, decimal) if task == "regression" else self._classes(name)

    def _values(self, name: str, decimal: str) -> Target:
        writing = self.marks.writing(name, decimal) if self.numbers and self.marks.are_one_unit else PLAIN
        numbers = self.numbers[writing.decimal == ","] if self.numbers and self.marks.are_one_unit else None
        if numbers is None or not (math.isfinite(numbers.least) and math.isfinite(numbers.most)):
            cells = pl.Series([]) if self.labels is None else self.labels["label"]
            raise no_finite_numbers(cells.alias(name))
        mean, deviation = (torch.from_numpy(part) for part in (numbers.moments.mean, numbers.moments.deviation))
        scale = Standardization.of_moments(mean, deviation)
        return Target(name, "regression", None, numbers.moments.count, scale, numbers.least, numbers.most, writing)

    def _classes(self, name: str) -> Target:
        if self.labels is None:
            raise TableError(
                f"the target column {quoted(name)} must hold at most {MOST_LABELS:,} classes when streamed, "
                f"got more; group them, or pass --memory-limit to read the table whole"
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
        return Target(name, "classification", classes, counts, None, math.nan, math.nan)


def check_every_class(counts: np.ndarray) -> None:
    if not counts.all():
        raise TableError(
            f"the rows to learn from must hold all {len(counts)} classes, got {np.count_nonzero(counts)}; "
            f"pass a smaller --test-fraction"
        )


def _numbers(column: "pl.Series", learned: np.ndarray) -> tuple[TargetNumbers, ...] | None:
    found = []
    for decimal in (".", ","):
        values = parsed(column, decimal)
        if values.null_count():
            return None
        numbers = values.to_numpy()
        kept = numbers[learned & np.isfinite(numbers)]
        ends = float(numbers.min(initial=math.inf)), float(numbers.max(initial=-math.inf))
        found.append(TargetNumbers(Moments.of(kept[:, None]), *ends))
    return tuple(found)


def _few(labels: "pl.DataFrame", most: int = MOST_LABELS) -> "pl.DataFrame | None":
    """Each label once, in the order in which they come."""
    found = labels.group_by("label", maintain_order=True).agg(pl.col("learned").sum().cast(pl.Int64))
    return found if found.height <= most else None
