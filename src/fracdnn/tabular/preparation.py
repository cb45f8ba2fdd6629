"""From columns to numbers: missing values filled in, categories as one-hot columns, by scikit-learn's transformers.

What is learned from the training table is little (a median or the categories of each column) and is kept as plain
values: the transformers are made again by fitting them to one row that holds just these.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from fracdnn.exceptions import TableError
from fracdnn.tabular.cells import (
    NOTHING,
    Strays,
    as_categories,
    has_no_text,
    missing_as_null,
    numbers_among,
    numbers_in,
    skips_text,
    strays_in,
)
from fracdnn.tabular.words import check_columns, listed, nearest, quoted

if TYPE_CHECKING:
    import polars as pl

MOST_CATEGORIES = 100


@dataclass(frozen=True)
class Column:
    """A column of the table: numbers, with their median, or categories, in alphabetical order.

    Of numbers with `skips_text`, cells such as "<0.5" or "n.d." are missing; of others they are an error.
    """

    name: str
    kind: str
    median: float | None = None
    categories: tuple[str, ...] = ()
    skips_text: bool = False

    def check(self) -> None:
        """A ValueError unless it is what `Preparation.of` makes, which a file does not promise."""
        if self.kind == "number":
            good = isinstance(self.median, float | int) and math.isfinite(self.median) and not self.categories
        else:
            texts = all(isinstance(value, str) for value in self.categories)
            good = self.kind == "category" and bool(self.categories) and texts and self._is_sorted()
            good = good and not self.skips_text
        if not (good and isinstance(self.name, str) and isinstance(self.skips_text, bool)):
            raise ValueError(f"a column {self.name!r} that is none")

    def _is_sorted(self) -> bool:
        return list(self.categories) == sorted(set(self.categories))


class Preparation:
    """The columns a model uses and how they become features."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = tuple(columns)
        self._numbers = [c for c in self.columns if c.kind == "number"]
        self._categories = [c for c in self.columns if c.kind == "category"]
        self._fit()

    @classmethod
    def of(
        cls, table: "pl.DataFrame", *, categorical: Sequence[str] = (), tested: "pl.DataFrame | None" = None
    ) -> tuple["Preparation", list[str]]:
        """What the table's columns are, and a sentence for each that is left out or has cells that are.

        Of rows that are only `tested`, cells that are no numbers are looked at, and nothing else.
        """
        tested = table.clear() if tested is None else tested
        found = {name: _column(table[name], tested[name], name in categorical) for name in table.columns}
        skipping = [c.name for c in found.values() if isinstance(c, Column) and c.skips_text]
        strays = {name: strays_in(table[name]).append(strays_in(tested[name])) for name in skipping}
        return prepared(found, {name: Strays.of(cells) for name, cells in strays.items()})

    @classmethod
    def from_document(cls, document: list[dict[str, Any]]) -> "Preparation":
        """The inverse of `to_document`; a ValueError where that could not have written it."""
        columns = [Column(**{**each, "categories": tuple(each["categories"])}) for each in document]
        if not columns or len({column.name for column in columns}) < len(columns):
            raise ValueError("no columns, or two of one name")
        for column in columns:
            column.check()
        return cls(columns)

    def to_document(self) -> list[dict[str, Any]]:
        """Plain values; `skips_text` where it is so, as earlier versions do not know it."""
        documents = [asdict(column) for column in self.columns]
        return [{k: v for k, v in each.items() if k != "skips_text" or v} for each in documents]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def number_names(self) -> list[str]:
        return [column.name for column in self._numbers]

    @property
    def feature_names(self) -> list[str]:
        """A name for each feature: that of the column, for a category with its value."""
        return self.number_names + [f"{c.name}={value}" for c in self._categories for value in c.categories]

    @property
    def features_of_columns(self) -> dict[str, list[int]]:
        """The places of the features that are made of each column."""
        sizes = [(c.name, 1) for c in self._numbers] + [(c.name, len(c.categories)) for c in self._categories]
        ends = list(accumulate((size for _, size in sizes), initial=0))
        return {name: list(range(*ends[k : k + 2])) for k, (name, _) in enumerate(sizes)}

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


def prepared(found: Mapping[str, Column | str], strays: "Mapping[str, Strays]") -> tuple[Preparation, list[str]]:
    """The columns that can be used, and sentences: the reason that was found for each other, and on stray cells."""
    columns = [column for column in found.values() if isinstance(column, Column)]
    notes = [f"column {quoted(name)} is left out: {why}" for name, why in found.items() if isinstance(why, str)]
    if not columns:
        reasons = "; ".join(notes) or "there is none beside the target"
        raise TableError(f"the table must have a column to learn from, got none: {reasons}")
    return Preparation(columns), notes + [_stray_note(name, cells) for name, cells in strays.items()]


def _stray_note(name: str, strays: Strays) -> str:
    cells = "a cell that is no number is" if strays.count == 1 else f"{strays.count:,} cells that are no numbers are"
    return (
        f"warning: column {quoted(name)}: {cells} taken as missing, such as {listed(strays.examples)}; "
        f"--categorical makes it one of categories"
    )


def _column(column: "pl.Series", tested: "pl.Series", categorical: bool) -> "Column | str":
    """What the column is, or why it cannot be used."""
    if missing_as_null(column).null_count() == len(column):
        return "it is empty"
    if column.dtype.is_temporal() or has_no_text(column.dtype):
        return f"its type {column.dtype} is neither a number nor a category"
    values = None if categorical else _numbers_to_learn_from(column)
    if values is not None:
        finite = values.filter(values.is_finite())
        if not len(finite):
            return "it holds no finite number"
        cells = missing_as_null(column).count()
        skips = skips_text(values.count(), cells) and (values.count() < cells or len(strays_in(tested)) > 0)
        return Column(column.name, "number", median=float(finite.median()), skips_text=skips)  # type: ignore[arg-type]
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
