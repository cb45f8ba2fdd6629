"""Row numbers and ids among the columns of a table: they say which row it is, not what is in it, and are left out.

In a table sorted by its target, a row number predicts the target, and means nothing for new rows. The rule: where 95 %
of the rows hold a whole number, and 95 % of these are different, the column is

- an id if its name says so (`is_named_id`: id, customer_id, PassengerId, rownames, index, no name …), of text too;
- row numbers if the table has 20 rows or more, the numbers start at 0 or 1 (in tables of 1,000 rows or more, anywhere)
  and are 95 % of those in their range, in any order, or half of them if each is larger than the one before, as after
  rows were removed; unless its name is one of time (`time`, `year`, `day of study` …).

So what is measured stays: numbers with fractions, sorted or not, a grid with another step than 1 (temperature, dose), a
design variable in a short table, dates. Row numbers also stay if no other column is left to learn from. Other text
is left out by `learning` if it differs in each row or has many values.
"""

import re
from collections.abc import Sequence

import numpy as np

from fracdnn.tables.cells import missing_as_null
from fracdnn.tables.late import pl
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


def id_reasons(table: "pl.DataFrame", keep: Sequence[str] = ()) -> dict[str, str]:
    """Return why to leave out columns but those to `keep`: row numbers only if another column is left."""
    found = {column.name: _reason(column) for column in table.iter_columns() if column.name not in keep}
    reasons = {name: f"{why}; --keep {quoted(name)} uses it" for name, why in found.items() if why}
    others = set(table.columns) - set(reasons)
    return {name: why for name, why in reasons.items() if others or is_named_id(name)}


def _reason(column: "pl.Series") -> str:
    """Return why a column is left out, or nothing."""
    cells = missing_as_null(column).drop_nulls()
    values = whole_numbers(cells)
    is_text_id = values is None and cells.dtype == pl.String and is_named_id(column.name)
    if (values is None and not is_text_id) or min(len(cells) / len(column), _share_of_different(cells)) < NEARLY_ALL:
        return ""
    if values is None or is_named_id(column.name):
        return "it is an id, by its name and its different values"
    least, most, steps = values.min(), values.max(), np.diff(values)
    share = SORTED_SHARE if (steps > 0).all() or (steps < 0).all() else NEARLY_ALL
    starts = least in (0, 1) or len(column) >= MANY_ROWS
    dense = len(values) / (most - least + 1) >= share
    if len(column) >= LEAST_ROWS and starts and dense and not _TIME_WORDS & set(_words(column.name)):
        return f"it numbers the rows, from {least:,.0f} to {most:,.0f}"
    return ""


def whole_numbers(cells: "pl.Series") -> np.ndarray | None:
    """Return cells without missing ones as float64, or None if there are none or some are not whole numbers."""
    if not (cells.dtype.is_numeric() or cells.dtype == pl.String):
        return None
    values = cells.cast(pl.Float64, strict=False).to_numpy()
    return values if len(values) and (values == np.floor(values)).all() else None


def _share_of_different(cells: "pl.Series") -> float:
    return cells.n_unique() / max(1, len(cells))


def different_whole_numbers(table: "pl.DataFrame") -> list[str]:
    """Return the columns with a different whole number in each row."""
    columns = (column for column in table.iter_columns() if missing_as_null(column).n_unique() == len(column))
    return [column.name for column in columns if whole_numbers(missing_as_null(column)) is not None]


def row_hashes(values: np.ndarray) -> np.ndarray:
    """Return a number of 64 bits for each row [n, k], as if drawn at random (Steele, Lea and Flood 2014)."""
    bits, found = (np.ascontiguousarray(values) + 0.0).view(np.uint64), np.zeros(len(values), dtype=np.uint64)
    for column in bits.T:
        found = (found ^ column) + np.uint64(0x9E3779B97F4A7C15)
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found ^= found >> np.uint64(31)
    return found


def is_named_id(name: str) -> bool:
    """Return True for names such as customer_id, PassengerId, index, or no name."""
    words = _words(name)
    if not name.strip() or "unnamed" in words:  # pandas and Excel write row numbers so
        return True
    return bool(_ID_WORDS & set(words)) or words[-1:] in [[w] for w in _LAST_ID_WORDS] or " ".join(words) in _ID_NAMES


def _words(name: str) -> list[str]:
    """Return the words of customer_id, PassengerId and "Row Number", in lower case."""
    return [word.lower() for word in _WORDS.findall(name)]
