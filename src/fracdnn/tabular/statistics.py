"""What a training needs to know of a table before it begins, from the summaries of its columns.

They say what `Preparation.of` and `Standardization.of` would say of the whole table: the same columns, categories and
moments (up to rounding), and medians as `Quantiles` has them.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fracdnn.exceptions import TableError
from fracdnn.tabular.cells import are_numbers, skips_text
from fracdnn.tabular.columns import Cell, ColumnSummary, Numbers, is_usable
from fracdnn.tabular.preparation import MOST_CATEGORIES, Column, Preparation, prepared, too_many_categories
from fracdnn.tabular.summaries import Moments
from fracdnn.tabular.words import quoted
from fracdnn.training import Standardization

if TYPE_CHECKING:
    import polars as pl


class TableStatistics:
    """The columns of a table, from the rows to learn from; `place` says in words where a cell is."""

    def __init__(
        self, schema: "Mapping[str, pl.DataType]", summaries: Sequence[ColumnSummary], place: Callable[[Cell], str]
    ) -> None:
        found = zip(schema.items(), summaries, strict=True)
        self._columns = {name: _ColumnStatistics(name, dtype, summary) for (name, dtype), summary in found}
        self._place = place

    def preparation(self) -> tuple[Preparation, list[str]]:
        """As `Preparation.of`: what the columns are, and a sentence for each that is left out or has cells that are."""
        found = {name: column.found() for name, column in self._columns.items()}
        strays = {
            name: self._columns[name].numbers.strays
            for name, column in found.items()
            if isinstance(column, Column) and column.skips_text
        }
        preparation, notes = prepared(found, strays)
        for column in preparation.columns:
            if column.kind == "number":
                self._columns[column.name].check_cells(self._place, column.skips_text)
        return preparation, notes

    def standardization(self, preparation: Preparation) -> Standardization:
        """Mean and deviation of the features that the preparation makes of the rows to learn from."""
        number = [self._columns[c.name].moments_filled(c.median) for c in preparation.columns if c.median is not None]
        shares = [
            share
            for c in preparation.columns
            if c.kind == "category"
            for share in self._columns[c.name].shares(c.categories)
        ]
        share = np.array(shares)
        mean = np.concatenate([*(each.mean for each in number), share])
        deviation = np.concatenate([*(each.deviation for each in number), np.sqrt(share * (1.0 - share))])
        return Standardization.of_moments(torch.from_numpy(mean), torch.from_numpy(deviation))

    def digest(self) -> str:
        """The same for the same table; another one has other sums."""
        digest = hashlib.sha256()
        for column in self._columns.values():
            digest.update(repr((column.name, column.summary.categories)).encode())
            if column.is_numbers:
                moments = column.numbers.moments
                for part in (moments.count, moments.mean, moments.deviation):
                    digest.update(part.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class _ColumnStatistics:
    name: str
    dtype: "pl.DataType"
    summary: ColumnSummary

    @property
    def numbers(self) -> Numbers:
        """Of a column that may be one of numbers."""
        assert self.summary.numbers is not None
        return self.summary.numbers

    @property
    def is_numbers(self) -> bool:
        summary = self.summary
        return summary.numbers is not None and are_numbers(self._n_numbers, summary.cells)

    @property
    def _n_numbers(self) -> int:
        return self.summary.cells - self.numbers.learned_strays

    def found(self) -> Column | str:
        """What the column is, or why it cannot be used."""
        summary = self.summary
        if not summary.cells:
            return "it is empty"
        if not is_usable(self.dtype):
            return f"its type {self.dtype} is neither a number nor a category"
        if self.is_numbers:
            self.numbers.commas.check(self.name)
            if not self.numbers.moments.count[0]:
                return "it holds no finite number"
            skips = self.numbers.strays.count > 0 and skips_text(self._n_numbers, summary.cells)
            return Column(self.name, "number", median=self.numbers.quantiles.median(), skips_text=skips)
        if summary.categories is None:
            return too_many_categories(MOST_CATEGORIES + 1, summary.rows, more=True)
        known = tuple(text for text, _ in summary.categories)
        return too_many_categories(len(known), summary.rows) or Column(self.name, "category", categories=known)

    def check_cells(self, place: Callable[[Cell], str], skips: bool) -> None:
        """A column of numbers must hold nothing else, in no row, but for text that it skips."""
        for cell, rule in ((None if skips else self.numbers.bad, "numbers"), (self.numbers.infinite, "finite numbers")):
            if cell:
                raise TableError(
                    f"column {quoted(self.name)} must hold {rule}, got {cell.text} in {place(cell)}; "
                    f"correct the cell, or leave it empty if it is not known"
                )

    def moments_filled(self, median: float) -> Moments:
        """With the median in place of each missing number."""
        moments = self.numbers.moments
        missing = np.array([self.summary.rows - moments.count[0]])
        return moments.merged(Moments(missing, np.array([median]), np.zeros(1)))

    def shares(self, categories: Sequence[str]) -> list[float]:
        counts = dict(self.summary.categories or ())
        return [counts[category] / self.summary.rows for category in categories]
