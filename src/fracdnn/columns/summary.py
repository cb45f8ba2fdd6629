"""What one pass keeps of a column of a table, in bounded memory, and what the column is; summaries of parts merge.

A column may be numbers, which only the whole table can tell, and text while its different values are few: where they
are not in one part, they are in no other either, and nothing of them is kept. Nor of dates, where a part has more
other cells.
"""

from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

import numpy as np

from fracdnn.columns import cells
from fracdnn.columns.cells import DIFFERENT, Marks, Strays, skips_text
from fracdnn.columns.column import MOST_CATEGORIES, MOST_FREQUENT, Categories, Column, Dates, Numbers, Unused
from fracdnn.columns.dates import ORDERS, PARTS, date_of, days_of, orders_of, parts_of, seconds_in
from fracdnn.columns.late import pl
from fracdnn.columns.summaries import MOST_DISTINCT, Moments, Quantiles, Sums
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
class Values(Sums):
    moments: Moments
    quantiles: Quantiles

    @classmethod
    def of(cls, numbers: np.ndarray, weight: np.ndarray, size: int) -> "Values":
        """Of the finite ones."""
        finite = np.isfinite(numbers)
        return cls(Moments.of(numbers[finite, None]), Quantiles.of(numbers[finite], weight[finite], size))


@dataclass(frozen=True)
class NumberSummary(Sums):
    """The numbers of a column, with a decimal `point` and, where that makes a difference, a `comma`, what tells which
    it is, how many cells to learn from are none, and of all rows those that are none, and how many are not finite.
    """

    point: Values
    comma: Values | None
    marks: Marks
    learned_strays: int
    strays: Strays
    infinite: int

    @classmethod
    def of(cls, column: "pl.Series", learned: np.ndarray, weight: np.ndarray, size: int) -> "NumberSummary":
        values, kept = cells.parsed(column, truth=True), column.filter(learned)
        numbers, marks, comma = cells.as_floats(values), Marks.of(kept), None
        if column.dtype == pl.String and marks.may_have_comma and column.str.contains(DIFFERENT).any():
            comma = Values.of(cells.as_floats(cells.parsed(kept, ",", truth=True)), weight, size)
        bad = column.is_not_null() & values.is_null()
        strays = int(bad.filter(learned).sum()), Strays.of(column.filter(bad))
        return cls(Values.of(numbers[learned], weight, size), comma, marks, *strays, int(np.isinf(numbers).sum()))

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

    @classmethod
    def of(
        cls, column: "pl.Series", learned: np.ndarray, weight: np.ndarray, size: int, order: str
    ) -> "DateSummary | None":
        """None where most cells are no dates."""
        seconds = seconds_in(column, order=order)
        bad = column.is_not_null() & seconds.is_null() & (column.dtype == pl.String)
        if 2 * int(bad.sum()) > column.count():
            return None
        kept = seconds.filter(learned)
        values = parts_of(kept.drop_nulls())
        least, most = values.min(0, initial=np.inf), values.max(0, initial=-np.inf)
        quantiles = Quantiles.of(values[:, 0], weight[kept.is_not_null().to_numpy()], size)
        values[:, 0] -= np.floor(least[0])
        strays = int(bad.filter(learned).sum()), Strays.of(column.filter(bad))
        return cls(Moments.of(values), quantiles, least, most, *strays)

    def merged(self, other: "DateSummary") -> "DateSummary":
        first = min(self.least[0], other.least[0])
        return replace(super().merged(other), moments=self._moments_since(first).merged(other._moments_since(first)))

    def _moments_since(self, first: float) -> Moments:
        if not self.moments.count[0]:
            return self.moments
        mean = self.moments.mean + np.array([np.floor(self.least[0]) - np.floor(first), 0, 0, 0])
        return replace(self.moments, mean=mean)


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

    @classmethod
    def of(
        cls,
        column: "pl.Series",
        learned: np.ndarray,
        weight: np.ndarray,
        *,
        size: int = MOST_DISTINCT,
        before: "ColumnSummary | None" = None,
    ) -> "ColumnSummary":
        """Of one more part; `learned` [n] says which rows to learn from, the others are only checked.

        A row to learn from stands as often as its `weight` [n_learned] says. What the part `before` has turned out not
        to be is not tried again. Medians are exact up to `size` different numbers.
        """
        may_be_numbers, orders = cells.may_be_numbers(column.dtype), orders_of(column.dtype)
        is_category = not (cells.has_no_text(column.dtype) or may_be_numbers or orders)
        column, may_be_text = cells.as_text(column) if is_category else cells.missing_as_null(column), is_category
        may_be_text |= column.dtype == pl.String
        if before is not None:
            orders, may_be_text = tuple(before.dates), may_be_text and before.texts is not None
        kept, about = column.filter(learned), (column, learned, weight, size)
        tried = {order: DateSummary.of(*about, order) for order in orders}
        return cls(
            len(kept),
            float(weight.sum()),
            kept.count(),
            _examples(kept),
            NumberSummary.of(*about) if may_be_numbers else None,
            {order: dates for order, dates in tried.items() if dates is not None},
            _texts(kept, weight) if may_be_text else None,
        )

    def column(self, name: str, dtype: "pl.DataType", decimal: str = "") -> Column:
        """What the column is; `decimal` is the sign where commas do not tell."""
        if not self.cells:
            return Unused(name, "it is empty")
        if cells.has_no_text(dtype):
            return Unused(name, f"its type {dtype} is neither a number nor a category")
        numbers, (order, dates) = self.numbers, self._dates
        if numbers is not None and self._are(numbers):
            marks = numbers.marks
            if marks.are_one_unit:
                return self._numbers(name, numbers, decimal)
            recur = self.texts is not None and LEAST_REPEATED * self.texts.height <= self.cells  # as 1st, 2nd, 3rd
            if not (marks.codes or recur):
                units = ", ".join([*map(quoted, marks.units), *(["none"] if marks.bare else [])])
                return Unused(name, f"its numbers have different units, {units}; write all of them in one to use it")
        if dates is not None and dates.moments.count[0] and self._are(dates):
            first, gaps = date_of(dates.least[0]), bool(dates.moments.count[0] < self.rows)
            varies = (part for part, low, high in zip(PARTS, dates.least, dates.most, strict=True) if low < high)
            parts = ("days",) if order == "clock" else tuple(dict.fromkeys(("days", *varies)))
            return Dates(name, first, dates.quantiles.median() - days_of(first), parts, gaps, order)
        return self._categories(name)

    def _are(self, found: NumberSummary | DateSummary) -> bool:
        return found.learned_strays == 0 or self._skips(found)

    def _skips(self, found: NumberSummary | DateSummary) -> bool:
        return skips_text(self.cells - found.learned_strays, self.cells)

    def _numbers(self, name: str, numbers: NumberSummary, decimal: str) -> Column:
        count = numbers.point.moments.count[0]
        if not count:
            return Unused(name, "it holds no finite number")
        writing = numbers.marks.writing(name, decimal)
        median = numbers.values(writing.decimal).quantiles.median()
        skips = numbers.strays.count > 0 and self._skips(numbers)
        return Numbers(name, median, bool(count < self.rows), skips, writing.decimal, writing.unit)

    def _categories(self, name: str) -> Column:
        """All texts, or the most frequent ones by weight; of equally frequent ones the first in the alphabet."""
        texts, gaps = self.texts, self.cells < self.rows
        mostly = self._mostly
        rest = f"in {self.rows:,} rows; {f'{mostly}: write all alike' if mostly else 'group its values'} to use it"
        if texts is None:
            return Unused(name, f"it is text with more than {MOST_TEXTS:,} different values {rest}")
        if texts.height <= MOST_CATEGORIES and not texts.height == self.rows > 2:
            return Categories(name, tuple(texts["text"]), gaps)
        frequent = texts.sort("n", "text", descending=[True, False]).head(MOST_FREQUENT)
        if texts.height == self.rows or frequent["n"].sum() < LEAST_FREQUENT * self.weight:
            return Unused(name, f"it is text with {texts.height:,} different values {rest}")
        return Categories(name, tuple(sorted(frequent["text"])), gaps, others=True)

    def strays(self, column: Column) -> Strays:
        """Cells that are taken as missing, but are not."""
        found = {"number": self.numbers, "date": self._dates[1]}.get(column.kind)
        return Strays() if found is None else found.strays

    def is_refused(self, column: Column) -> bool:
        """Whether the cells of some rows are no inputs: text among numbers, or what is not finite."""
        if not isinstance(column, Numbers) or self.numbers is None:
            return False
        return bool(self.numbers.infinite or (self.numbers.strays.count and not column.skips_text))

    def doubts(self, column: Column) -> str:
        """What may have been read in another way than it was meant; nothing where there is no doubt."""
        same = [each.learned_strays for order, each in self.dates.items() if order in ("dmy", "mdy")]
        if isinstance(column, Dates) and column.order in ("dmy", "mdy") and same[1:] == same[:1]:
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
        few = self.texts is not None and self.texts.height <= MANY
        for kind, found in (("numbers", self.numbers), (EXAMPLE_OF[order], dates)) if not few else ():
            if found is not None and 0 < 2 * found.learned_strays < self.cells:
                n = self.cells - found.learned_strays
                return f"{n:,} of {self.cells:,} cells are {kind}, but not {listed(found.strays.examples)}"
        return ""

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

    def moments(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the inputs that are made of the column, where rows weigh the same."""
        if isinstance(column, Numbers) and self.numbers is not None:
            return self._filled(self.numbers.values(column.decimal).moments, np.array([column.median]), column.gaps)
        if isinstance(column, Dates) and (dates := self.dates.get(column.order)) is not None:
            places = [PARTS.index(part) for part in column.parts]
            moments = Moments(*(each[places] for each in vars(dates.moments).values()))
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
        found = [each.moments for each in (self.numbers and self.numbers.point, *self.dates.values()) if each]
        parts = vars(found[0]).values() if found else ()
        texts = None if self.texts is None else self.texts.rows()
        return repr((self.rows, self.cells, texts)).encode() + b"".join(part.tobytes() for part in parts)


def _texts(kept: "pl.Series", weight: np.ndarray) -> "pl.DataFrame | None":
    known = kept.is_not_null()
    different = kept.drop_nulls().unique().sort()
    if len(different) > MOST_TEXTS:
        return None
    places = kept.filter(known).cast(pl.Enum(different)).to_physical().to_numpy()
    counts = np.bincount(places, weights=weight[known.to_numpy()], minlength=len(different)).astype(np.float64)
    return pl.DataFrame({"text": different, "n": counts}, schema={"text": pl.String, "n": pl.Float64})


def _examples(kept: "pl.Series") -> tuple[str, ...]:
    first = [str(cell) for cell in kept.drop_nulls().head(20).to_list()]
    shown = (text if len(text) <= EXAMPLE_LENGTH else f"{text[: EXAMPLE_LENGTH - 1]}…" for text in first)
    return tuple(dict.fromkeys(shown))[:EXAMPLES]


def _shares(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of zeros and ones, so many of which are ones."""
    return shares, np.sqrt(shares * (1.0 - shares))
