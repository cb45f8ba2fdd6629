"""Rules for columns: each kind has the names of its `inputs`, and writes them with `fill` into an array of zeros.

Categories have an input each. The network's input projection is dense, so its weights for these inputs are the learned
embedding of the categories.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from fracdnn.exceptions import TableError
from fracdnn.tables.cells import Marks, as_text, may_be_numbers, missing_as_null, parsed
from fracdnn.tables.dates import ORDERS, PARTS, date_features, days_of, seconds_in
from fracdnn.tables.late import pl
from fracdnn.tables.words import quoted

# Up to 100 different texts have an input each; of more, the 30 most frequent ones, and one input is for the others.
MOST_CATEGORIES, MOST_FREQUENT = 100, 30
# Says where a cell is, given the number of its row.
Place = Callable[[int], str]


@dataclass(frozen=True)
class Numbers:
    """A column of numbers: the median fills missing ones; with `gaps`, an input says which were missing.

    With `skips_text`, cells such as "<0.5" or "n.d." are missing; otherwise they are an error. `decimal` and `unit`
    are those of text; new cells may leave the unit out.
    """

    kind: ClassVar[str] = "number"
    name: str
    median: float
    gaps: bool = False
    skips_text: bool = False
    decimal: str = ""
    unit: str = ""

    @property
    def inputs(self) -> list[str]:
        return [self.name, *([f"{self.name} is missing"] if self.gaps else [])]

    def fill(self, inputs: np.ndarray, column: "np.ndarray | pl.Series", place: Place) -> None:
        """Write the numbers of a column into `inputs` [n, n_inputs]."""
        values = column if isinstance(column, np.ndarray) else self._numbers(column, place)
        missing = np.isnan(values)
        inputs[:, 0] = np.where(missing, self.median, values)
        if self.gaps:
            inputs[:, 1] = missing

    def _numbers(self, column: "pl.Series", place: Place) -> np.ndarray:
        cells = missing_as_null(column if may_be_numbers(column.dtype) else as_text(column))
        is_text = cells.dtype == pl.String
        # Most text is plain numbers, of which nothing has to be found out.
        is_plain = cells.cast(pl.Float64, strict=False).null_count() == cells.null_count()
        decimal = self.decimal or (Marks.of(cells).decimal(self.name) if is_text and not is_plain else "")
        values = parsed(cells, decimal, self.unit, truth=True)
        is_bad = cells.is_not_null() & values.is_null()
        bad = is_bad.arg_true() if not (self.skips_text and is_text) else pl.Series([])
        for rule, rows in (("numbers", bad), ("finite numbers", values.is_infinite().arg_true())):
            if len(rows):
                cell = quoted(str(cells[rows[0]])) if rule == "numbers" else str(values[rows[0]])
                raise TableError(
                    f"column {quoted(self.name)} must hold {rule}, got {cell} in {place(rows[0])}; "
                    f"correct the cell, or leave it empty if it is not known"
                )
        return values.to_numpy()


@dataclass(frozen=True)
class Categories:
    """A column of text: an input per category in alphabetical order; with `gaps`, one for missing cells.

    With `others`, training saw more categories: one input is for all others, new ones among them. Otherwise the inputs
    of a new category are zeros.
    """

    kind: ClassVar[str] = "category"
    name: str
    categories: tuple[str, ...]
    gaps: bool = False
    others: bool = False

    @property
    def inputs(self) -> list[str]:
        words = [*self.categories, *(["(others)"] if self.others else []), *(["(missing)"] if self.gaps else [])]
        return [f"{self.name}={word}" for word in words]

    def fill(self, inputs: np.ndarray, column: "np.ndarray | pl.Series", place: Place) -> None:
        """Write ones for the categories of a column into `inputs` [n, n_inputs]."""
        texts = as_text(pl.Series(column) if isinstance(column, np.ndarray) else column)
        codes = texts.cast(pl.Enum(self.categories), strict=False).to_physical().cast(pl.Int64)
        if self.others:
            codes = codes.set(codes.is_null() & texts.is_not_null(), len(self.categories))
        if self.gaps:
            codes = codes.set(texts.is_null(), len(self.inputs) - 1)
        inputs[codes.is_not_null().arg_true().to_numpy(), codes.drop_nulls().to_numpy()] = 1.0


@dataclass(frozen=True)
class Dates:
    """A column of dates: days since the `first` one and other `parts`; a missing date is `median` days after it.

    `order` says how text is written; see `dates`.
    """

    kind: ClassVar[str] = "date"
    name: str
    first: str
    median: float
    parts: tuple[str, ...]
    gaps: bool = False
    order: str = ORDERS[0]

    @property
    def inputs(self) -> list[str]:
        parts = [f"{self.name} ({'time of day' if self.order == 'clock' else part})" for part in self.parts]
        return [*parts, f"{self.name} is missing"] if self.gaps else parts

    def fill(self, inputs: np.ndarray, column: "np.ndarray | pl.Series", place: Place) -> None:
        """Write the parts of the dates of a column into `inputs` [n, n_inputs]."""
        seconds = seconds_in(pl.Series(column) if isinstance(column, np.ndarray) else column, self.name, self.order)
        inputs[:, : len(self.parts)] = date_features(seconds, self.first, self.median, self.parts)
        if self.gaps:
            inputs[:, -1] = seconds.is_null().to_numpy()


@dataclass(frozen=True)
class Unused:
    """A column that is left out, and why."""

    kind: ClassVar[str] = "unused"
    inputs: ClassVar[list[str]] = []
    name: str
    why: str


Column = Numbers | Categories | Dates | Unused
_LAST_DAY = days_of("9999-12-31")
_KINDS: dict[str, Any] = {kind.kind: kind for kind in (Numbers, Categories, Dates, Unused)}


def from_document(document: dict[str, Any]) -> Column:
    """Return a column from `Encoder.state`; raise ValueError, LookupError or TypeError if that cannot have made it."""
    values = {name: tuple(each) if isinstance(each, list) else each for name, each in document.items()}
    column: Column = _KINDS[str(values.pop("kind"))](**values)
    types = {str: str, bool: bool, float: float | int, tuple[str, ...]: tuple}
    as_declared = (isinstance(getattr(column, each.name), types[each.type]) for each in fields(column))  # type: ignore[index]
    if not (all(as_declared) and _is_learned(column)):
        raise ValueError(f"invalid column {column.name!r:.80}")
    return column


def _is_learned(column: Column) -> bool:
    """Return True for values that training can have learned, which a file does not promise."""
    if isinstance(column, Categories):
        known, n = column.categories, len(column.categories)
        good = all(isinstance(text, str) for text in known) and list(known) == sorted(set(known))
        return good and (n == MOST_FREQUENT if column.others else 0 < n <= MOST_CATEGORIES)
    if isinstance(column, Unused) or not math.isfinite(column.median):
        return isinstance(column, Unused)
    if isinstance(column, Numbers):
        return column.decimal in ("", ".", ",")
    parts, last = tuple(part for part in PARTS if part in column.parts), days_of(column.first) + column.median
    return column.order in ORDERS and column.parts == parts != () and column.median >= 0 and last <= _LAST_DAY
