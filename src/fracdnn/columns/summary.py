"""What one pass keeps of a column of a table, in bounded memory, and what the column is; summaries of parts merge.

A column may be numbers, which only the whole table can tell, and text while its different values are few: where they
are not in one part, they are in no other either, and nothing of them is kept. Nor of dates, where a part has more
other cells.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fracdnn.columns import cells
from fracdnn.columns.cells import Commas, Strays, are_numbers
from fracdnn.columns.column import MOST_CATEGORIES, MOST_FREQUENT, Categories, Column, Dates, Numbers, Unused
from fracdnn.columns.dates import PARTS, date_of, date_strays, days_of, may_be_dates, parts_of, seconds_in
from fracdnn.columns.late import pl
from fracdnn.columns.summaries import MOST_DISTINCT, Moments, Quantiles
from fracdnn.columns.words import quoted

# Text of more different values is left out, and so is text of more than `MOST_CATEGORIES` whose most frequent values
# have less than this share of the rows: comments, names.
MOST_TEXTS, LEAST_FREQUENT = 10_000, 0.1


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
class NumberSummary:
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

    def merged(self, other: "NumberSummary") -> "NumberSummary":
        return NumberSummary(
            self.moments.merged(other.moments),
            self.quantiles.merged(other.quantiles),
            self.commas.merged(other.commas),
            self.learned_strays + other.learned_strays,
            self.strays.merged(other.strays),
            self.bad or other.bad,
            self.infinite or other.infinite,
        )


@dataclass(frozen=True)
class DateSummary:
    """The dates of a column by their `PARTS` (see `dates`): moments, with days since the start of the first one so that
    no digits are lost; quantiles of days, both ends of each part, how many cells to learn from are none, and of all
    rows those that are none.
    """

    moments: Moments
    quantiles: Quantiles
    least: np.ndarray
    most: np.ndarray
    learned_strays: int
    strays: Strays

    def merged(self, other: "DateSummary") -> "DateSummary":
        least = np.minimum(self.least, other.least)
        return DateSummary(
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


@dataclass(frozen=True)
class ColumnSummary:
    """The rows to learn from, their weight, the cells in them that hold something, and what that is; None for what the
    column is not. `texts` has each `text`, in alphabetical order, with its weight `n`.
    """

    rows: int
    weight: float
    cells: int
    numbers: NumberSummary | None
    dates: DateSummary | None
    texts: "pl.DataFrame | None"

    def merged(self, other: "ColumnSummary") -> "ColumnSummary":
        numbers = self.numbers and other.numbers and self.numbers.merged(other.numbers)
        dates = self.dates and other.dates and self.dates.merged(other.dates)
        texts = None
        if self.texts is not None and other.texts is not None:
            texts = pl.concat([self.texts, other.texts]).group_by("text").agg(pl.col("n").sum()).sort("text")
            texts = texts if texts.height <= MOST_TEXTS else None
        sums = self.rows + other.rows, self.weight + other.weight, self.cells + other.cells
        return ColumnSummary(*sums, numbers, dates, texts)

    def column(self, name: str, dtype: "pl.DataType", place: Callable[[Cell], str]) -> Column:
        """What the column is; `place` says in words where a cell is."""
        if not self.cells:
            return Unused(name, "it is empty")
        if not cells.is_usable(dtype):
            return Unused(name, f"its type {dtype} is neither a number nor a category")
        numbers, dates = self.numbers, self.dates
        if numbers is not None and are_numbers(self.cells - numbers.learned_strays, self.cells):
            return self._numbers(name, numbers, place)
        if dates is not None and dates.moments.count[0] and are_numbers(self.cells - dates.learned_strays, self.cells):
            first, gaps = date_of(dates.least[0]), bool(dates.moments.count[0] < self.rows)
            parts = (part for part, low, high in zip(PARTS, dates.least, dates.most, strict=True) if low < high)
            median = dates.quantiles.median() - days_of(first)
            return Dates(name, first, median, tuple(dict.fromkeys(("days", *parts))), gaps)
        return self._categories(name)

    def _numbers(self, name: str, numbers: NumberSummary, place: Callable[[Cell], str]) -> Column:
        numbers.commas.check(name)
        count = numbers.moments.count[0]
        if not count:
            return Unused(name, "it holds no finite number")
        skips = numbers.strays.count > 0 and cells.skips_text(self.cells - numbers.learned_strays, self.cells)
        # Nothing else in any row, but for text that is skipped.
        for cell, rule in ((None if skips else numbers.bad, "numbers"), (numbers.infinite, "finite numbers")):
            if cell:
                raise cells.not_numbers(name, rule, cell.text, place(cell))
        return Numbers(name, numbers.quantiles.median(), bool(count < self.rows), skips)

    def _categories(self, name: str) -> Column:
        """All texts, or the most frequent ones by weight; of equally frequent ones the first in the alphabet."""
        texts, gaps = self.texts, self.cells < self.rows
        if texts is None:
            return Unused(name, f"it is text with more than {MOST_TEXTS:,} different values in {self.rows:,} rows")
        if texts.height <= MOST_CATEGORIES and not texts.height == self.rows > 2:
            return Categories(name, tuple(texts["text"]), gaps)
        frequent = texts.sort("n", "text", descending=[True, False]).head(MOST_FREQUENT)
        if texts.height == self.rows or frequent["n"].sum() < LEAST_FREQUENT * self.weight:
            return Unused(name, f"it is text with {texts.height:,} different values in {self.rows:,} rows")
        return Categories(name, tuple(sorted(frequent["text"])), gaps, others=True)

    def strays(self, column: Column) -> Strays:
        """Cells that are taken as missing, but are not."""
        found = {"number": self.numbers, "date": self.dates}.get(column.kind)
        return Strays() if found is None else found.strays

    def moments(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the inputs that are made of the column, where rows weigh the same."""
        if isinstance(column, Numbers) and self.numbers is not None:
            return self._filled(self.numbers.moments, np.array([column.median]), column.gaps)
        if isinstance(column, Dates) and self.dates is not None:
            found, places = self.dates.moments, [PARTS.index(part) for part in column.parts]
            moments = Moments(found.count[places], found.mean[places], found.deviation[places])
            return self._filled(moments, column.filling, column.gaps)
        if not isinstance(column, Categories) or self.texts is None:
            return np.empty(0), np.empty(0)
        counts = dict(self.texts.iter_rows())
        known = [counts[text] for text in column.categories]
        others = [sum(counts.values()) - sum(known)] if column.others else []
        return _shares(np.array([*known, *others, *([self.rows - self.cells] if column.gaps else [])]) / self.rows)

    def _filled(self, moments: Moments, values: np.ndarray, gaps: bool) -> tuple[np.ndarray, np.ndarray]:
        """With these values in place of each missing one, and the input that says which are missing."""
        missing = self.rows - moments.count
        filled = moments.merged(Moments(missing, values, np.zeros(len(values))))
        mean, deviation = _shares(missing[:1] / self.rows if gaps else np.empty(0))
        return np.append(filled.mean, mean), np.append(filled.deviation, deviation)

    def digest(self) -> bytes:
        """The same for the same column; another one has other sums."""
        found = next((each.moments for each in (self.numbers, self.dates) if each is not None), None)
        parts = () if found is None else (found.count, found.mean, found.deviation)
        texts = None if self.texts is None else self.texts.rows()
        return repr((self.rows, self.cells, texts)).encode() + b"".join(part.tobytes() for part in parts)


class ColumnReader:
    """Makes a summary of each part of a column; what it has turned out not to be is not tried again.

    A column of categories says so by its type. `exact` keeps all different numbers for the median.
    """

    def __init__(self, dtype: "pl.DataType", *, exact: bool = False) -> None:
        self._may_be_numbers, self._may_be_dates = cells.may_be_numbers(dtype), may_be_dates(dtype)
        is_other = dtype != pl.String and (self._may_be_numbers or self._may_be_dates)
        self._may_be_text = cells.is_usable(dtype) and not is_other
        self._size = sys.maxsize if exact else MOST_DISTINCT

    def summary(
        self, column: "pl.Series", learned: np.ndarray, places: Places, weight: np.ndarray | None = None
    ) -> ColumnSummary:
        """Of one more part; `learned` [n] says which rows to learn from, the others are only checked.

        A row to learn from stands as often as its `weight` [n_learned] says.
        """
        is_text = cells.is_usable(column.dtype) and not (self._may_be_numbers or self._may_be_dates)
        column = cells.missing_as_null(cells.as_text(column) if is_text else column)
        kept = column.filter(learned)
        numbers = self._numbers(column, learned, places, weight) if self._may_be_numbers else None
        dates = self._dates(column, kept, weight) if self._may_be_dates else None
        texts = _texts(kept, weight) if self._may_be_text else None
        self._may_be_dates, self._may_be_text = dates is not None, texts is not None
        total = float(len(kept) if weight is None else weight.sum())
        return ColumnSummary(len(kept), total, len(kept) - kept.null_count(), numbers, dates, texts)

    def _numbers(
        self, column: "pl.Series", learned: np.ndarray, places: Places, weight: np.ndarray | None
    ) -> NumberSummary:
        values, bad_cell, infinite = cells.parsed(column, truth=True), None, None
        bad = column.is_not_null() & values.is_null()
        strays = column.filter(bad)
        if len(strays):
            row = int(bad.arg_max() or 0)
            bad_cell = places.cell(quoted(column[row]), row)
        numbers = values.fill_null(float("nan")).to_numpy()
        if np.isinf(numbers).any():
            row = int(np.isinf(numbers).argmax())
            infinite = places.cell(str(numbers[row]), row)
        numbers = numbers[learned]
        finite = np.isfinite(numbers)
        commas = Commas.of(column.filter(learned & ~bad.to_numpy()))
        quantiles = Quantiles.of(numbers[finite], None if weight is None else weight[finite], self._size)
        counts = int(bad.filter(learned).sum()), Strays.of(strays)
        return NumberSummary(Moments.of(numbers[finite, None]), quantiles, commas, *counts, bad_cell, infinite)

    def _dates(self, column: "pl.Series", kept: "pl.Series", weight: np.ndarray | None) -> DateSummary | None:
        strays = date_strays(column)
        if 2 * len(strays) > column.count():
            return None
        seconds = seconds_in(kept)
        values = parts_of(seconds.drop_nulls())
        ends = values.min(0, initial=np.inf), values.max(0, initial=-np.inf)
        known = None if weight is None else weight[seconds.is_not_null().to_numpy()]
        quantiles = Quantiles.of(values[:, 0], known, self._size)
        values[:, 0] -= np.floor(ends[0][0])
        return DateSummary(Moments.of(values), quantiles, *ends, len(date_strays(kept)), Strays.of(strays))


def _texts(kept: "pl.Series", weight: np.ndarray | None) -> "pl.DataFrame | None":
    known = kept.is_not_null()
    different = kept.drop_nulls().unique().sort()
    if len(different) > MOST_TEXTS:
        return None
    places = kept.filter(known).cast(pl.Enum(different)).to_physical().to_numpy()
    weights = None if weight is None else weight[known.to_numpy()]
    counts = np.bincount(places, weights=weights, minlength=len(different)).astype(np.float64)
    return pl.DataFrame({"text": different, "n": counts}, schema={"text": pl.String, "n": pl.Float64})


def _shares(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of zeros and ones, so many of which are ones."""
    return shares, np.sqrt(shares * (1.0 - shares))
