"""A table larger than memory, made ready to learn from: one pass that finds out all that a training needs to know."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch

from fracdnn.columns.encoding import Encoded, Encoding, TableSummary, with_inputs
from fracdnn.columns.frames import with_categories
from fracdnn.columns.late import pl
from fracdnn.columns.summaries import Sums
from fracdnn.columns.summary import Cell, ColumnReader, Places
from fracdnn.columns.tree import Tree, shared
from fracdnn.columns.understood import describe_columns
from fracdnn.columns.words import check_columns, check_target_name
from fracdnn.exceptions import TableError
from fracdnn.tabular.ids import Numbering, like_ids, without_ids
from fracdnn.tabular.model import no_values, target_column
from fracdnn.tabular.streaming import Piece, TableStream, read_piece
from fracdnn.tabular.targets import Target, TargetReader, TargetSummary
from fracdnn.training import Samples, Standardization, together
from fracdnn.training.samples import Chunk

ROLES = ("training", "validation", "test")


@dataclass(frozen=True)
class Division:
    """What rows are for, drawn one by one: a share of all to test, of the others a share to stop early by."""

    test: float = 0.0
    validation: float = 0.0
    seed: int = 0

    def generator(self, piece: Piece) -> np.random.Generator:
        return np.random.default_rng([self.seed, piece.number])

    def roles(self, generator: np.random.Generator, n: int) -> np.ndarray:
        """Places in `ROLES` for the next `n` rows of a piece."""
        drawn, test = generator.random(n), 1.0 - self.test
        return np.searchsorted([test * (1.0 - self.validation), test], drawn, side="right")


@dataclass(frozen=True)
class ExaminedTable:
    """A stream and what one pass over it has found; `sizes` [pieces, roles] are numbers of rows, `ids` may be ids."""

    stream: TableStream
    division: Division
    target: Target
    encoding: Encoding
    left_out: dict[str, str]
    columns: list[dict[str, str]]
    notes: list[str]
    ids: list[str]
    standardization: Standardization
    sizes: np.ndarray
    n_without_target: int
    digest: str

    def n_rows(self, role: str) -> int:
        return int(self.sizes[:, ROLES.index(role)].sum())

    def samples(self, role: str) -> "TableSamples":
        return TableSamples(self, role)

    def parts(
        self, place: int, role: str, *, whole: bool = False
    ) -> "Iterator[tuple[pl.DataFrame, Encoded, np.ndarray]]":
        """The rows of a piece that have this role: as frames, features, and labels or values.

        Frames hold what the features need at least, with `whole` all columns, as they are in the file.
        """
        piece, columns = self.stream.pieces[place], [*self.encoding.names, self.target.name]
        generator = self.division.generator(piece)
        options = {} if whole else {"columns": columns, "numbers": self.encoding.number_names}
        for frame in read_piece(piece, **options):
            mine = pl.Series(self.division.roles(generator, frame.height) == ROLES.index(role))
            target = target_column(frame, self.target.name)
            mine &= target.is_not_null()
            if mine.any():
                found = frame.filter(mine)
                inputs = self.encoding(found.select(self.encoding.names))
                yield found, Encoded(inputs, self.encoding), self.target.values(target.filter(mine))


@dataclass(frozen=True)
class TableSamples(Samples):
    """The rows of a role: features in float64, and indices of classes or values [n, 1]."""

    table: ExaminedTable
    role: str

    @property
    def sizes(self) -> Sequence[int]:
        return self.table.sizes[:, ROLES.index(self.role)].tolist()

    def read(self, piece: int) -> Iterator[Chunk]:
        for _, features, values in self.table.parts(piece, self.role):
            classes = self.table.target.classes
            found = values[:, None].copy() if classes is None else np.searchsorted(classes, values)
            yield torch.from_numpy(features.inputs), torch.from_numpy(found), None

    def digest(self) -> str:
        return self.table.digest


def examine(
    stream: TableStream,
    target: str,
    *,
    task: str = "auto",
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    keep: Sequence[str] = (),
    division: Division | None = None,
    decimal: str = "",
) -> ExaminedTable:
    """One pass over the table; what is not as it should be is an error that names file and row.

    The processes of torch.distributed, with the same stream, read a range of its pieces each. All get the same,
    to the last bit what one would get.
    """
    division = division or Division()
    settings = (target, task, tuple(drop), tuple(categorical), tuple(keep), division, decimal)
    together.check_same(table=stream.digest(), settings=repr(settings))
    check_columns((*drop, *categorical, *keep), list(stream.schema))
    check_target_name(target, [name for name in stream.schema if name not in drop])
    nothing = pl.DataFrame(schema=stream.schema)
    schema = with_categories(nothing, categorical).schema
    features = {name: kind for name, kind in schema.items() if name not in (*drop, target)}
    may_be_ids = [name for name in features if name not in (*keep, *categorical)]
    summary, counts = _read(stream, _Reader(nothing, features, target, may_be_ids), division)
    sizes, n_rows = counts[:, : len(ROLES)], counts.sum(1)
    _check_rows(stream, sizes, n_rows, target)
    found = summary.target.target(target, task, decimal)
    numberings = dict(zip(may_be_ids, summary.numberings, strict=True))
    encoding = summary.table.encoding(features, lambda cell: _place(stream, n_rows, cell), decimal)
    encoding = with_inputs(without_ids(encoding, numberings))
    content = hashlib.sha256(f"{found.digest()} {sizes.tolist()} {division}".encode())
    for column in summary.table.columns:
        content.update(column.digest())
    return ExaminedTable(
        stream,
        division,
        found,
        encoding.used(),
        encoding.left_out,
        describe_columns(summary.table, encoding),
        summary.table.notes(encoding),
        like_ids(encoding, numberings),
        summary.table.standardization(encoding),
        sizes,
        int(counts[:, len(ROLES)].sum()),
        content.hexdigest(),
    )


@dataclass(frozen=True)
class _Summary(Sums):
    table: TableSummary
    target: TargetSummary
    numberings: tuple[Numbering | None, ...]


class _Reader:
    """Makes summaries of pieces of a table; `nothing` is one without rows."""

    def __init__(self, nothing: "pl.DataFrame", features: Mapping[str, Any], target: str, ids: Sequence[str]) -> None:
        self._columns = {name: ColumnReader(kind) for name, kind in features.items()}
        self._target, self._about = target, TargetReader(target, nothing.schema[target])
        self._nothing, self._may_be_ids = nothing, dict.fromkeys(ids, True)

    def read(self, piece: Piece, division: Division) -> tuple[_Summary, np.ndarray]:
        """Of a piece, and its numbers of rows: of each role, and without a target."""
        tree, generator = Tree[_Summary](), division.generator(piece)
        counts = np.zeros(len(ROLES) + 1, dtype=np.int64)
        for number, frame in enumerate(chain(read_piece(piece), [self._nothing])):
            if number and not frame.height:
                break  # it only stands in for a piece without rows
            roles = division.roles(generator, frame.height)
            target = target_column(frame, self._target)
            known = target.is_not_null()
            places = Places(piece.number, counts.sum() + 1 + known.arg_true().to_numpy())
            roles[~known.to_numpy()] = len(ROLES)
            counts += np.bincount(roles, minlength=len(counts))
            learned, rows = roles[known.to_numpy()] < ROLES.index("test"), frame.filter(known)
            columns = tuple(reader.summary(rows[name], learned, places) for name, reader in self._columns.items())
            about = self._about.summary(target.filter(known), learned)
            tree.add_part(number, _Summary(TableSummary(columns), about, self._numberings(frame)))
        return tree.root(), counts

    def _numberings(self, frame: "pl.DataFrame") -> tuple[Numbering | None, ...]:
        """Of all rows, also those without a target; a column that has turned out to hold no ids is not tried again."""
        found = {name: Numbering.of(frame[name]) if may_be else None for name, may_be in self._may_be_ids.items()}
        self._may_be_ids = {name: numbering is not None for name, numbering in found.items()}
        return tuple(found.values())


def _read(stream: TableStream, reader: _Reader, division: Division) -> tuple[_Summary, np.ndarray]:
    """Of the whole table, and of each piece its numbers of rows."""
    n, tree = len(stream.pieces), Tree[_Summary]()
    counts = np.zeros((n, len(ROLES) + 1), dtype=np.int64)
    begin, end = (rank * n // together.count() for rank in (together.rank(), together.rank() + 1))
    with together.interrupts_noted():
        # After each piece all are told of an error or of Ctrl-C, so that nobody reads on for nothing.
        for place in range(begin, begin + math.ceil(n / together.count())):
            with together.joint("reading the table"):
                if place < end:
                    summary, counts[place] = reader.read(stream.pieces[place], division)
                    tree.add_part(place, summary)
        whole = shared(tree)
        counts = together.total(torch.from_numpy(counts), "the number of rows").numpy()
        together.settle("reading the table")
    return whole.root(), counts


def _place(stream: TableStream, n_rows: np.ndarray, cell: Cell) -> str:
    piece, row = stream.pieces[cell.piece], cell.row
    for span in piece.spans[:-1]:  # of a piece of small files, the one that has the row
        height = sum(frame.height for frame in read_piece(Piece(0, (span,))))
        if row <= height:
            return f"row {row} of {span.file.path}"
        row -= height
    file = piece.spans[-1].file
    before = sum(int(n_rows[other.number]) for other in stream.pieces[: cell.piece] if other.file is file)
    return f"row {before + row} of {file.path}"


def _check_rows(stream: TableStream, sizes: np.ndarray, n_rows: np.ndarray, target: str) -> None:
    """Every file must hold rows, and there must be some of each requested kind."""
    with_rows = {span.file.path for piece in stream.pieces if n_rows[piece.number] for span in piece.spans}
    for file in stream.files:
        if file.path not in with_rows:
            raise TableError(f"{file.path} must hold at least one row below its heading, got none; check the file")
    if not sizes.sum():
        raise no_values(target)
    if not sizes[:, ROLES.index("training")].sum():
        raise TableError(
            f"{stream.source} must leave rows to learn from, got none of {int(sizes.sum())}; hold out a smaller share"
        )
