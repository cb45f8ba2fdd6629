"""From columns to numbers: missing values filled in, categories as one-hot columns, by scikit-learn's transformers, and
dates as `dates` has them.

What is learned from the training table is little (a median or the categories of each column) and is kept as plain
values: the transformers are made again by fitting them to one row that holds just these.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from fracdnn.exceptions import TableError
from fracdnn.tabular.cells import (
    NOTHING,
    Strays,
    are_numbers,
    as_categories,
    is_usable,
    missing_as_null,
    numbers_among,
    numbers_in,
    skips_text,
    strays_in,
)
from fracdnn.tabular.dates import (
    DAY,
    PARTS,
    date_features,
    date_of,
    date_strays,
    days_of,
    may_be_dates,
    parts_of,
    seconds_in,
)
from fracdnn.tabular.ids import is_named_id
from fracdnn.tabular.words import check_columns, listed, nearest, quoted

if TYPE_CHECKING:
    import polars as pl

MOST_CATEGORIES = 100


@dataclass(frozen=True)
class Column:
    """A column of the table: numbers, with their median, categories, in alphabetical order, or dates, with the `first`
    of them, their median in days since then and the `parts` that are features.

    Of numbers with `skips_text`, cells such as "<0.5" or "n.d." are missing; of others they are an error.
    """

    name: str
    kind: str
    median: float | None = None
    categories: tuple[str, ...] = ()
    skips_text: bool = False
    first: str = ""
    parts: tuple[str, ...] = ()

    @classmethod
    def of_dates(cls, name: str, least: float, median: float, varies: np.ndarray) -> "Column":
        """The first date and the median in days since 1970, and which of `PARTS` vary."""
        first = date_of(least)
        parts = tuple(part for part, does in zip(PARTS, varies, strict=True) if does or part == "days")
        return cls(name, "date", median=median - days_of(first), first=first, parts=parts)

    @property
    def feature_names(self) -> list[str]:
        if self.kind == "number":
            return [self.name]
        return [f"{self.name}={value}" for value in self.categories] + [f"{self.name} ({part})" for part in self.parts]

    def check(self) -> None:
        """A ValueError unless it is what `Preparation.of` makes, which a file does not promise."""
        if self.kind in ("number", "date"):
            good = isinstance(self.median, float | int) and math.isfinite(self.median) and not self.categories
            good = good and (self._has_dates() if self.kind == "date" else not (self.first or self.parts))
        else:
            texts = all(isinstance(value, str) for value in self.categories)
            good = self.kind == "category" and bool(self.categories) and texts and self._is_sorted()
            good = good and not (self.skips_text or self.first or self.parts)
        if not (good and isinstance(self.name, str) and isinstance(self.skips_text, bool)):
            raise ValueError(f"a column {self.name!r} that is none")

    def _has_dates(self) -> bool:
        assert self.median is not None
        parts = tuple(part for part in PARTS if part in self.parts)
        last = days_of(self.first) + self.median
        return self.parts == parts != () and self.median >= 0 and last <= days_of("9999-12-31") and not self.skips_text

    def _is_sorted(self) -> bool:
        return list(self.categories) == sorted(set(self.categories))


class Preparation:
    """The columns a model uses and how they become features.

    `left_out` says of other columns why they cannot be used, where it was made of a table.
    """

    def __init__(self, columns: Sequence[Column], left_out: Mapping[str, str] | None = None) -> None:
        self.columns, self.left_out = tuple(columns), dict(left_out or {})
        self._numbers = [c for c in self.columns if c.kind == "number"]
        self._categories = [c for c in self.columns if c.kind == "category"]
        self._dates = [c for c in self.columns if c.kind == "date"]
        self._fit()

    @classmethod
    def of(
        cls,
        table: "pl.DataFrame",
        *,
        categorical: Sequence[str] = (),
        tested: "pl.DataFrame | None" = None,
        ids: Mapping[str, str] | None = None,
    ) -> tuple["Preparation", list[str]]:
        """What the table's columns are, and a sentence for each that is left out, has cells that are, or holds dates.

        Of rows that are only `tested`, cells that are no numbers or dates are looked at, and nothing else. `ids` are
        columns to leave out, and why (see `ids`).
        """
        tested = table.clear() if tested is None else tested
        found = {name: _column(table[name], tested[name], name in categorical) for name in table.columns}
        skipping = {name: date_strays if c.kind == "date" else strays_in for name, c in _skipping(found)}
        strays = {name: find(table[name]).append(find(tested[name])) for name, find in skipping.items()}
        return prepared(found, {name: Strays.of(cells) for name, cells in strays.items()}, ids or {})

    @classmethod
    def from_document(cls, document: list[dict[str, Any]]) -> "Preparation":
        """The inverse of `to_document`; a ValueError where that could not have written it."""
        plain = [{**each, **{k: tuple(each[k]) for k in ("categories", "parts") if k in each}} for each in document]
        columns = [Column(**each) for each in plain]
        if not columns or len({column.name for column in columns}) < len(columns):
            raise ValueError("no columns, or two of one name")
        for column in columns:
            column.check()
        return cls(columns)

    def to_document(self) -> list[dict[str, Any]]:
        """Plain values; what earlier versions do not know, where it is so."""
        newer = ("skips_text", "first", "parts")
        return [{k: v for k, v in asdict(column).items() if k not in newer or v} for column in self.columns]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def number_names(self) -> list[str]:
        return [column.name for column in self._numbers]

    @property
    def feature_names(self) -> list[str]:
        """A name for each feature: that of the column, with the value of a category or the part of a date."""
        return [name for column in self._in_order for name in column.feature_names]

    @property
    def _in_order(self) -> list[Column]:
        """The columns in the order of their features."""
        return [*self._numbers, *self._categories, *self._dates]

    @property
    def features_of_columns(self) -> dict[str, list[int]]:
        """The places of the features that are made of each column."""
        ends = list(accumulate((len(column.feature_names) for column in self._in_order), initial=0))
        return {column.name: list(range(*ends[k : k + 2])) for k, column in enumerate(self._in_order)}

    def transform(self, table: "pl.DataFrame", *, new_categories: str = "error", first_row: int = 0) -> np.ndarray:
        """Features [n_rows, n_features] from columns in any order; others are not looked at.

        A category that was not in the training table is an error that names it, or with `new_categories="ignore"`
        no category at all. `first_row` is the number of rows before this part of the table.
        """
        check_columns(self.names, table.columns)
        parts = []
        if self._numbers:
            values = [_as_numbers(table[c.name], c.skips_text, first_row) for c in self._numbers]
            parts.append(self._imputer.transform(np.column_stack(values)))
        if self._categories:
            texts = [as_categories(table[c.name]) for c in self._categories]
            if new_categories == "error":
                for column, text in zip(self._categories, texts, strict=True):
                    _check_known(column, text, first_row)
            parts.append(self._encoder.transform(np.column_stack([text.to_numpy() for text in texts]).astype(object)))
        parts += [date_features(table[c.name], c.first, c.median or 0.0, c.parts) for c in self._dates]
        return np.hstack(parts)

    def _fit(self) -> None:
        from sklearn.impute import SimpleImputer
        from sklearn.preprocessing import OneHotEncoder

        if self._numbers:
            medians = np.array([[column.median for column in self._numbers]], dtype=np.float64)
            # Of one row, each value is the most frequent, and no sum of two large ones overflows.
            self._imputer = SimpleImputer(strategy="most_frequent").fit(medians)
        if self._categories:
            known = [np.array(column.categories, dtype=object) for column in self._categories]
            encoder = OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False)
            self._encoder = encoder.fit(np.array([[each[0] for each in known]], dtype=object))


def prepared(
    found: Mapping[str, Column | str], strays: "Mapping[str, Strays]", ids: Mapping[str, str]
) -> tuple[Preparation, list[str]]:
    """The columns that can be used, and sentences: the reason that was found for each other, and on stray cells."""
    usable = [name for name, column in found.items() if isinstance(column, Column)]
    others = [name for name in usable if name not in ids]
    found = {**found, **{name: ids[name] for name in usable if name in ids and (others or is_named_id(name))}}
    strays = {name: cells for name, cells in strays.items() if isinstance(found[name], Column)}
    columns = [column for column in found.values() if isinstance(column, Column)]
    left_out = {name: why for name, why in found.items() if isinstance(why, str)}
    notes = [f"column {quoted(name)} is left out: {why}" for name, why in left_out.items()]
    if not columns:
        reasons = "; ".join(notes) or "there is none beside the target"
        raise TableError(f"the table must have a column to learn from, got none: {reasons}")
    notes += [_date_note(column) for column in columns if column.kind == "date"]
    words = {column.name: "date" if column.kind == "date" else "number" for column in columns}
    notes += [_stray_note(name, words[name], cells) for name, cells in strays.items() if cells.count]
    return Preparation(columns, left_out), notes


def _skipping(found: Mapping[str, Column | str]) -> Iterator[tuple[str, Column]]:
    """Columns in which cells may be taken as missing that are not."""
    for name, column in found.items():
        if isinstance(column, Column) and (column.skips_text or column.kind == "date"):
            yield name, column


def _date_note(column: Column) -> str:
    parts = " and ".join(filter(None, [", ".join(column.parts[:-1]), column.parts[-1]]))
    parts = parts.replace("days", f"days since {column.first}")
    return f"column {quoted(column.name)} holds dates, taken as {parts}"


def _stray_note(name: str, word: str, strays: Strays) -> str:
    one, more = f"a cell that is no {word} is", f"{strays.count:,} cells that are no {word}s are"
    cells = one if strays.count == 1 else more
    return (
        f"warning: column {quoted(name)}: {cells} taken as missing, such as {listed(strays.examples)}; "
        f"--categorical makes it one of categories"
    )


def _column(column: "pl.Series", tested: "pl.Series", categorical: bool) -> "Column | str":
    """What the column is, or why it cannot be used."""
    if missing_as_null(column).null_count() == len(column):
        return "it is empty"
    if not is_usable(column.dtype):
        return f"its type {column.dtype} is neither a number nor a category"
    values = None if categorical else _numbers_to_learn_from(column)
    if values is not None:
        finite = values.filter(values.is_finite())
        if not len(finite):
            return "it holds no finite number"
        cells = missing_as_null(column).count()
        skips = skips_text(values.count(), cells) and (values.count() < cells or len(strays_in(tested)) > 0)
        return Column(column.name, "number", median=float(finite.median()), skips_text=skips)  # type: ignore[arg-type]
    dates = None if categorical or not may_be_dates(column.dtype) else seconds_in(column).drop_nulls()
    if dates is not None and len(dates) and are_numbers(len(dates), missing_as_null(column).count()):
        days: Any = dates / DAY
        return Column.of_dates(column.name, days.min(), days.median(), np.ptp(parts_of(dates), axis=0) > 0)
    texts = as_categories(column)
    known = tuple(sorted(texts.unique().to_list()))
    return too_many_categories(len(known), len(column)) or Column(column.name, "category", categories=known)


def _numbers_to_learn_from(column: "pl.Series") -> "pl.Series | None":
    import polars as pl

    values = numbers_in(column)
    if values is None and column.dtype == pl.String:
        cells = missing_as_null(column).count()
        return numbers_among(column) if skips_text(cells - len(strays_in(column)), cells) else None
    return values


def too_many_categories(n: int, rows: int, *, more: bool = False) -> str:
    """Why a column of `n` different texts, or `more`, is none of categories; nothing where it is one."""
    if n > MOST_CATEGORIES or n == rows > 2:
        return f"it is text with {f'more than {MOST_CATEGORIES}' if more else n} different values in {rows} rows"
    return ""


def _as_numbers(column: "pl.Series", skips: bool, first_row: int) -> np.ndarray:
    import polars as pl

    values = numbers_among(column) if skips and column.dtype == pl.String else numbers_in(column)
    if values is None:
        texts = missing_as_null(column).cast(str, strict=False)
        bad = texts.is_not_null() & texts.cast(float, strict=False).is_null()
        row = int(bad.arg_max() or 0)
        raise TableError(
            f"column {quoted(column.name)} must hold numbers, got {quoted(texts[row])} in row {first_row + row + 1}; "
            f"correct the cell, or leave it empty if it is not known"
        )
    found = values.fill_null(float("nan")).to_numpy()
    if np.isinf(found).any():
        row = int(np.isinf(found).argmax())
        raise TableError(
            f"column {quoted(column.name)} must hold finite numbers, got {found[row]} in row {first_row + row + 1}; "
            f"correct the cell, or leave it empty if it is not known"
        )
    return found


def _check_known(column: Column, texts: "pl.Series", first_row: int) -> None:
    known = [*column.categories, NOTHING]
    new = ~texts.is_in(known)
    if new.any():
        row = int(new.arg_max() or 0)
        raise TableError(
            f"column {quoted(column.name)} must hold categories of the training table, got "
            f"{nearest(texts[row], known)} in row {first_row + row + 1}; it knows {listed(column.categories)}; "
            f"correct the cell, or pass --new-categories ignore"
        )
