"""From a table to a network's inputs.

A table is an array of numbers, NaN where one is missing, or a Polars frame (see `frames`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from fracdnn.exceptions import TableError
from fracdnn.tables.cells import Strays, as_text, missing_as_null
from fracdnn.tables.column import Categories, Column, Dates, Numbers, Place, Unused, from_document
from fracdnn.tables.ids import id_reasons
from fracdnn.tables.late import pl
from fracdnn.tables.learning import Finding, learn_column, learn_numbers
from fracdnn.tables.words import count, nearest, quoted

# A terminal shows up to so many columns, and so many characters of a name and of examples.
MOST_LINES, NAME_WIDTH, EXAMPLES_WIDTH = 60, 24, 34
HEADINGS = ("column", "kind", "examples", "missing", "what became of it")


def row_from_0(row: int) -> str:
    """Return the name of a row in messages about tables in Python."""
    return f"row {row} (the first is 0)"


@dataclass(frozen=True)
class Encoder:
    """Rules that turn tables into a network's inputs, one per column, in the order of the training table.

    `fit` learns them, `transform` applies them to this and further tables with the same columns, such as the batches
    of a table larger than memory, and `state` gives them as plain values, for model files and for other processes.
    `findings` say what a fit has seen; they are not part of the state.
    """

    columns: tuple[Column, ...]
    findings: tuple[Finding, ...] = field(default=(), compare=False, repr=False)

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
        """Learn what the columns are, from the rows with a weight above zero; without any use, raise an error.

        A weight [n] counts as repetitions; rows without one are only checked. `decimal` is the sign of numbers whose
        commas do not tell. With `leave_out_ids`, all rows decide which columns only number them (see `ids`); those in
        `keep` stay.
        """
        weight = np.ones(len(table)) if weight is None else weight
        if isinstance(table, np.ndarray):
            names = [f"x{j}" for j in range(table.shape[1])] if names is None else names
            findings = [learn_numbers(table[:, j], weight, name) for j, name in enumerate(names)]
        else:
            frame = table if names is None else table.rename(dict(zip(table.columns, names, strict=True)))
            findings = [learn_column(column, weight, decimal) for column in frame.iter_columns()]
            used = [each.column.name for each in findings if each.column.inputs]
            reasons = id_reasons(frame.select(used), keep) if leave_out_ids else {}
            findings = [each.unused(reasons.get(each.column.name)) for each in findings]
        encoder = cls(tuple(each.column for each in findings), tuple(findings))
        if not encoder.feature_names:
            why = "; ".join(encoder.notes()) or "there is none beside the target"
            raise TableError(f"the table must have a column to learn from, got none: {why}")
        return encoder

    @classmethod
    def from_state(cls, state: list[dict[str, Any]]) -> "Encoder":
        """Return the encoder with this state; raise an error of some kind if `state` cannot have made it."""
        columns = tuple(from_document(each) for each in state)
        if len({column.name for column in columns}) < max(1, len(columns)):
            raise ValueError("no columns, or two of one name")
        return cls(columns)

    def state(self) -> list[dict[str, Any]]:
        """Return the rules as plain values, one dictionary per column."""
        return [{"kind": column.kind, **asdict(column)} for column in self.columns]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @cached_property
    def feature_names(self) -> list[str]:
        """The name of each input: that of its column, or with it a category, a part of a date, or "is missing"."""
        return [name for column in self.columns for name in column.inputs]

    @property
    def places(self) -> dict[str, list[int]]:
        """The places of the inputs that are made of each column in use."""
        ends = list(accumulate((len(column.inputs) for column in self.columns), initial=0))
        return {c.name: list(range(*ends[k : k + 2])) for k, c in enumerate(self.columns) if c.inputs}

    @cached_property
    def is_plain(self) -> bool:
        """True if the columns are the inputs, as long as nothing is missing."""
        return all(isinstance(column, Numbers) and not column.gaps for column in self.columns)

    @property
    def left_out(self) -> dict[str, str]:
        """The reason for each column that is left out."""
        return {column.name: column.why for column in self.columns if isinstance(column, Unused)}

    def used(self) -> "Encoder":
        """Return the rules of the columns in use, without findings."""
        return Encoder(tuple(column for column in self.columns if column.inputs))

    def transform(self, table: Any, place: Place = row_from_0) -> np.ndarray:
        """Return the inputs [n, n_inputs]; for plain numbers without missing ones the table itself.

        The table has the columns of the training table, in their order. In messages, `place` says where a row is.
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

    def notes(self) -> list[str]:
        """Return remarks on the fitted table: columns that are left out, then cells that may be meant otherwise."""
        left_out = [f"column {quoted(name)} is left out: {why}" for name, why in self.left_out.items()]
        return [*left_out, *self.warnings()]

    def warnings(self) -> list[str]:
        """Return the remarks on cells that may be meant otherwise."""
        return [f"warning: column {quoted(each.column.name)}: {note}" for each in self.findings for note in each.notes]

    def overview(self) -> list[dict[str, str]]:
        """Return what was understood of each column of the fitted table, by `HEADINGS`."""
        rows = []
        for found in self.findings:
            share, column = found.missing, found.column
            missing = "" if not share else "under 0.1%" if share < 0.001 else f"{share:.1%}"
            cells = column.name, column.kind, ", ".join(found.examples), missing, found.use
            rows.append(dict(zip(HEADINGS, cells, strict=True)))
        return rows

    def unseen(self, table: "pl.DataFrame") -> dict[str, Strays]:
        """Return the cells of each column that training has not seen the like of.

        These are new categories, and missing numbers and dates in columns that had none.
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
        """Return warnings about such cells."""
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
    """Inputs that an encoder made of a table; estimators take them in place of the table.

    `unseen` is what `Encoder.unseen` says of the table.
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


def as_lines(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return one line per row of `Encoder.overview`; if there are too many, columns that are left out come first."""
    kept = sorted(range(len(rows)), key=lambda k: (rows[k]["kind"] != Unused.kind, k))[:MOST_LINES]
    lines = []
    for k in sorted(kept):
        name, kind, examples, missing, use = (rows[k][heading] for heading in HEADINGS)
        kind = "left out" if kind == Unused.kind else kind
        words = use + (f"; {missing} missing" if missing and kind != "left out" else "")
        lines.append(f"  {_cut(name, NAME_WIDTH)}  {kind:<8}  {_cut(examples, EXAMPLES_WIDTH)}  {words}".rstrip())
    more = len(rows) - len(kept)
    return [*lines, f"  … and {count(more, 'column')} more; `fracdnn report` lists all"] if more else lines


def _cut(text: str, width: int) -> str:
    """Return printable text of this width."""
    if not text.isprintable():
        text = "".join(each if each.isprintable() else " " for each in text)
    text = " ".join(text.split())
    shown = text if len(text) <= width else f"{text[: width - 1]}…"
    return f"{shown:<{width}}"
