"""A table larger than memory, made ready to learn from: one pass that finds out all that a training needs to know."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from fracdnn.exceptions import TableError
from fracdnn.tables.encoder import Encoded, Encoder, TableSummary, shared, with_inputs
from fracdnn.tables.frames import with_categories
from fracdnn.tables.ids import Numbering, without_ids
from fracdnn.tables.late import pl
from fracdnn.tables.reading import read_parts
from fracdnn.tables.streaming import Piece, TableStream, read_piece
from fracdnn.tables.summaries import Sums, Tree
from fracdnn.tables.summary import ColumnSummary
from fracdnn.tables.targets import Target, TargetSummary, no_values, target_column
from fracdnn.tables.words import check_columns, check_target_name
from fracdnn.training import Samples, Standardization, together
from fracdnn.training.samples import Chunk

ROLES = ("training", "validation", "test")
# Of the rows held out, a run keeps this many for its report.
MOST_HELD_OUT = 100_000


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


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What is to be learned from a table, and what becomes of each of its columns."""

    target: Target
    summary: TableSummary
    every: Encoder
    numberings: dict[str, Numbering | None]
    n_without_target: int

    @cached_property
    def encoding(self) -> Encoder:
        """Of the columns in use."""
        return self.every.used()

    @property
    def ids(self) -> list[str]:
        """Columns in use with a different whole number in each row, as far as that is known: they rise or fall from row
        to row, or there are no more of them than `Numbering` keeps.
        """
        found = {name: self.numberings.get(name) for name in self.encoding.names}
        return [name for name, each in found.items() if each and each.differs_in_each_row]


@dataclass(frozen=True, kw_only=True)
class ExaminedTable(Findings):
    """A stream and what one pass over it has found; `sizes` [pieces, roles] are numbers of rows."""

    stream: TableStream
    division: Division
    standardization: Standardization
    sizes: np.ndarray
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
                inputs = self.encoding.transform(found.select(self.encoding.names))
                yield found, Encoded(inputs, self.encoding), self.target.values(target.filter(mine))

    def shared(self, role: str) -> Iterator[tuple[Encoded, np.ndarray]]:
        """Features and labels or values of the rows to test, or to learn from or stop early by: this rank's share."""
        for place in range(together.rank(), len(self.stream.pieces), together.count()):
            for each in ("training", "validation") if role == "training" else (role,):
                yield from (part[1:] for part in self.parts(place, each))

    @property
    @together.joint("reading the rows held out")
    def held_out(self) -> "pl.DataFrame":
        """The first rows that were held out, at most `MOST_HELD_OUT`, as they are in the table; on the first rank."""
        names, frames, n = list(self.stream.schema), [], 0  # parts may have columns in another order
        most = MOST_HELD_OUT if together.is_first() else 0
        for place in range(len(self.stream.pieces)):
            for frame, _, _ in self.parts(place, "test", whole=True) if n < most else ():
                frames.append(frame.select(names)[: most - n])
                n += frames[-1].height
        return pl.concat(frames) if frames else pl.DataFrame(schema=self.stream.schema)


def holds_out(early_stopping: bool | str) -> bool:
    """Only on request: "auto" trains on all rows of a streamed table."""
    return early_stopping != "auto" and bool(early_stopping)


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
    summary = _Reader(stream, target, nothing.columns, categorical, division).whole()
    sizes = summary.counts[:, : len(ROLES)]
    if not sizes.sum():
        raise no_values(target)
    if not sizes[:, ROLES.index("training")].sum():
        raise TableError(
            f"{stream.source} must leave rows to learn from, got none of {int(sizes.sum())}; hold out a smaller share"
        )
    found = summary.target.target(target, task, decimal)
    numberings = dict(zip(nothing.columns, summary.numberings, strict=True))
    numberings |= dict.fromkeys((*keep, *categorical))
    encoding = summary.table.encoding(nothing.schema, decimal)
    encoding = with_inputs(Encoder(without_ids(encoding.columns, numberings)))
    refused = [c for c, each in zip(encoding.columns, summary.table.columns, strict=True) if each.is_refused(c)]
    if refused:
        _refuse_cells(stream, Encoder(tuple(refused)), target)
    content = f"{found.digest()} {sizes.tolist()} {division}".encode()
    content += b"".join(column.digest() for column in summary.table.columns)
    return ExaminedTable(
        target=found,
        summary=summary.table,
        every=encoding,
        numberings=numberings,
        n_without_target=int(summary.counts[:, len(ROLES)].sum()),
        stream=stream,
        division=division,
        standardization=summary.table.standardization(encoding),
        sizes=sizes,
        digest=hashlib.sha256(content).hexdigest(),
    )


@dataclass(frozen=True)
class _Summary(Sums):
    """What is kept of rows, and of each piece their numbers [pieces, roles and rows without a target]."""

    counts: np.ndarray
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

    def whole(self) -> _Summary:
        """Of all pieces, of which each process reads a range."""
        n, tree = len(self.stream.pieces), Tree[_Summary]()
        begin, end = (rank * n // together.count() for rank in (together.rank(), together.rank() + 1))
        with together.interrupts_noted():
            # After each piece all are told of an error or of Ctrl-C, so that nobody reads on for nothing.
            for place in range(begin, begin + math.ceil(n / together.count())):
                with together.joint("reading the table"):
                    if place < end:
                        tree.add_part(place, self._of_piece(self.stream.pieces[place]))
            found = shared(tree).root()
            together.settle("reading the table")
        return found

    def _of_piece(self, piece: Piece) -> _Summary:
        tree, generator = Tree[_Summary](), self.division.generator(piece)
        for number, frame in enumerate(read_piece(piece)):
            roles = self.division.roles(generator, frame.height)
            target = target_column(frame, self.target)
            known = target.is_not_null()
            roles[~known.to_numpy()] = len(ROLES)
            counts = np.zeros((len(self.stream.pieces), len(ROLES) + 1), dtype=np.int64)
            counts[piece.number] = np.bincount(roles, minlength=len(ROLES) + 1)
            learned = roles[known.to_numpy()] < ROLES.index("test")
            rows, weight = with_categories(frame.filter(known), self.categorical), learned.astype(float)
            columns, numberings, before = [], [], self.before
            for place, name in enumerate(self.features):
                earlier = before.table.columns[place] if before else None
                columns.append(ColumnSummary.of(rows[name], weight, before=earlier))
                may_be = before is None or before.numberings[place] is not None
                numberings.append(Numbering.of(frame[name]) if may_be else None)
            about = TargetSummary.of(target.filter(known), learned, before=before.target if before else None)
            self.before = _Summary(counts, TableSummary(tuple(columns)), about, tuple(numberings))
            tree.add_part(number, self.before)
        return tree.root()


def _refuse_cells(stream: TableStream, encoding: Encoder, target: str) -> None:
    """Raise for the first cell that the encoding does not take, which is looked for in a second pass."""
    for file in stream.files:
        before = 1
        for frame in read_parts(file.path, encoding=file.encoding):
            known = target_column(frame, target).is_not_null()
            rows = before + known.arg_true().to_numpy()
            cells, path = frame.filter(known).select(encoding.names), file.path
            encoding.transform(cells, lambda row, rows=rows, path=path: f"row {rows[row]} of {path}")  # type: ignore[misc]
            before += frame.height
