"""What one pass keeps of a column of a table, in bounded memory, and what the column is; summaries of parts merge.

A column may be numbers, which only the whole table can tell, and text while its different values are few: where they
are not in one part, they are in no other either, and nothing of them is kept. Nor of dates, where a part has more
other cells.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

import numpy as np

from fracdnn.columns import cells
from fracdnn.columns.cells import DIFFERENT, Marks, Strays, are_numbers
from fracdnn.columns.column import MOST_CATEGORIES, MOST_FREQUENT, Categories, Column, Dates, Numbers, Unused
from fracdnn.columns.dates import ORDERS, PARTS, date_of, date_strays, days_of, orders_of, parts_of, seconds_in
from fracdnn.columns.late import pl
from fracdnn.columns.summaries import MOST_DISTINCT, Moments, Quantiles, Sums, either
from fracdnn.columns.words import listed, quoted

# Text of more different values is left out, and so is text of more than `MOST_CATEGORIES` whose most frequent values
# have less than this share of the rows: comments, names.
MOST_TEXTS, LEAST_FREQUENT = 10_000, 0.1
# Numbers of different units are categories where each occurs so often.
LEAST_REPEATED = 5
# Categories of so many values, most of which are numbers or dates, may be meant otherwise.
MANY = 20
EXAMPLE_OF = {
    "ymd": "dates such as 2024-01-31",
    "dmy": "dates such as 31.01.2024",
    "mdy": "dates such as 01/31/2024",
    "clock": "times of day",
}
# So many cells of a column are shown, and so much of each.
EXAMPLES, EXAMPLE_LENGTH = 3, 24


@dataclass(frozen=True)
class Cell(Sums):
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
class Values(Sums):
    moments: Moments
    quantiles: Quantiles


@dataclass(frozen=True)
class NumberSummary(Sums):
    """The numbers of a column, with a decimal `point` and, where that makes a difference, a `comma`, what tells which
    it is, how many cells to learn from are none, and of all rows those that are none, the first of them, and the first
    that is not finite.
    """

    ways: ClassVar = {"bad": either, "infinite": either}
    point: Values
    comma: Values | None
    marks: Marks
    learned_strays: int
    strays: Strays
    bad: Cell | None
    infinite: Cell | None

    def merged(self, other: "NumberSummary") -> "NumberSummary":
        comma = (self.comma or self.point).merged(other.comma or other.point) if self.comma or other.comma else None
        return replace(super().merged(other), comma=comma)

    def values(self, decimal: str) -> Values:
        return self.comma if decimal == "," and self.comma else self.point


@dataclass(frozen=True)
class DateSummary(Sums):
    """The dates of a column by their `PARTS` (see `dates`): moments, with days since the start of the first one so that
    no digits are lost; quantiles of days, both ends of each part, how many cells to learn from are none, and of all
    rows those that are none.
    """

    ways: ClassVar = {"least": np.minimum, "most": np.maximum}
    moments: Moments
    quantiles: Quantiles
    least: np.ndarray
    most: np.ndarray
    learned_strays: int
    strays: Strays

    def merged(self, other: "DateSummary") -> "DateSummary":
        first = min(self.least[0], other.least[0])
        return replace(super().merged(other), moments=self._moments_since(first).merged(other._moments_since(first)))

    def _moments_since(self, first: float) -> Moments:
        if not self.moments.count[0]:
            return self.moments
        mean = self.moments.mean + np.array([np.floor(self.least[0]) - np.floor(first), 0, 0, 0])
        return Moments(self.moments.count, mean, self.moments.deviation)


def _few(mine: "pl.DataFrame | None", theirs: "pl.DataFrame | None") -> "pl.DataFrame | None":
    if mine is None or theirs is None:
        return None
    texts = pl.concat([mine, theirs]).group_by("text").agg(pl.col("n").sum()).sort("text")
    return texts if texts.height <= MOST_TEXTS else None


@dataclass(frozen=True)
class ColumnSummary(Sums):
    """The rows to learn from, their weight, the cells in them that hold something, the first of these, and what they
    are; None for what the column is not. `dates` are by the order in which they are read; `texts` has each `text`, in
    alphabetical order, with its weight `n`.
    """

    ways: ClassVar = {"examples": lambda *both: tuple(dict.fromkeys(chain(*both)))[:EXAMPLES], "texts": _few}
    rows: int
    weight: float
    cells: int
    examples: tuple[str, ...]
    numbers: NumberSummary | None
    dates: dict[str, DateSummary]
    texts: "pl.DataFrame | None"

    def column(self, name: str, dtype: "pl.DataType", place: Callable[[Cell], str], decimal: str = "") -> Column:
        """What the column is; `place` says in words where a cell is, `decimal` the sign where commas do not tell."""
        if not self.cells:
            return Unused(name, "it is empty")
        if cells.has_no_text(dtype):
            return Unused(name, f"its type {dtype} is neither a number nor a category")
        if self.numbers is not None and self._are_numbers and self.numbers.marks.are_one_unit:
            return self._numbers(name, self.numbers, place, decimal)
        if self._has_other_units:
            return Unused(name, f"its numbers have different units, {self._units}; write all of them in one to use it")
        order, dates = self._dates
        if dates is not None and dates.moments.count[0] and are_numbers(self.cells - dates.learned_strays, self.cells):
            first, gaps = date_of(dates.least[0]), bool(dates.moments.count[0] < self.rows)
            varies = (part for part, low, high in zip(PARTS, dates.least, dates.most, strict=True) if low < high)
            parts = ("days",) if order == "clock" else tuple(dict.fromkeys(("days", *varies)))
            return Dates(name, first, dates.quantiles.median() - days_of(first), parts, gaps, order)
        return self._categories(name)

    def _numbers(self, name: str, numbers: NumberSummary, place: Callable[[Cell], str], decimal: str) -> Column:
        count = numbers.point.moments.count[0]
        if not count:
            return Unused(name, "it holds no finite number")
        writing = numbers.marks.writing(name, decimal)
        skips = numbers.strays.count > 0 and cells.skips_text(self.cells - numbers.learned_strays, self.cells)
        # Nothing else in any row, but for text that is skipped.
        for cell, rule in ((None if skips else numbers.bad, "numbers"), (numbers.infinite, "finite numbers")):
            if cell:
                raise cells.not_numbers(name, rule, cell.text, place(cell))
        median = numbers.values(writing.decimal).quantiles.median()
        return Numbers(name, median, bool(count < self.rows), skips, writing.decimal, writing.unit)

    def _categories(self, name: str) -> Column:
        """All texts, or the most frequent ones by weight; of equally frequent ones the first in the alphabet."""
        texts, gaps = self.texts, self.cells < self.rows
        if texts is None:
            return Unused(name, f"it is text with more than {MOST_TEXTS:,} different values {self._rest}")
        if texts.height <= MOST_CATEGORIES and not texts.height == self.rows > 2:
            return Categories(name, tuple(texts["text"]), gaps)
        frequent = texts.sort("n", "text", descending=[True, False]).head(MOST_FREQUENT)
        if texts.height == self.rows or frequent["n"].sum() < LEAST_FREQUENT * self.weight:
            return Unused(name, f"it is text with {texts.height:,} different values {self._rest}")
        return Categories(name, tuple(sorted(frequent["text"])), gaps, others=True)

    @property
    def _rest(self) -> str:
        mostly = self._mostly
        return f"in {self.rows:,} rows; {f'{mostly}: write all alike' if mostly else 'group its values'} to use it"

    def strays(self, column: Column) -> Strays:
        """Cells that are taken as missing, but are not."""
        found = {"number": self.numbers, "date": self._dates[1]}.get(column.kind)
        return Strays() if found is None else found.strays

    def doubts(self, column: Column) -> str:
        """What may have been read in another way than it was meant; nothing where there is no doubt."""
        if isinstance(column, Dates) and not self._order_is_clear:
            way = "month/day/year" if column.order == "mdy" else "day-month-year"
            return f"{self.examples[0]} may be read in two ways and is taken as {way}; write 2024-01-31 to be sure"
        if isinstance(column, Categories) and (mostly := self._mostly):
            return (
                f"{mostly}, so that all are categories; write the others alike or leave them empty, "
                f"or pass --categorical (in Python, the dtype category)"
            )
        return ""

    @property
    def _mostly(self) -> str:
        """What more than half of the cells are, where that is less than all of a column of many texts."""
        order, dates = self._dates
        kinds = (("numbers", self.numbers), (EXAMPLE_OF[order], dates))
        few = self.texts is not None and self.texts.height <= MANY
        for kind, found in kinds if not few else ():
            if found is not None and 0 < 2 * found.learned_strays < self.cells:
                n = self.cells - found.learned_strays
                return f"{n:,} of {self.cells:,} cells are {kind}, but not {listed(found.strays.examples)}"
        return ""

    @property
    def _has_other_units(self) -> bool:
        marks = self.numbers.marks if self.numbers is not None and self._are_numbers else Marks()
        recur = self.texts is not None and LEAST_REPEATED * self.texts.height <= self.cells  # as 1st, 2nd, 3rd
        return not (marks.are_one_unit or marks.codes or recur)

    @property
    def _units(self) -> str:
        marks = self.numbers.marks if self.numbers is not None else Marks()
        return ", ".join([*map(quoted, marks.units), *(["none"] if marks.bare else [])])

    @property
    def _are_numbers(self) -> bool:
        return self.numbers is not None and are_numbers(self.cells - self.numbers.learned_strays, self.cells)

    @property
    def _dates(self) -> tuple[str, DateSummary | None]:
        """The order of day, month and year that explains most cells, and what they are then."""
        if not self.dates:
            return ORDERS[0], None
        fewest = min(each.learned_strays for each in self.dates.values())
        best = [order for order, each in self.dates.items() if each.learned_strays == fewest]
        has_slash = any("/" in text for text in self.examples)
        order = "mdy" if best[:2] == ["dmy", "mdy"] and has_slash else best[0]
        return order, self.dates[order]

    @property
    def _order_is_clear(self) -> bool:
        day_first, month_first = (self.dates.get(order) for order in ("dmy", "mdy"))
        strays = [each and each.learned_strays for each in (day_first, month_first)]
        return self._dates[0] not in ("dmy", "mdy") or strays[0] != strays[1]

    def moments(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the inputs that are made of the column, where rows weigh the same."""
        if isinstance(column, Numbers) and self.numbers is not None:
            return self._filled(self.numbers.values(column.decimal).moments, np.array([column.median]), column.gaps)
        if isinstance(column, Dates) and (dates := self.dates.get(column.order)) is not None:
            found, places = dates.moments, [PARTS.index(part) for part in column.parts]
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
        found = self.numbers and self.numbers.point.moments
        found = found or next((each.moments for each in self.dates.values()), None)
        parts = () if found is None else (found.count, found.mean, found.deviation)
        texts = None if self.texts is None else self.texts.rows()
        return repr((self.rows, self.cells, texts)).encode() + b"".join(part.tobytes() for part in parts)


class ColumnReader:
    """Makes a summary of each part of a column; what it has turned out not to be is not tried again.

    A column of categories says so by its type. `exact` keeps all different numbers for the median.
    """

    def __init__(self, dtype: "pl.DataType", *, exact: bool = False) -> None:
        self._may_be_numbers, self._orders = cells.may_be_numbers(dtype), orders_of(dtype)
        is_other = dtype != pl.String and (self._may_be_numbers or self._orders)
        self._may_be_text = not (cells.has_no_text(dtype) or is_other)
        self._size = sys.maxsize if exact else MOST_DISTINCT

    def summary(
        self, column: "pl.Series", learned: np.ndarray, places: Places, weight: np.ndarray | None = None
    ) -> ColumnSummary:
        """Of one more part; `learned` [n] says which rows to learn from, the others are only checked.

        A row to learn from stands as often as its `weight` [n_learned] says.
        """
        is_text = not (cells.has_no_text(column.dtype) or self._may_be_numbers or self._orders)
        column = cells.missing_as_null(cells.as_text(column) if is_text else column)
        kept = column.filter(learned)
        numbers = self._numbers(column, learned, places, weight) if self._may_be_numbers else None
        tried = {order: self._dates(column, kept, weight, order) for order in self._orders}
        dates = {order: each for order, each in tried.items() if each is not None}
        texts = _texts(kept, weight) if self._may_be_text else None
        self._orders, self._may_be_text = tuple(dates), texts is not None
        total = float(len(kept) if weight is None else weight.sum())
        n_cells = len(kept) - kept.null_count()
        return ColumnSummary(len(kept), total, n_cells, _examples(kept), numbers, dates, texts)

    def _numbers(
        self, column: "pl.Series", learned: np.ndarray, places: Places, weight: np.ndarray | None
    ) -> NumberSummary:
        values, bad_cell, infinite = cells.parsed(column, truth=True), None, None
        marks = Marks.of(column.filter(learned)) if column.dtype == pl.String else Marks()
        bad = column.is_not_null() & values.is_null()
        strays = column.filter(bad)
        if len(strays):
            row = int(bad.arg_max() or 0)
            bad_cell = places.cell(quoted(column[row]), row)
        numbers = values.fill_null(float("nan")).to_numpy()
        if np.isinf(numbers).any():
            row = int(np.isinf(numbers).argmax())
            infinite = places.cell(str(numbers[row]), row)
        point, comma = self._values(numbers[learned], weight), None
        if column.dtype == pl.String and marks.may_have_comma and column.str.contains(DIFFERENT).any():
            other = cells.parsed(column, ",", truth=True).fill_null(float("nan")).to_numpy()
            comma = self._values(other[learned], weight)
        counts = int(bad.filter(learned).sum()), Strays.of(strays)
        return NumberSummary(point, comma, marks, *counts, bad_cell, infinite)

    def _values(self, numbers: np.ndarray, weight: np.ndarray | None) -> Values:
        finite = np.isfinite(numbers)
        quantiles = Quantiles.of(numbers[finite], None if weight is None else weight[finite], self._size)
        return Values(Moments.of(numbers[finite, None]), quantiles)

    def _dates(
        self, column: "pl.Series", kept: "pl.Series", weight: np.ndarray | None, order: str
    ) -> DateSummary | None:
        strays = date_strays(column, order)
        if 2 * len(strays) > column.count():
            return None
        seconds = seconds_in(kept, order=order)
        values = parts_of(seconds.drop_nulls())
        ends = values.min(0, initial=np.inf), values.max(0, initial=-np.inf)
        known = None if weight is None else weight[seconds.is_not_null().to_numpy()]
        quantiles = Quantiles.of(values[:, 0], known, self._size)
        values[:, 0] -= np.floor(ends[0][0])
        return DateSummary(Moments.of(values), quantiles, *ends, len(date_strays(kept, order)), Strays.of(strays))


def _texts(kept: "pl.Series", weight: np.ndarray | None) -> "pl.DataFrame | None":
    known = kept.is_not_null()
    different = kept.drop_nulls().unique().sort()
    if len(different) > MOST_TEXTS:
        return None
    places = kept.filter(known).cast(pl.Enum(different)).to_physical().to_numpy()
    weights = None if weight is None else weight[known.to_numpy()]
    counts = np.bincount(places, weights=weights, minlength=len(different)).astype(np.float64)
    return pl.DataFrame({"text": different, "n": counts}, schema={"text": pl.String, "n": pl.Float64})


def _examples(kept: "pl.Series") -> tuple[str, ...]:
    first = [str(cell) for cell in kept.drop_nulls().head(20).to_list()]
    shown = (text if len(text) <= EXAMPLE_LENGTH else f"{text[: EXAMPLE_LENGTH - 1]}…" for text in first)
    return tuple(dict.fromkeys(shown))[:EXAMPLES]


def _shares(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of zeros and ones, so many of which are ones."""
    return shares, np.sqrt(shares * (1.0 - shares))
