"""Row numbers and ids among the columns of a table: they say which row it is, not what is in it, and are left out.

In a table sorted by its target, a row number predicts the target, and means nothing for new rows. The rule, the same
for all rows of a table in memory and of one that is streamed: where 95 % of the rows hold a whole number, and 95 % of
these are different, the column is

- an id if its name says so (`is_named_id`: id, customer_id, PassengerId, rownames, index, no name …), of text too;
- row numbers if the table has 20 rows or more, the numbers start at 0 or 1 (in tables of 1,000 rows or more, anywhere)
  and are 95 % of those in their range, in any order, or half of them if each is larger than the one before, as after
  rows were removed; unless its name is one of time (`time`, `year`, `day of study` …).

So what is measured stays: numbers with fractions, sorted or not, a grid with another step than 1 (temperature, dose), a
design variable in a short table, dates. Row numbers also stay where no other column is left to learn from. Other text
is left out by `ColumnSummary` if it differs in each row or has many values.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fracdnn.tables.cells import missing_as_null
from fracdnn.tables.column import Column, Unused
from fracdnn.tables.late import pl
from fracdnn.tables.summaries import MOST_DISTINCT, Sums
from fracdnn.tables.words import quoted

NEARLY_ALL, SORTED_SHARE = 0.95, 0.5
LEAST_ROWS, MANY_ROWS = 20, 1000
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ID_WORDS = {"id", "ids", "uuid", "guid", "rowid", "rowname", "rownames", "rownum", "rownumber"}
_LAST_ID_WORDS = {"key", "no", "nr"}
_ID_NAMES = {"index", "idx", "row", "row names", "row number", "row index", "record", "obs", "serial", "serial number"}
_TIME_WORDS = {"t", "time", "timestamp", "date", "epoch", "age", "quarter"} | {
    word + ending for word in ("second", "minute", "hour", "day", "week", "month", "year") for ending in ("", "s")
}


@dataclass(frozen=True, eq=False)
class Numbering(Sums):
    """Of a column of whole numbers, or of text with the name of an id: its rows, the cells that hold one, the least and
    the most, whether each is larger or each smaller than the one before, the first and the last, and hashes of the
    different ones, of more than `MOST_DISTINCT` in a stream the smallest.
    """

    ways: ClassVar = {
        "least": min,
        "most": max,
        "ends": lambda mine, theirs: (*mine[:1], *theirs[-1:]),
        "hashes": lambda mine, theirs: np.unique(np.concatenate([mine, theirs]))[:MOST_DISTINCT],
    }
    rows: int
    cells: int
    least: float
    most: float
    rises: bool
    falls: bool
    ends: tuple[float, ...]
    hashes: np.ndarray

    @classmethod
    def of(cls, column: "pl.Series") -> "Numbering | None":
        """None where a cell holds something else."""
        if not (column.dtype.is_numeric() or column.dtype == pl.String):
            return None
        column = missing_as_null(column)
        values = column.cast(pl.Float64, strict=False).drop_nulls().to_numpy()
        if len(values) < column.count() and is_named_id(column.name):
            texts = np.unique(column.drop_nulls().hash(seed=0).to_numpy())
            return cls(len(column), column.count(), np.nan, np.nan, False, False, (), texts)
        if len(values) < column.count() or not (values == np.floor(values)).all():
            return None
        steps = np.diff(values)
        ends = (float(values[0]), float(values[-1])) if len(values) else ()
        least, most = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
        rises, falls = bool((steps > 0).all()), bool((steps < 0).all())
        return cls(len(column), len(values), least, most, rises, falls, ends, np.unique(row_hashes(values[:, None])))

    def merged(self, other: "Numbering") -> "Numbering":
        if not (self.cells and other.cells):
            return replace(self if self.cells else other, rows=self.rows + other.rows)
        rises = self.rises and other.rises and self.ends[-1] < other.ends[0]
        falls = self.falls and other.falls and self.ends[-1] > other.ends[0]
        return replace(super().merged(other), rises=rises, falls=falls)

    @property
    def distinct(self) -> float:
        """How many are different; where not all hashes are kept, an estimate with a deviation of 1 %.

        The k-th smallest of d hashes, uniform in (0, 1), is near k / d (Bar-Yossef et al. 2002).
        """
        if self.rises or self.falls:
            return self.cells
        return (len(self.hashes) - 1) * 2.0**64 / float(self.hashes[-1]) if self.is_cut else len(self.hashes)

    @property
    def is_cut(self) -> bool:
        """Whether hashes may be missing."""
        return len(self.hashes) == MOST_DISTINCT < self.cells

    @property
    def differs_in_each_row(self) -> bool:
        """As far as that is known for certain."""
        return self.cells == self.rows == self.distinct and (self.rises or self.falls or not self.is_cut)


def row_hashes(values: np.ndarray) -> np.ndarray:
    """A number of 64 bits for each row of values [n, k], as if drawn at random (Steele, Lea and Flood 2014)."""
    bits, found = (np.ascontiguousarray(values) + 0.0).view(np.uint64), np.zeros(len(values), dtype=np.uint64)
    for column in bits.T:
        found = (found ^ column) + np.uint64(0x9E3779B97F4A7C15)
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found ^= found >> np.uint64(31)
    return found


def left_out_ids(numberings: "Mapping[str, Numbering | None]") -> dict[str, str]:
    reasons = {name: _why(name, found) for name, found in numberings.items() if found is not None and found.cells}
    return {name: f"{why}; --keep {quoted(name)} uses it" for name, why in reasons.items() if why}


def without_ids(columns: Sequence[Column], numberings: "Mapping[str, Numbering | None]") -> tuple[Column, ...]:
    """Leave out ids and row numbers, the latter only where another column is in use."""
    reasons = left_out_ids(numberings)
    used = {column.name for column in columns if column.inputs}
    left = {name for name in used & set(reasons) if used - set(reasons) or is_named_id(name)}
    return tuple(Unused(c.name, reasons[c.name]) if c.name in left else c for c in columns)


def _why(name: str, found: Numbering) -> str:
    share = found.cells / (found.most - found.least + 1)
    if min(found.cells / found.rows, found.distinct / found.cells) < NEARLY_ALL:
        return ""
    if is_named_id(name):
        return "it is an id, by its name and its different values"
    starts = found.least in (0, 1) or found.rows >= MANY_ROWS
    dense = share >= (SORTED_SHARE if found.rises or found.falls else NEARLY_ALL)
    if found.rows >= LEAST_ROWS and starts and dense and not _TIME_WORDS & set(_words(name)):
        return f"it numbers the rows, from {found.least:,.0f} to {found.most:,.0f}"
    return ""


def is_named_id(name: str) -> bool:
    words = _words(name)
    if not name.strip() or "unnamed" in words:  # as pandas and Excel write the numbers of rows
        return True
    return bool(_ID_WORDS & set(words)) or words[-1:] in [[w] for w in _LAST_ID_WORDS] or " ".join(words) in _ID_NAMES


def _words(name: str) -> list[str]:
    """Those of customer_id, PassengerId and "Row Number", in lower case."""
    return [word.lower() for word in _WORDS.findall(name)]
