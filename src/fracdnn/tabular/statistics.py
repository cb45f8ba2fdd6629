"""What a training needs to know of a table before it begins, from one pass over its chunks, in bounded memory.

Each column keeps a summary; summaries say what `Preparation.of` and `Standardization.of` would say of the whole table:
the same columns, categories and moments (up to rounding), and medians as `Quantiles` has them.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fracdnn.exceptions import TableError
from fracdnn.tabular.preparation import (
    MOST_CATEGORIES,
    Column,
    Preparation,
    as_categories,
    check_commas,
    has_no_text,
    is_ambiguous,
    missing_as_null,
    parsed,
    prepared,
    quoted,
    too_many_categories,
)
from fracdnn.tabular.summaries import Moments, Quantiles
from fracdnn.training import Standardization

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Places:
    """Where the rows of a chunk stand: the file, and the row of each in it, the first being 1."""

    file: str
    rows: np.ndarray

    def name(self, place: int) -> str:
        return f"row {self.rows[place]} of {self.file}"


class TableStatistics:
    """Summaries of the columns of a table, from the rows to learn from; the others are only checked."""

    def __init__(self, schema: "Mapping[str, pl.DataType]", *, categorical: Sequence[str] = ()) -> None:
        self._columns = {name: ColumnStatistics(name, kind, name in categorical) for name, kind in schema.items()}

    def add(self, frame: "pl.DataFrame", learned: "pl.Series", places: "Places") -> None:
        """One more chunk; `learned` [n] says which rows to learn from."""
        for name, column in self._columns.items():
            column.add(frame[name], learned, places)

    def preparation(self) -> tuple[Preparation, list[str]]:
        """As `Preparation.of`: what the columns are, and a sentence for each that is left out."""
        found = prepared({name: column.found() for name, column in self._columns.items()})
        for name in found[0].number_names:
            self._columns[name].check_cells()
        return found

    def standardization(self, preparation: Preparation) -> Standardization:
        """Mean and deviation of the features that the preparation makes of the rows to learn from."""
        number = [self._columns[c.name].moments_filled(c.median) for c in preparation.columns if c.median is not None]
        shares = [
            self._columns[c.name].share(value)
            for c in preparation.columns
            for value in c.categories
            if c.kind == "category"
        ]
        share = np.array(shares)
        mean = np.concatenate([*(each.mean for each in number), share])
        deviation = np.concatenate([*(each.deviation for each in number), np.sqrt(share * (1.0 - share))])
        return Standardization.of_moments(torch.from_numpy(mean), torch.from_numpy(deviation))

    def rank_error(self, name: str) -> float:
        """By which share of a column's numbers the rank of its median may be off."""
        column = self._columns[name]
        return column.quantiles.rank_error / max(1.0, float(column.moments.count[0]))

    def digest(self) -> str:
        """The same for the same table; another one has other sums."""
        digest = hashlib.sha256()
        for column in self._columns.values():
            digest.update(repr(column.name).encode())
            for part in (column.moments.count, column.moments.mean, column.moments.deviation):
                digest.update(part.tobytes())
            digest.update(repr(sorted(column.categories.items())).encode())
        return digest.hexdigest()


class ColumnStatistics:
    """A column: its numbers while all its cells are numbers, its categories while they are few."""

    def __init__(self, name: str, dtype: "pl.DataType", categorical: bool) -> None:
        import polars as pl

        self.name, self._dtype = name, dtype
        self._usable = not (dtype.is_temporal() or has_no_text(dtype))
        self._may_be_numbers = not categorical and (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null, pl.String))
        self._may_be_categories = self._usable and not (self._may_be_numbers and dtype != pl.String)
        self.quantiles, self.moments = Quantiles(), Moments.of(np.empty((0, 1)))
        self.categories: Counter[str] = Counter()
        self._rows = self._cells = 0
        self._commas = self._ambiguous = 0
        self._comma = ""
        # The first cells that are no number: not at all, and not finite.
        self._bad = self._infinite = ""

    def add(self, column: "pl.Series", learned: "pl.Series", places: "Places") -> None:
        column = missing_as_null(column)
        kept = column.filter(learned)
        self._rows += len(kept)
        self._cells += len(kept) - kept.null_count()
        if self.is_number:
            self._add_numbers(column, learned, places)
        if self._may_be_categories:
            counts = as_categories(kept).value_counts(name="n")
            self.categories.update(dict(zip(counts[self.name], counts["n"], strict=True)))
            self._may_be_categories = len(self.categories) <= MOST_CATEGORIES
            if not self._may_be_categories:
                self.categories.clear()

    @property
    def is_number(self) -> bool:
        """Whether all cells to learn from are numbers."""
        return self._may_be_numbers and self._usable

    def found(self) -> Column | str:
        """What the column is, or why it cannot be used."""
        if not self._cells:
            return "it is empty"
        if not self._usable:
            return f"its type {self._dtype} is neither a number nor a category"
        if self.is_number:
            if self._commas:
                check_commas(self.name, self._comma, self._commas == self._ambiguous)
            if not self.moments.count[0]:
                return "it holds no finite number"
            return Column(self.name, "number", median=self.quantiles.median())
        if not self._may_be_categories:
            return too_many_categories(MOST_CATEGORIES + 1, self._rows, more=True)
        known = tuple(sorted(self.categories))
        return too_many_categories(len(known), self._rows) or Column(self.name, "category", categories=known)

    def check_cells(self) -> None:
        """A column of numbers must hold nothing else, in no row."""
        for cell, rule in ((self._bad, "numbers"), (self._infinite, "finite numbers")):
            if cell:
                raise TableError(
                    f"column {quoted(self.name)} must hold {rule}, got {cell}; "
                    f"correct the cell, or leave it empty if it is not known"
                )

    def moments_filled(self, median: float) -> Moments:
        """With the median in place of each missing number."""
        missing = np.array([self._rows - self.moments.count[0]])
        return self.moments.merged(Moments(missing, np.array([median]), np.zeros(1)))

    def share(self, category: str) -> float:
        return self.categories[category] / self._rows

    def _add_numbers(self, column: "pl.Series", learned: "pl.Series", places: "Places") -> None:
        import polars as pl

        values = parsed(column)
        if column.dtype == pl.String:
            bad = column.is_not_null() & values.is_null()
            if (bad & learned).any():
                self._may_be_numbers = False
                return
            if bad.any() and not self._bad:
                row = int(bad.arg_max() or 0)
                self._bad = f"{quoted(column[row])} in {places.name(row)}"
            self._note_commas(column.filter(learned & column.str.contains(",", literal=True).fill_null(False)))
        numbers = values.fill_null(float("nan")).to_numpy()
        if not self._infinite and np.isinf(numbers).any():
            row = int(np.isinf(numbers).argmax())
            self._infinite = f"{numbers[row]} in {places.name(row)}"
        numbers = numbers[learned.to_numpy()]
        numbers = numbers[np.isfinite(numbers)]
        self.quantiles.add(numbers)
        self.moments = self.moments.merged(Moments.of(numbers[:, None]))

    def _note_commas(self, cells: "pl.Series") -> None:
        if len(cells):
            self._comma = self._comma or cells[0]
            self._commas += len(cells)
            self._ambiguous += int(is_ambiguous(cells).sum())
