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
from fracdnn.tabular.cells import Strays, are_numbers, is_usable, skips_text
from fracdnn.tabular.columns import Cell, ColumnSummary, Dates, Numbers
from fracdnn.tabular.dates import PARTS, date_features
from fracdnn.tabular.ids import Numbering, left_out_ids
from fracdnn.tabular.preparation import MOST_CATEGORIES, Column, Preparation, prepared, too_many_categories
from fracdnn.tabular.summaries import Moments
from fracdnn.tabular.words import quoted
from fracdnn.training import Standardization

if TYPE_CHECKING:
    import polars as pl


class TableStatistics:
    """The columns of a table, from the rows to learn from; `place` says in words where a cell is."""

    def __init__(
        self,
        schema: "Mapping[str, pl.DataType]",
        summaries: Sequence[ColumnSummary],
        numberings: Mapping[str, Numbering | None],
        place: Callable[[Cell], str],
    ) -> None:
        found = zip(schema.items(), summaries, strict=True)
        self._columns = {name: _ColumnStatistics(name, dtype, summary) for (name, dtype), summary in found}
        self._numberings, self._place = numberings, place

    def preparation(self) -> tuple[Preparation, list[str]]:
        """As `Preparation.of`: what the columns are, and a sentence for each that is left out or has cells that are."""
        found = {name: column.found() for name, column in self._columns.items()}
        strays = {
            name: self._columns[name].strays(column.kind)
            for name, column in found.items()
            if isinstance(column, Column) and (column.skips_text or column.kind == "date")
        }
        preparation, notes = prepared(found, strays, left_out_ids(self._numberings))
        for column in preparation.columns:
            if column.kind == "number":
                self._columns[column.name].check_cells(self._place, column.skips_text)
        return preparation, notes

    def standardization(self, preparation: Preparation) -> Standardization:
        """Mean and deviation of the features that the preparation makes of the rows to learn from."""
        columns = preparation.columns
        number = [self._columns[c.name].moments_filled(c) for c in columns if c.kind == "number"]
        dates = [self._columns[c.name].date_moments_filled(c) for c in columns if c.kind == "date"]
        shares = [
            share for c in columns if c.kind == "category" for share in self._columns[c.name].shares(c.categories)
        ]
        share = np.array(shares)
        spread = np.sqrt(share * (1.0 - share))
        mean = np.concatenate([*(each.mean for each in number), share, *(each.mean for each in dates)])
        deviation = np.concatenate([*(each.deviation for each in number), spread, *(each.deviation for each in dates)])
        return Standardization.of_moments(torch.from_numpy(mean), torch.from_numpy(deviation))

    def ids(self, preparation: Preparation) -> list[str]:
        """Columns in use with a different whole number in each row, as far as that is known: they rise or fall from row
        to row, or there are no more of them than `Numbering` keeps.
        """
        found = self._numberings.items()
        return [name for name, each in found if each and name in preparation.names and each.differs_in_each_row]

    def digest(self) -> str:
        """The same for the same table; another one has other sums."""
        digest = hashlib.sha256()
        for column in self._columns.values():
            digest.update(repr((column.name, column.summary.categories)).encode())
            if column.is_numbers or column.is_dates:
                moments = (column.numbers if column.is_numbers else column.dates).moments
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
    def dates(self) -> Dates:
        """Of a column that may be one of dates."""
        assert self.summary.dates is not None
        return self.summary.dates

    @property
    def is_dates(self) -> bool:
        dates = self.summary.dates
        if self.is_numbers or dates is None or not dates.moments.count[0]:
            return False
        return are_numbers(self.summary.cells - dates.learned_strays, self.summary.cells)

    def strays(self, kind: str) -> Strays:
        return (self.dates if kind == "date" else self.numbers).strays

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
        if self.is_dates:
            dates = self.dates
            return Column.of_dates(self.name, dates.least[0], dates.quantiles.median(), dates.most > dates.least)
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

    def moments_filled(self, column: Column) -> Moments:
        """With the median in place of each missing number."""
        return self._filled(self.numbers.moments, np.array([column.median]))

    def date_moments_filled(self, column: Column) -> Moments:
        """Of the features that are made of dates."""
        import polars as pl

        found, places = self.dates.moments, [PARTS.index(part) for part in column.parts]
        moments = Moments(found.count[places], found.mean[places], found.deviation[places])
        nothing = pl.Series(self.name, [None], dtype=pl.String)
        return self._filled(moments, date_features(nothing, column.first, column.median or 0.0, column.parts)[0])

    def _filled(self, moments: Moments, values: np.ndarray) -> Moments:
        """With these values in place of each missing one."""
        return moments.merged(Moments(self.summary.rows - moments.count, values, np.zeros(len(values))))

    def shares(self, categories: Sequence[str]) -> list[float]:
        counts = dict(self.summary.categories or ())
        return [counts[category] / self.summary.rows for category in categories]
