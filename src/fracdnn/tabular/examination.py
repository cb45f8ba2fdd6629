"""A table larger than memory, made ready to learn from: one pass that finds out all that a training needs to know."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from fracdnn.columns.encoding import Encoded, Encoding, TableSummary, describe_columns, shared, with_inputs
from fracdnn.columns.frames import with_categories
from fracdnn.columns.late import pl
from fracdnn.columns.summaries import Sums, Tree
from fracdnn.columns.summary import ColumnSummary
from fracdnn.columns.words import check_columns, check_target_name
from fracdnn.exceptions import TableError
from fracdnn.tabular.ids import Numbering, like_ids, without_ids
from fracdnn.tabular.model import no_values, target_column
from fracdnn.tabular.reading import read_parts
from fracdnn.tabular.streaming import Piece, TableStream, read_piece
from fracdnn.tabular.targets import Target, TargetSummary
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
    nothing = with_categories(pl.DataFrame(schema=stream.schema), categorical).drop(target, *drop)
    summary, counts = _read(stream, _Reader(stream, target, nothing.columns, categorical, division))
    sizes = counts[:, : len(ROLES)]
    _check_rows(stream, sizes, counts.sum(1), target)
    found = summary.target.target(target, task, decimal)
    numberings = dict(zip(nothing.columns, summary.numberings, strict=True))
    numberings |= dict.fromkeys((*keep, *categorical))
    encoding = with_inputs(without_ids(summary.table.encoding(nothing.schema, decimal), numberings))
    refused = [c for c, each in zip(encoding.columns, summary.table.columns, strict=True) if each.is_refused(c)]
    if refused:
        _refuse_cells(stream, Encoding(tuple(refused)), target)
    content = f"{found.digest()} {sizes.tolist()} {division}".encode()
    content += b"".join(column.digest() for column in summary.table.columns)
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
        hashlib.sha256(content).hexdigest(),
    )


@dataclass(frozen=True)
class _Summary(Sums):
    table: TableSummary
    target: TargetSummary
    numberings: tuple[Numbering | None, ...]


@dataclass
class _Reader:
    """Makes summaries of pieces of a table; what a column has turned out not to be is not tried again."""

    stream: TableStream
    target: str
    features: Sequence[str]
    categorical: Sequence[str]
    division: Division
    before: _Summary | None = None

    def read(self, piece: Piece) -> tuple[_Summary, np.ndarray]:
        """Of a piece, and its numbers of rows: of each role, and without a target."""
        tree, generator = Tree[_Summary](), self.division.generator(piece)
        counts = np.zeros(len(ROLES) + 1, dtype=np.int64)
        for number, frame in enumerate(chain(read_piece(piece), [pl.DataFrame(schema=self.stream.schema)])):
            if number and not frame.height:
                break  # it only stands in for a piece without rows
            roles = self.division.roles(generator, frame.height)
            target = target_column(frame, self.target)
            known = target.is_not_null()
            roles[~known.to_numpy()] = len(ROLES)
            counts += np.bincount(roles, minlength=len(counts))
            learned = roles[known.to_numpy()] < ROLES.index("test")
            self.before = self._summary(frame, known, target.filter(known), learned)
            tree.add_part(number, self.before)
        return tree.root(), counts

    def _summary(self, frame: "pl.DataFrame", known: "pl.Series", target: "pl.Series", learned: np.ndarray) -> _Summary:
        """Of rows with a `known` target; numberings are of all rows."""
        rows, weight = with_categories(frame.filter(known), self.categorical), learned.astype(float)
        columns, numberings = [], []
        for place, name in enumerate(self.features):
            earlier = self.before and self.before.table.columns[place]
            columns.append(ColumnSummary.of(rows[name], weight, before=earlier or None))
            may_be = self.before is None or self.before.numberings[place] is not None
            numberings.append(Numbering.of(frame[name]) if may_be else None)
        about = TargetSummary.of(target, learned, before=self.before.target if self.before else None)
        return _Summary(TableSummary(tuple(columns)), about, tuple(numberings))


def _read(stream: TableStream, reader: _Reader) -> tuple[_Summary, np.ndarray]:
    """Of the whole table, and of each piece its numbers of rows."""
    n, tree = len(stream.pieces), Tree[_Summary]()
    counts = np.zeros((n, len(ROLES) + 1), dtype=np.int64)
    begin, end = (rank * n // together.count() for rank in (together.rank(), together.rank() + 1))
    with together.interrupts_noted():
        # After each piece all are told of an error or of Ctrl-C, so that nobody reads on for nothing.
        for place in range(begin, begin + math.ceil(n / together.count())):
            with together.joint("reading the table"):
                if place < end:
                    summary, counts[place] = reader.read(stream.pieces[place])
                    tree.add_part(place, summary)
        whole = shared(tree)
        counts = together.total(torch.from_numpy(counts), "the number of rows").numpy()
        together.settle("reading the table")
    return whole.root(), counts


def _refuse_cells(stream: TableStream, encoding: Encoding, target: str) -> None:
    """Raise for the first cell that the encoding does not take, which is looked for in a second pass."""
    for file in stream.files:
        before = 1
        for frame in read_parts(file.path, encoding=file.encoding, sheet=file.sheet):
            known = target_column(frame, target).is_not_null()
            rows = before + known.arg_true().to_numpy()
            cells, path = frame.filter(known).select(encoding.names), file.path
            encoding(cells, lambda row, rows=rows, path=path: f"row {rows[row]} of {path}")  # type: ignore[misc]
            before += frame.height


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
