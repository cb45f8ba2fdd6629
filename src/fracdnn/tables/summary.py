"""What one pass keeps of a column of a table, in bounded memory, and what the column is; summaries of parts merge.

A column may be numbers, which only the whole table can tell, and text while its different values are few: where they
are not in one part, they are in no other either, and nothing of them is kept. Nor of dates, where a part has more
other cells.
"""

from dataclasses import dataclass, replace
from itertools import chain
from typing import ClassVar

import numpy as np

from fracdnn.tables import cells
from fracdnn.tables.cells import DIFFERENT, Marks, Strays
from fracdnn.tables.column import MOST_CATEGORIES, MOST_FREQUENT, Categories, Column, Dates, Numbers, Unused
from fracdnn.tables.dates import ORDERS, PARTS, date_features, date_of, days_of, orders_of, parts_of, seconds_in
from fracdnn.tables.late import pl
from fracdnn.tables.summaries import MOST_DISTINCT, Moments, Quantiles, Sums, both
from fracdnn.tables.words import alike, listed, quoted

# Text of more different values is left out, and so is text of more than `MOST_CATEGORIES` whose most frequent values
# have less than this share of the rows: comments, names.
MOST_TEXTS, LEAST_FREQUENT = 10_000, 0.1
# Where so many cells to learn from are numbers or dates, and such a share of them, the others are taken as missing.
LEAST_NUMBERS, LEAST_SHARE = 20, 0.95
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


@dataclass(frozen=True, eq=False)
class Reading(Sums):
    """A column read in one way, as numbers or as the `PARTS` of dates (see `dates`).

    Of the rows to learn from: moments, of days since the `origin`, the start of the first one, so that no digits are
    lost; quantiles of the first part, both ends of each part, and how many cells are none. Of all rows: the cells that
    are none, and how many numbers are not finite.
    """

    ways: ClassVar = {"origin": min, "least": np.minimum, "most": np.maximum}
    moments: Moments
    origin: float
    quantiles: Quantiles
    least: np.ndarray
    most: np.ndarray
    learned_strays: int
    strays: Strays
    infinite: int

    @classmethod
    def of(cls, column: "pl.Series", values: np.ndarray, weight: np.ndarray, size: int = MOST_DISTINCT) -> "Reading":
        """Of the parts [n, k] that were read, NaN where a cell is none; see `ColumnSummary.of`."""
        bad = column.is_not_null().to_numpy() & np.isnan(values[:, 0]) & (column.dtype == pl.String)
        learned = (weight > 0) & np.isfinite(values[:, 0])
        kept = values[learned]
        least, most = kept.min(0, initial=np.inf), kept.max(0, initial=-np.inf)
        quantiles = Quantiles.of(kept[:, 0], weight[learned], size)
        origin = float(np.floor(least[0])) if len(least) > 1 else 0.0
        kept[:, 0] -= origin
        strays = int(bad[weight > 0].sum()), Strays.of(column.filter(bad))
        return cls(Moments.of(kept), origin, quantiles, least, most, *strays, int(np.isinf(values[:, 0]).sum()))

    def merged(self, other: "Reading") -> "Reading":
        origin = min(self.origin, other.origin)
        return replace(super().merged(other), moments=self._moments_since(origin).merged(other._moments_since(origin)))

    def _moments_since(self, origin: float) -> Moments:
        if self.origin == origin or not self.moments.count[0]:
            return self.moments
        return replace(self.moments, mean=self.moments.mean + np.array([self.origin - origin, 0, 0, 0]))


def number_readings(
    column: "pl.Series", marks: Marks, weight: np.ndarray, size: int = MOST_DISTINCT, *, truth: bool = False
) -> dict[str, Reading]:
    """With a decimal point and, where that may make a difference, a comma."""
    may_have_comma = marks.commas or marks.unclear or not marks.points
    differs = column.dtype == pl.String and may_have_comma and column.str.contains(DIFFERENT).any()
    values = {sign: cells.parsed(column, sign, truth=truth).to_numpy() for sign in (".," if differs else ".")}
    return {sign: Reading.of(column, each[:, None], weight, size) for sign, each in values.items()}


def merged_readings(mine: dict[str, Reading], theirs: dict[str, Reading]) -> dict[str, Reading]:
    """Those that are in both; where one has none with a comma, it is the same as with a point."""
    if "." in mine and "." in theirs and ("," in mine or "," in theirs):
        mine, theirs = ({",": each["."], **each} for each in (mine, theirs))
    return both(mine, theirs)


def _counted(texts: "pl.DataFrame") -> "pl.DataFrame | None":
    """Each text once, in alphabetical order, with its weight; None where they are many."""
    found = texts.group_by("text", maintain_order=True).agg(pl.col("n").sum())
    return found.sort("text") if found.height <= MOST_TEXTS else None


@dataclass(frozen=True, eq=False)
class ColumnSummary(Sums):
    """The rows to learn from, their weight, the cells in them that hold something, the first of these, and what they
    are. `readings` are of numbers by their decimal sign (`marks` tells which it is), and of dates by their order;
    `texts` has each `text`, in alphabetical order, with its weight `n`, or is None where these are many.
    """

    ways: ClassVar = {
        "examples": lambda *both: tuple(dict.fromkeys(chain(*both)))[:EXAMPLES],
        "readings": merged_readings,
        "texts": lambda mine, theirs: None if mine is None or theirs is None else _counted(pl.concat([mine, theirs])),
    }
    rows: int
    weight: float
    cells: int
    examples: tuple[str, ...]
    marks: Marks
    readings: dict[str, Reading]
    texts: "pl.DataFrame | None"

    @classmethod
    def of(
        cls,
        column: "pl.Series",
        weight: np.ndarray,
        *,
        size: int = MOST_DISTINCT,
        before: "ColumnSummary | None" = None,
    ) -> "ColumnSummary":
        """Of one more part; a row stands as often as its `weight` [n] says, those without are only checked.

        What the part `before` has turned out not to be is not tried again. Medians are exact up to `size` different
        numbers.
        """
        may_be_numbers, orders = cells.may_be_numbers(column.dtype), orders_of(column.dtype)
        is_other = cells.has_no_text(column.dtype) or may_be_numbers or bool(orders)
        may_be_text = column.dtype == pl.String or not is_other
        column = cells.as_text(column) if may_be_text else cells.missing_as_null(column)
        if before is not None:
            orders = tuple(order for order in orders if order in before.readings)
            may_be_text &= before.texts is not None
        kept = column.filter(weight > 0)
        marks = Marks.of(kept)
        readings = number_readings(column, marks, weight, size, truth=True) if may_be_numbers else {}
        for order in orders:
            seconds = seconds_in(column, order=order)
            if 2 * seconds.count() >= column.count():
                readings[order] = Reading.of(column, parts_of(seconds), weight, size)
        counted = {"text": kept, "n": weight[weight > 0]}
        texts = _counted(pl.DataFrame(counted).drop_nulls("text")) if may_be_text else None
        first = (str(cell) for cell in kept.drop_nulls().head(20).to_list())
        shown = (text if len(text) <= EXAMPLE_LENGTH else f"{text[: EXAMPLE_LENGTH - 1]}…" for text in first)
        examples = tuple(dict.fromkeys(shown))[:EXAMPLES]
        return cls(len(kept), float(weight.sum()), kept.count(), examples, marks, readings, texts)

    def column(self, name: str, dtype: "pl.DataType", decimal: str = "") -> Column:
        """What the column is; `decimal` is the sign where commas do not tell."""
        if not self.cells:
            return Unused(name, "it is empty")
        if cells.has_no_text(dtype):
            return Unused(name, f"its type {dtype} is neither a number nor a category")
        marks, numbers, (order, dates) = self.marks, self.readings.get("."), self._dates
        if numbers is not None and self._are(numbers):
            if marks.are_one_unit:
                return self._numbers(name, numbers, decimal)
            recur = self.texts is not None and LEAST_REPEATED * self.texts.height <= self.cells  # as 1st, 2nd, 3rd
            if not (marks.codes or recur):
                units = ", ".join([*map(quoted, marks.units), *(["none"] if marks.bare else [])])
                return Unused(name, f"its numbers have different units, {units}; write all of them in one to use it")
        if dates is not None and len(dates.quantiles.values) and self._are(dates):
            first, gaps = date_of(dates.least[0]), bool(dates.moments.count[0] < self.rows)
            varies = (part for part, low, high in zip(PARTS, dates.least, dates.most, strict=True) if low < high)
            parts = ("days",) if order == "clock" else tuple(dict.fromkeys(("days", *varies)))
            return Dates(name, first, dates.quantiles.median() - days_of(first), parts, gaps, order)
        return self._categories(name)

    def _are(self, reading: Reading) -> bool:
        return reading.learned_strays == 0 or self._skips(reading)

    def _skips(self, reading: Reading) -> bool:
        n = self.cells - reading.learned_strays
        return n >= LEAST_NUMBERS and n >= LEAST_SHARE * self.cells

    def _numbers(self, name: str, numbers: Reading, decimal: str) -> Column:
        count = numbers.moments.count[0]
        if not count:
            return Unused(name, "it holds no finite number")
        decimal = self.marks.decimal(name, decimal)
        median = self.readings.get(decimal, numbers).quantiles.median()
        skips = numbers.strays.count > 0 and self._skips(numbers)
        return Numbers(name, median, bool(count < self.rows), skips, decimal, self.marks.unit)

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

    def reading(self, column: Column) -> Reading | None:
        """As numbers or dates, where the column is one of these."""
        way = column.order if isinstance(column, Dates) else column.decimal if isinstance(column, Numbers) else None
        return None if way is None else self.readings.get(way) or self.readings["."]

    def strays(self, column: Column) -> Strays:
        """Cells that are taken as missing, but are not."""
        reading = self.reading(column)
        return Strays() if reading is None else reading.strays

    def is_refused(self, column: Column) -> bool:
        """Whether the cells of some rows are no inputs: text among numbers, or what is not finite."""
        reading = self.reading(column)
        if reading is None or not isinstance(column, Numbers):
            return False
        return bool(reading.infinite or (reading.strays.count and not column.skips_text))

    def notes(self, column: Column) -> list[str]:
        """Warnings: what may be meant otherwise, cells that are taken as missing, categories alike."""
        found, strays, kind = [], self.strays(column), column.kind
        same = [each.learned_strays for order, each in self.readings.items() if order in ("dmy", "mdy")]
        if isinstance(column, Dates) and column.order in ("dmy", "mdy") and same[1:] == same[:1]:
            way = "month/day/year" if column.order == "mdy" else "day-month-year"
            found.append(
                f"{self.examples[0]} may be read in two ways and is taken as {way}; write 2024-01-31 to be sure"
            )
        if isinstance(column, Categories) and (mostly := self._mostly):
            found.append(
                f"{mostly}, so that all are categories; write the others alike or leave them empty, "
                f"or pass --categorical (in Python, the dtype category)"
            )
        if strays.count:
            many = f"{strays.count:,} cells that are no {kind}s are"
            are = f"a cell that is no {kind} is" if strays.count == 1 else many
            found.append(
                f"{are} taken as missing, such as {listed(strays.examples)}; "
                f"--categorical (in Python, the dtype category) takes all as categories"
            )
        for group in alike(column.categories if isinstance(column, Categories) else ()):
            found.append(f"{listed(group)} look alike; where they mean the same, write them alike")
        return found

    @property
    def _mostly(self) -> str:
        """What more than half of the cells are, where that is less than all of a column of many texts."""
        order, dates = self._dates
        few = self.texts is not None and self.texts.height <= MANY
        for kind, found in (("numbers", self.readings.get(".")), (EXAMPLE_OF[order], dates)) if not few else ():
            if found is not None and 0 < 2 * found.learned_strays < self.cells:
                n = self.cells - found.learned_strays
                return f"{n:,} of {self.cells:,} cells are {kind}, but not {listed(found.strays.examples)}"
        return ""

    @property
    def _dates(self) -> tuple[str, Reading | None]:
        """The order of day, month and year that explains most cells, and what they are then."""
        dates = {order: each.learned_strays for order, each in self.readings.items() if order in ORDERS}
        best = [order for order, strays in dates.items() if strays == min(dates.values())] or ORDERS[:1]
        has_slash = any("/" in text for text in self.examples)
        order = "mdy" if best[:2] == ["dmy", "mdy"] and has_slash else best[0]
        return order, self.readings.get(order)

    def moments(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the inputs that are made of the column, where rows weigh the same."""
        reading = self.reading(column)
        if isinstance(column, Numbers | Dates) and reading is not None:
            places = [PARTS.index(part) for part in column.parts] if isinstance(column, Dates) else [0]
            moments = Moments(*(each[places] for each in vars(reading.moments).values()))
            missing = self.rows - moments.count
            filling = np.array([column.median])
            if isinstance(column, Dates):
                nothing = pl.Series([None], dtype=pl.Int64)
                filling = date_features(nothing, column.first, column.median, column.parts)[0]
            filled = moments.merged(Moments(missing, filling, np.zeros(len(places))))
            mean, deviation = _shares(missing[:1] / self.rows if column.gaps else np.empty(0))
            return np.append(filled.mean, mean), np.append(filled.deviation, deviation)
        if not isinstance(column, Categories) or self.texts is None:
            return np.empty(0), np.empty(0)
        counts = dict(self.texts.iter_rows())
        known = [counts[text] for text in column.categories]
        others = [sum(counts.values()) - sum(known)] if column.others else []
        return _shares(np.array([*known, *others, *([self.rows - self.cells] if column.gaps else [])]) / self.rows)

    def digest(self) -> bytes:
        """The same for the same column; another one has other sums."""
        parts = [part for each in list(self.readings.values())[:1] for part in vars(each.moments).values()]
        texts = None if self.texts is None else self.texts.rows()
        return repr((self.rows, self.cells, texts)).encode() + b"".join(part.tobytes() for part in parts)


def _shares(shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of zeros and ones, so many of which are ones."""
    return shares, np.sqrt(shares * (1.0 - shares))
