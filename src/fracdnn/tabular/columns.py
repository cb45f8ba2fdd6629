"""What one pass keeps of a column of a table, in bounded memory; summaries of parts merge into one.

A column may be numbers, which only the whole table can tell, and categories while they are few: where they are not in
one part, they are in no other either, and nothing of them is kept. Nor of dates, where a part has more other cells.
"""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fracdnn.tabular.cells import (
    Strays,
    as_categories,
    check_commas,
    is_ambiguous,
    is_usable,
    missing_as_null,
    parsed,
)
from fracdnn.tabular.dates import date_strays, may_be_dates, parts_of, seconds_in
from fracdnn.tabular.preparation import MOST_CATEGORIES
from fracdnn.tabular.summaries import Moments, Quantiles
from fracdnn.tabular.words import quoted

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Cell:
    """A cell that is not as it should be: how it is shown, the number of its piece, and its row there, from 1 on."""

    text: str
    piece: int
    row: int


@dataclass(frozen=True)
class Places:
    """Where the rows of a chunk stand: the number of the piece, and the row of each in it, the first being 1."""

    piece: int
    rows: np.ndarray

    def cell(self, text: str, place: int) -> Cell:
        return Cell(text, self.piece, int(self.rows[place]))


@dataclass(frozen=True)
class Commas:
    """Of cells with a comma in place of the point: the first, how many, and how many may mean thousands."""

    first: str = ""
    count: int = 0
    ambiguous: int = 0

    @classmethod
    def of(cls, column: "pl.Series") -> "Commas":
        import polars as pl

        if column.dtype != pl.String:
            return cls()
        cells = column.filter(column.str.contains(",", literal=True).fill_null(False))
        return cls(cells[0], len(cells), int(is_ambiguous(cells).sum())) if len(cells) else cls()

    def merged(self, other: "Commas") -> "Commas":
        return Commas(self.first or other.first, self.count + other.count, self.ambiguous + other.ambiguous)

    def check(self, name: str) -> None:
        """Only the whole table can tell."""
        if self.count:
            check_commas(name, self.first, self.count == self.ambiguous)


@dataclass(frozen=True)
class Numbers:
    """The numbers of a column, how many cells to learn from are none, and of all rows those that are
    none, the first of them, and the first that is not finite.
    """

    moments: Moments
    quantiles: Quantiles
    commas: Commas
    learned_strays: int
    strays: Strays
    bad: Cell | None
    infinite: Cell | None

    def merged(self, other: "Numbers") -> "Numbers":
        return Numbers(
            self.moments.merged(other.moments),
            self.quantiles.merged(other.quantiles),
            self.commas.merged(other.commas),
            self.learned_strays + other.learned_strays,
            self.strays.merged(other.strays),
            self.bad or other.bad,
            self.infinite or other.infinite,
        )

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Numbers":
        return cls(
            Moments.from_document(document["moments"]),
            Quantiles.from_document(document["quantiles"]),
            Commas(**document["commas"]),
            document["learned_strays"],
            _strays(document["strays"]),
            *(document[name] and Cell(**document[name]) for name in ("bad", "infinite")),
        )


@dataclass(frozen=True)
class Dates:
    """The dates of a column by their `PARTS` (see `dates`): moments, with days since the first one's begin so that no
    digits are lost; quantiles of days, both ends of each part, how many cells to learn from are none, and of all
    rows those that are none.
    """

    moments: Moments
    quantiles: Quantiles
    least: np.ndarray
    most: np.ndarray
    learned_strays: int
    strays: Strays

    @classmethod
    def of(cls, column: "pl.Series", learned: "pl.Series") -> "Dates | None":
        strays = date_strays(column)
        if 2 * len(strays) > column.count():
            return None
        kept = column.filter(learned)
        values = parts_of(seconds_in(kept).drop_nulls())
        ends = values.min(0, initial=np.inf), values.max(0, initial=-np.inf)
        quantiles = Quantiles.of(values[:, 0])
        values[:, 0] -= np.floor(ends[0][0])
        return cls(Moments.of(values), quantiles, *ends, len(date_strays(kept)), Strays.of(strays))

    def merged(self, other: "Dates") -> "Dates":
        least = np.minimum(self.least, other.least)
        return Dates(
            self._moments_since(least[0]).merged(other._moments_since(least[0])),
            self.quantiles.merged(other.quantiles),
            least,
            np.maximum(self.most, other.most),
            self.learned_strays + other.learned_strays,
            self.strays.merged(other.strays),
        )

    def _moments_since(self, first: float) -> Moments:
        if not self.moments.count[0]:
            return self.moments
        mean = self.moments.mean + np.array([np.floor(self.least[0]) - np.floor(first), 0, 0, 0])
        return Moments(self.moments.count, mean, self.moments.deviation)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Dates":
        return cls(
            Moments.from_document(document["moments"]),
            Quantiles.from_document(document["quantiles"]),
            document["least"].numpy(),
            document["most"].numpy(),
            document["learned_strays"],
            _strays(document["strays"]),
        )


@dataclass(frozen=True)
class ColumnSummary:
    """The rows to learn from, those that hold something, and what is in them; None for what the column is not."""

    rows: int
    cells: int
    numbers: Numbers | None
    dates: Dates | None
    categories: tuple[tuple[str, int], ...] | None

    def merged(self, other: "ColumnSummary") -> "ColumnSummary":
        numbers = self.numbers and other.numbers and self.numbers.merged(other.numbers)
        dates = self.dates and other.dates and self.dates.merged(other.dates)
        categories = None
        if self.categories is not None and other.categories is not None:
            categories = _few(Counter(dict(self.categories)) + Counter(dict(other.categories)))
        return ColumnSummary(self.rows + other.rows, self.cells + other.cells, numbers, dates, categories)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "ColumnSummary":
        numbers, dates, categories = (document[name] for name in ("numbers", "dates", "categories"))
        return cls(
            document["rows"],
            document["cells"],
            numbers and Numbers.from_document(numbers),
            dates and Dates.from_document(dates),
            None if categories is None else tuple((text, n) for text, n in categories),
        )


class ColumnReader:
    """Makes a summary of each part of a column; what it has turned out not to be is not tried again."""

    def __init__(self, dtype: "pl.DataType", categorical: bool) -> None:
        import polars as pl

        self._may_be_numbers = not categorical and may_be_numbers(dtype)
        self._may_be_dates = not categorical and may_be_dates(dtype)
        is_other = dtype != pl.String and (self._may_be_numbers or self._may_be_dates)
        self._may_be_categories = is_usable(dtype) and not is_other

    def summary(self, column: "pl.Series", learned: "pl.Series", places: Places) -> ColumnSummary:
        """Of one more part; `learned` [n] says which rows to learn from, the others are only checked."""
        column = missing_as_null(column)
        kept = column.filter(learned)
        numbers = _numbers(column, learned, places) if self._may_be_numbers else None
        dates = Dates.of(column, learned) if self._may_be_dates else None
        categories = _categories(kept) if self._may_be_categories else None
        self._may_be_dates, self._may_be_categories = dates is not None, categories is not None
        return ColumnSummary(len(kept), len(kept) - kept.null_count(), numbers, dates, categories)


def _strays(document: dict[str, Any]) -> Strays:
    return Strays(document["count"], tuple(document["examples"]))


def may_be_numbers(dtype: "pl.DataType") -> bool:
    import polars as pl

    return dtype.is_numeric() or dtype in (pl.Boolean, pl.Null, pl.String)


def _numbers(column: "pl.Series", learned: "pl.Series", places: Places) -> Numbers:
    values, bad_cell, infinite = parsed(column), None, None
    bad = column.is_not_null() & values.is_null()
    strays = column.filter(bad)
    if len(strays):
        row = int(bad.arg_max() or 0)
        bad_cell = places.cell(quoted(column[row]), row)
    numbers = values.fill_null(float("nan")).to_numpy()
    if np.isinf(numbers).any():
        row = int(np.isinf(numbers).argmax())
        infinite = places.cell(str(numbers[row]), row)
    numbers = numbers[learned.to_numpy()]
    numbers = numbers[np.isfinite(numbers)]
    commas = Commas.of(column.filter(learned & ~bad))
    counts = int((bad & learned).sum()), Strays.of(strays)
    return Numbers(Moments.of(numbers[:, None]), Quantiles.of(numbers), commas, *counts, bad_cell, infinite)


def _categories(kept: "pl.Series") -> tuple[tuple[str, int], ...] | None:
    counts = as_categories(kept).alias("text").value_counts(name="n")
    return _few(dict(counts.iter_rows())) if counts.height <= MOST_CATEGORIES else None


def _few(counts: dict[str, int]) -> tuple[tuple[str, int], ...] | None:
    """In alphabetical order."""
    return tuple(sorted(counts.items())) if len(counts) <= MOST_CATEGORIES else None
