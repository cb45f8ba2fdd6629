"""From a table to a network's inputs, and what is learned of a table for that.

A table is an array of numbers, NaN where one is missing, or a Polars frame (see `frames`).
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from fracdnn.exceptions import TableError
from fracdnn.tables.cells import Strays, as_text, missing_as_null
from fracdnn.tables.column import Categories, Column, Dates, Numbers, Place, Unused, from_document
from fracdnn.tables.ids import Numbering, without_ids
from fracdnn.tables.late import pl
from fracdnn.tables.summaries import Sums, median_of
from fracdnn.tables.summary import ColumnSummary
from fracdnn.tables.words import count, nearest, quoted

# So many columns are listed in a terminal, and so much of a name and of examples.
MOST_LINES, NAME_WIDTH, EXAMPLES_WIDTH = 60, 24, 34
HEADINGS = ("column", "kind", "examples", "missing", "what became of it")


def row_from_0(row: int) -> str:
    return f"row {row} (the first is 0)"


@dataclass(frozen=True)
class Encoder:
    """Rules that turn tables into a network's inputs, one per column, in the order of the training table.

    `fit` learns them, `transform` applies them to further tables with the same columns, and `state` gives them as
    plain values, for model files and for other processes.
    """

    columns: tuple[Column, ...]
    summary: "TableSummary | None" = field(default=None, compare=False, repr=False)

    @classmethod
    def fit(
        cls,
        table: Any,
        weight: np.ndarray | None = None,
        *,
        names: Sequence[str] | None = None,
        decimal: str = "",
        leave_out_ids: bool = False,
        keep: Sequence[str] = (),
    ) -> "Encoder":
        """Learn what the columns of a frame or an array are, from the rows with a weight above zero.

        A weight [n] counts as repetitions. `decimal` is the sign of numbers whose commas do not tell. With
        `leave_out_ids` all rows decide which columns only number them (see `ids`); those in `keep` stay.
        """
        is_array = isinstance(table, np.ndarray)
        frame = pl.DataFrame(table) if is_array else table
        if names is not None:
            frame = frame.rename(dict(zip(frame.columns, names, strict=True)))
        summary = summary_of(frame, np.ones(len(frame)) if weight is None else weight)
        columns = summary.encoding(frame.schema, decimal).columns
        if leave_out_ids:
            numberings = {each.name: Numbering.of(each) for each in frame.iter_columns() if each.name not in keep}
            columns = without_ids(columns, numberings)
        return with_inputs(cls(columns, summary))

    def notes(self) -> list[str]:
        """Return warnings about the fitted table: columns that are left out, and cells that may be meant otherwise."""
        return [*left_out_notes(self), *([] if self.summary is None else self.summary.notes(self))]

    def overview(self) -> list[dict[str, str]]:
        """Return what was understood of each column of the fitted table, by `HEADINGS`."""
        return [] if self.summary is None else describe_columns(self.summary, self)

    @classmethod
    def from_state(cls, document: list[dict[str, Any]]) -> "Encoder":
        """Return the encoder with this `state`; raise an error of some kind if `state` could not have written it."""
        columns = tuple(from_document(each) for each in document)
        if len({column.name for column in columns}) < max(1, len(columns)):
            raise ValueError("no columns, or two of one name")
        return cls(columns)

    def state(self) -> list[dict[str, Any]]:
        """Return the rules as plain values, one dictionary per column."""
        return [{"kind": column.kind, **asdict(column)} for column in self.columns]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def number_names(self) -> list[str]:
        return [column.name for column in self.columns if column.kind == "number"]

    @cached_property
    def feature_names(self) -> list[str]:
        """Of each input: that of its column, or with it a category, a part of a date or that it is missing."""
        return [name for column in self.columns for name in column.inputs]

    @property
    def places(self) -> dict[str, list[int]]:
        """The places of the inputs that are made of each column in use."""
        ends = list(accumulate((len(column.inputs) for column in self.columns), initial=0))
        return {c.name: list(range(*ends[k : k + 2])) for k, c in enumerate(self.columns) if c.inputs}

    @cached_property
    def is_plain(self) -> bool:
        """Whether the columns are the inputs, as long as nothing is missing."""
        return all(isinstance(column, Numbers) and not column.gaps for column in self.columns)

    @property
    def left_out(self) -> dict[str, str]:
        return {column.name: column.why for column in self.columns if isinstance(column, Unused)}

    def used(self) -> "Encoder":
        return Encoder(tuple(column for column in self.columns if column.inputs))

    def transform(self, table: Any, place: Place = row_from_0) -> np.ndarray:
        """The inputs [n, n_inputs]; for plain numbers of which none is missing the table itself.

        In messages `place` says where a row is.
        """
        is_array = isinstance(table, np.ndarray)
        if is_array and self.is_plain and not np.isnan(table).any():
            return table
        inputs, first = np.zeros((len(table), len(self.feature_names))), 0
        for number, column in enumerate(self.columns):
            if not isinstance(column, Unused):
                cells = table[:, number] if is_array else table.to_series(number)
                end = first + len(column.inputs)
                column.fill(inputs[:, first:end], cells, place)
                first = end
        return inputs

    def unseen(self, table: "pl.DataFrame") -> dict[str, Strays]:
        """By column, the cells of a kind that training has not seen, where there are any: new categories, and missing
        numbers and dates.
        """
        found = {}
        for column, cells in zip(self.columns, table.iter_columns(), strict=True):
            if isinstance(column, Categories) and not column.others:
                texts = as_text(cells).drop_nulls()
                found[column.name] = Strays.of(texts.filter(~texts.is_in(column.categories)))
            elif isinstance(column, Numbers | Dates) and not column.gaps:
                found[column.name] = Strays(missing_as_null(cells).null_count())
        return {name: strays for name, strays in found.items() if strays.count}

    def unseen_notes(self, unseen: Mapping[str, Strays]) -> list[str]:
        """What a user should know of them."""
        known = {column.name: column.categories for column in self.columns if isinstance(column, Categories)}
        return [
            f"column {quoted(name)}: {count(cells.count, 'cell')} with a category that training has not seen, such as "
            f"{', '.join(nearest(text, known[name]) for text in cells.examples)}; predicted as none of the known ones"
            if name in known
            else f"column {quoted(name)}: {count(cells.count, 'missing cell')} where training saw none; predicted as "
            f"the median"
            for name, cells in unseen.items()
        ]


@dataclass(frozen=True, eq=False)
class Encoded:
    """The inputs that an encoding made of a table; estimators take them in place of the table.

    `unseen` is what the encoding says of the table's new categories.
    """

    inputs: np.ndarray
    encoding: Encoder
    unseen: Mapping[str, Strays] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inputs.shape

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, rows: Any) -> "Encoded":
        return Encoded(self.inputs[rows], self.encoding)


@dataclass(frozen=True, eq=False)
class TableSummary(Sums):
    columns: tuple[ColumnSummary, ...]

    def encoding(self, schema: "Mapping[str, pl.DataType]", decimal: str = "") -> Encoder:
        """What the columns are; those that cannot be used are in it, too."""
        found = zip(schema.items(), self.columns, strict=True)
        return Encoder(tuple(summary.column(name, dtype, decimal) for (name, dtype), summary in found))

    def notes(self, encoding: Encoder) -> list[str]:
        """Warnings; see `ColumnSummary.notes`."""
        found = zip(encoding.columns, self.columns, strict=True)
        return [f"warning: column {quoted(c.name)}: {note}" for c, summary in found for note in summary.notes(c)]


def summary_of(table: "pl.DataFrame", weight: np.ndarray) -> TableSummary:
    """Of a table in memory, whose rows with a `weight` [n] are to be learned from."""
    return TableSummary(tuple(ColumnSummary.of(each, weight, size=sys.maxsize) for each in table.iter_columns()))


def learn(table: Any, weight: np.ndarray, names: Sequence[str]) -> tuple[Encoder, list[str]]:
    """Learn the columns from the rows with a weight, which counts as repetitions; return warnings, too."""
    if isinstance(table, np.ndarray):
        found = Encoder(tuple(_numbers(table[:, j], weight, name) for j, name in enumerate(names)))
        return with_inputs(found), left_out_notes(found)
    frame = table.rename(dict(zip(table.columns, names, strict=True)))
    summary = summary_of(frame, weight)
    encoding = summary.encoding(frame.schema)
    return with_inputs(encoding), [*left_out_notes(encoding), *summary.notes(encoding)]


def _numbers(values: np.ndarray, weight: np.ndarray, name: str) -> Column:
    known = ~np.isnan(values) & (weight > 0)
    if not known.any():
        return Unused(name, "it is empty")
    gaps = bool(np.isnan(values[weight > 0]).any())
    return Numbers(name, median_of(values[known], weight[known]), gaps)


def with_inputs(encoding: Encoder) -> Encoder:
    """An encoding of some use; where all columns are left out, an error that says why."""
    if not encoding.feature_names:
        reasons = "; ".join(left_out_notes(encoding)) or "there is none beside the target"
        raise TableError(f"the table must have a column to learn from, got none: {reasons}")
    return encoding


def left_out_notes(encoding: Encoder) -> list[str]:
    return [f"column {quoted(name)} is left out: {why}" for name, why in encoding.left_out.items()]


def describe_columns(summary: TableSummary, encoding: Encoder) -> list[dict[str, str]]:
    """By `HEADINGS`, for each column of the table but the target."""
    rows = []
    for column, found in zip(encoding.columns, summary.columns, strict=True):
        share = 1 - found.cells / found.rows if found.rows else 0.0
        missing = "" if not share else "under 0.1%" if share < 0.001 else f"{share:.1%}"
        cells = column.name, column.kind, ", ".join(found.examples), missing, _became(column, found)
        rows.append(dict(zip(HEADINGS, cells, strict=True)))
    return rows


def as_lines(rows: Sequence[dict[str, str]]) -> list[str]:
    """One line for each column, those that are left out first to be shown where there are too many."""
    kept = sorted(range(len(rows)), key=lambda k: (rows[k]["kind"] != Unused.kind, k))[:MOST_LINES]
    lines = []
    for k in sorted(kept):
        name, kind, examples, missing, became = (rows[k][heading] for heading in HEADINGS)
        kind = "left out" if kind == Unused.kind else kind
        told = became + (f"; {missing} missing" if missing and kind != "left out" else "")
        lines.append(f"  {_cut(name, NAME_WIDTH)}  {kind:<8}  {_cut(examples, EXAMPLES_WIDTH)}  {told}".rstrip())
    more = len(rows) - len(kept)
    return [*lines, f"  … and {count(more, 'column')} more; `fracdnn report` lists all"] if more else lines


def _became(column: Column, found: ColumnSummary) -> str:
    if isinstance(column, Unused):
        return column.why
    words: list[Any] = []
    if isinstance(column, Numbers):
        reading = found.reading(column)
        is_constant = reading is not None and reading.least == reading.most
        words = ["the same number in every row" if is_constant else "a number"]
        words += [f"in {column.unit}"] if column.unit else []
        words += [{"": "", ".": "commas separate thousands", ",": "with a decimal comma"}[column.decimal]]
        words += [f"missing ones become {column.median:g}, the median"] if column.gaps else []
    elif isinstance(column, Categories):
        known = count(len(column.categories), "category")
        words = [f"the {known} that are most frequent, and one for all others" if column.others else known]
        words += ["codes with leading zeros"] if found.marks.codes else []
    elif isinstance(column, Dates):
        parts = ", ".join(column.parts).replace("days", f"days since {column.first}")
        order = {"ymd": "", "dmy": "day before month", "mdy": "month before day", "clock": ""}[column.order]
        words = ["a time of day" if column.order == "clock" else parts, order]
    strays = found.strays(column)
    words += [f"{count(strays.count, 'cell')} such as {strays.examples[0]} taken as missing"] if strays.count else []
    return ", ".join(word for word in words if word)


def _cut(text: str, width: int) -> str:
    text = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    shown = text if len(text) <= width else f"{text[: width - 1]}…"
    return f"{shown:<{width}}"
