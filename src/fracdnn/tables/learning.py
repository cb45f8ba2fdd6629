"""Decisions on what a column is: numbers, dates, categories, or of no use, and what a user should know of it."""

from dataclasses import dataclass, replace

import numpy as np

from fracdnn.tables import cells
from fracdnn.tables.cells import Marks, Strays
from fracdnn.tables.column import MOST_CATEGORIES, MOST_FREQUENT, Categories, Column, Dates, Numbers, Unused
from fracdnn.tables.dates import PARTS, date_of, days_of, orders_of, parts_of, seconds_in
from fracdnn.tables.late import pl
from fracdnn.tables.words import alike, count, listed, quoted

# Text of more different values is left out, and so is text of more than `MOST_CATEGORIES` whose most frequent values
# have less than this share of the rows: comments, names.
MOST_TEXTS, LEAST_FREQUENT = 10_000, 0.1
# If so many cells to learn from are numbers or dates, and such a share of them, the others are taken as missing.
LEAST_NUMBERS, LEAST_SHARE = 20, 0.95
# Numbers of different units are categories if each occurs so often: 1st, 2nd, 3rd.
LEAST_REPEATED = 5
# Text of more different values, most of which are numbers or dates, may be meant otherwise, which is said.
MANY = 20
# Up to so many cells of a column are shown, and so much of each.
EXAMPLES, EXAMPLE_LENGTH = 3, 24
EXAMPLE_OF = {
    "numbers": "numbers",
    "ymd": "dates such as 2024-01-31",
    "dmy": "dates such as 31.01.2024",
    "mdy": "dates such as 01/31/2024",
    "clock": "times of day",
}
WRITTEN = {"dmy": "written day first, as 31.01.2024", "mdy": "written month first, as 01/31/2024"}


@dataclass(frozen=True)
class Finding:
    """What was learned of a column: its rule, first cells, the share of missing ones, its use, and warnings."""

    column: Column
    examples: tuple[str, ...] = ()
    missing: float = 0.0
    use: str = ""
    notes: tuple[str, ...] = ()

    def unused(self, why: str | None) -> "Finding":
        """Return the finding with the column left out, if there is a reason."""
        return self if why is None else replace(self, column=Unused(self.column.name, why), use=why, notes=())


def median_of(values: np.ndarray, weight: np.ndarray) -> float:
    """Return the median of finite numbers, at least one, each repeated as often as its weight says."""
    if (weight == weight[0]).all():
        middle = [(len(values) - 1) // 2, len(values) // 2]
        low, high = np.partition(values, middle)[middle]
    else:
        distinct, which = np.unique(values, return_inverse=True)
        ends = np.bincount(which, weights=weight).cumsum()
        places = (np.searchsorted(ends, ends[-1] / 2, side=side) for side in ("left", "right"))
        low, high = (distinct[min(place, len(ends) - 1)] for place in places)
    # The sum of two large numbers may overflow.
    return float(low if low == high else low / 2 + high / 2)


def learn_numbers(values: np.ndarray, weight: np.ndarray, name: str) -> Finding:
    """Learn from a column of an array; NaN is missing."""
    known = (weight > 0) & np.isfinite(values)
    if not known.any():
        return Finding(Unused(name, "it is empty"), use="it is empty")
    gaps = bool(np.isnan(values[weight > 0]).any())
    return Finding(Numbers(name, median_of(values[known], weight[known]), gaps))


def learn_column(column: "pl.Series", weight: np.ndarray, decimal: str = "") -> Finding:
    """Learn from a column whose rows stand as often as their `weight` [n] says; rows without one are only checked.

    `decimal` is the sign of numbers whose commas do not tell.
    """
    facts = _Facts(column, weight)
    rule = facts.rule(decimal)
    use = rule.why if isinstance(rule, Unused) else facts.use(rule)
    missing = 1 - facts.n_cells / facts.n_rows if facts.n_rows else 0.0
    return Finding(rule, facts.examples, missing, use, tuple(facts.notes(rule)))


class _Reading:
    """Cells read as numbers or dates: `values` [n, n_parts] with NaN for other cells, and the strays in all rows.

    `learned` [n] marks the finite values to learn from; `n_strays` of the `n_cells` to learn from are of another kind.
    """

    def __init__(self, order: str, column: "pl.Series", values: np.ndarray, weight: np.ndarray) -> None:
        bad = column.is_not_null().to_numpy() & np.isnan(values[:, 0]) & (column.dtype == pl.String)
        self.order, self.values, self.strays = order, values, Strays.of(column.filter(bad))
        self.learned = (weight > 0) & np.isfinite(values[:, 0])
        self.n_cells, self.n_strays = column.filter(weight > 0).count(), int(bad[weight > 0].sum())

    @property
    def skips(self) -> bool:
        """True if strays are too few to make the column text."""
        n = self.n_cells - self.n_strays
        return n >= LEAST_NUMBERS and n >= LEAST_SHARE * self.n_cells

    @property
    def explains(self) -> bool:
        """True if the column is of this kind."""
        return not self.n_strays or self.skips

    @property
    def mostly(self) -> str:
        """A remark if more than half of the cells are of this kind, but not all."""
        if not 0 < 2 * self.n_strays < self.n_cells:
            return ""
        some, kind = f"{self.n_cells - self.n_strays:,} of {self.n_cells:,} cells", EXAMPLE_OF[self.order]
        return f"{some} are {kind}, but not {listed(self.strays.examples)}"


class _Facts:
    """A column with the facts that decide what it is."""

    def __init__(self, column: "pl.Series", weight: np.ndarray) -> None:
        self.name, self.dtype, self.weight = column.name, column.dtype, weight
        may_be_numbers, orders = cells.may_be_numbers(column.dtype), orders_of(column.dtype)
        is_other = cells.has_no_text(column.dtype) or may_be_numbers or bool(orders)
        self.may_be_text = column.dtype == pl.String or not is_other
        self.cells = cells.as_text(column) if self.may_be_text else cells.missing_as_null(column)
        kept = self.cells.filter(weight > 0)
        self.n_rows, self.n_cells, self.marks = len(kept), kept.count(), Marks.of(kept)
        first = map(str, kept.drop_nulls().head(20).unique(maintain_order=True).head(EXAMPLES).to_list())
        shown = (text if len(text) <= EXAMPLE_LENGTH else f"{text[: EXAMPLE_LENGTH - 1]}…" for text in first)
        self.examples = tuple(dict.fromkeys(shown))[:EXAMPLES]
        self.numbers = self._as_numbers(".") if may_be_numbers else None
        # Each order of day, month and year that explains half of the cells; those that explain most come first.
        dates = []
        for order in orders if self.numbers is None or self.numbers.n_strays else ():
            seconds = seconds_in(self.cells, order=order)
            if 2 * seconds.count() >= self.cells.count():
                dates.append(_Reading(order, self.cells, parts_of(seconds), weight))
        best = [each for each in dates if each.n_strays == min(other.n_strays for other in dates)]
        self.is_ambiguous = [each.order for each in best[:2]] == ["dmy", "mdy"]
        is_american = self.is_ambiguous and any("/" in text for text in self.examples)
        self.dates = best[is_american] if best else None
        self._texts: pl.DataFrame | None = None

    def _as_numbers(self, decimal: str) -> _Reading:
        values = cells.parsed(self.cells, decimal, truth=True).to_numpy()
        return _Reading("numbers", self.cells, values[:, None], self.weight)

    @property
    def texts(self) -> "pl.DataFrame":
        """Each `text` to learn from once, in alphabetical order, with its weight `n`."""
        if self._texts is None:
            counted = pl.DataFrame({"text": self.cells, "n": self.weight}).filter(pl.col("n") > 0).drop_nulls("text")
            self._texts = counted.group_by("text", maintain_order=True).agg(pl.col("n").sum()).sort("text")
        return self._texts

    def rule(self, decimal: str) -> Column:
        """Decide what the column is."""
        if not self.n_cells:
            return Unused(self.name, "it is empty")
        if cells.has_no_text(self.dtype):
            return Unused(self.name, f"its type {self.dtype} is neither a number nor a category")
        if self.numbers is not None and self.numbers.explains:
            if self.marks.are_one_unit:
                return self._numbers(self.numbers, decimal)
            recurs = self.texts.height <= MOST_TEXTS and LEAST_REPEATED * self.texts.height <= self.n_cells
            if not (self.marks.codes or recurs):
                units = ", ".join([*map(quoted, self.marks.units), *(["none"] if self.marks.bare else [])])
                why = f"its numbers have different units, {units}; write all of them in one to use it"
                return Unused(self.name, why)
        if self.dates is not None and self.dates.learned.any() and self.dates.explains:
            return self._dates(self.dates)
        return self._categories() if self.may_be_text else Unused(self.name, "it holds no number or date in range")

    def _numbers(self, numbers: _Reading, decimal: str) -> Column:
        if not numbers.learned.any():
            return Unused(self.name, "it holds no finite number")
        decimal = self.marks.decimal(self.name, decimal)
        reading = self._as_numbers(decimal) if decimal == "," else numbers
        median = median_of(reading.values[reading.learned, 0], self.weight[reading.learned])
        skips, gaps = numbers.strays.count > 0 and numbers.skips, bool(numbers.learned.sum() < self.n_rows)
        return Numbers(self.name, median, gaps, skips, decimal, self.marks.unit)

    def _dates(self, dates: _Reading) -> Column:
        parts = dates.values[dates.learned]
        first, gaps = date_of(parts[:, 0].min()), len(parts) < self.n_rows
        varying = (part for part, values in zip(PARTS, parts.T, strict=True) if values.min() < values.max())
        names = ("days",) if dates.order == "clock" else tuple(dict.fromkeys(("days", *varying)))
        median = median_of(parts[:, 0], self.weight[dates.learned]) - days_of(first)
        return Dates(self.name, first, median, names, gaps, dates.order)

    def _categories(self) -> Column:
        """Return all texts, or the most frequent by weight; of equally frequent ones the first in the alphabet."""
        texts, gaps, n = self.texts, self.n_cells < self.n_rows, self.texts.height
        frequent = texts.sort("n", "text", descending=[True, False]).head(MOST_FREQUENT)
        differs = n == self.n_rows > 2
        if n <= MOST_CATEGORIES and not differs:
            return Categories(self.name, tuple(texts["text"]), gaps)
        if n <= MOST_TEXTS and not differs and frequent["n"].sum() >= LEAST_FREQUENT * float(self.weight.sum()):
            return Categories(self.name, tuple(sorted(frequent["text"])), gaps, others=True)
        many = f"more than {MOST_TEXTS:,}" if n > MOST_TEXTS else f"{n:,}"
        remedy = f"{self._mostly}: write all alike" if self._mostly else "group its values"
        return Unused(self.name, f"it is text with {many} different values in {self.n_rows:,} rows; {remedy} to use it")

    @property
    def _mostly(self) -> str:
        """What more than half of the cells of a column of many texts are."""
        readings = [] if self.texts.height <= MANY else [self.numbers, self.dates]
        return next((each.mostly for each in readings if each is not None and each.mostly), "")

    def _reading(self, rule: Column) -> _Reading | None:
        return self.numbers if isinstance(rule, Numbers) else self.dates if isinstance(rule, Dates) else None

    def notes(self, rule: Column) -> list[str]:
        """Return warnings: what may be meant otherwise, cells that are taken as missing, categories that look alike."""
        notes, kind, reading = [], rule.kind, self._reading(rule)
        if isinstance(rule, Dates) and self.is_ambiguous:
            way = "month/day/year" if rule.order == "mdy" else "day-month-year"
            notes.append(
                f"{self.examples[0]} may be read in two ways and is taken as {way}; write 2024-01-31 to be sure"
            )
        if isinstance(rule, Categories) and self._mostly:
            notes.append(
                f"{self._mostly}, so that all are categories; write the others alike or leave them empty, "
                f"or pass --categorical (in Python, the dtype category)"
            )
        if reading is not None and (n := reading.strays.count):
            are = f"a cell that is no {kind} is" if n == 1 else f"{n:,} cells that are no {kind}s are"
            notes.append(
                f"{are} taken as missing, such as {listed(reading.strays.examples)}; "
                f"--categorical (in Python, the dtype category) takes all as categories"
            )
        for group in alike(rule.categories if isinstance(rule, Categories) else ()):
            notes.append(f"{listed(group)} look alike; where they mean the same, write them alike")
        return notes

    def use(self, rule: Column) -> str:
        """Return how the column is used, for a reader of the overview."""
        words, reading = [""], self._reading(rule)
        if isinstance(rule, Numbers) and reading is not None:
            known = reading.values[reading.learned, 0]
            words = ["the same number in every row" if known.min() == known.max() else "a number"]
            words += [f"in {rule.unit}"] if rule.unit else []
            words += [{"": "", ".": "commas separate thousands", ",": "with a decimal comma"}[rule.decimal]]
            words += [f"missing ones become {rule.median:g}, the median"] if rule.gaps else []
        elif isinstance(rule, Categories):
            words = [count(len(rule.categories), "category")]
            words = [f"the {words[0]} that are most frequent, and one for all others"] if rule.others else words
            words += ["codes with leading zeros"] if self.marks.codes else []
        elif isinstance(rule, Dates):
            parts = ", ".join(rule.parts).replace("days", f"days since {rule.first}")
            words = ["a time of day" if rule.order == "clock" else parts, WRITTEN.get(rule.order, "")]
        if reading is not None and (n := reading.strays.count):
            words += [f"{count(n, 'cell')} such as {reading.strays.examples[0]} taken as missing"]
        return ", ".join(word for word in words if word)
