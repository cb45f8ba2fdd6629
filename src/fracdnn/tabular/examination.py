"""A table larger than memory, made ready to learn from: one pass that finds out all that a training needs to know."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fracdnn.exceptions import TableError
from fracdnn.tabular.model import check_target_name, target_column, target_values, task_of
from fracdnn.tabular.preparation import Preparation, check_columns, has_no_text, parsed, quoted
from fracdnn.tabular.statistics import ColumnStatistics, Places, TableStatistics
from fracdnn.tabular.streaming import Piece, TableStream, read_piece
from fracdnn.tabular.summaries import Moments
from fracdnn.training import Samples, Standardization
from fracdnn.training.samples import Chunk

if TYPE_CHECKING:
    import polars as pl

ROLES = ("training", "validation", "test")
MOST_LABELS = 10_000


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
class Target:
    """What is to be predicted: classes with the number of rows to learn from that have them, or a scale of values."""

    name: str
    task: str
    classes: np.ndarray | None
    counts: np.ndarray
    scale: Standardization | None
    least: float
    most: float

    def digest(self) -> str:
        scale = None if self.scale is None else [self.scale.mean.tolist(), self.scale.deviation.tolist()]
        classes = None if self.classes is None else self.classes.tolist()
        return repr((self.name, self.task, classes, self.counts.tolist(), scale))

    def values(self, column: "pl.Series") -> np.ndarray:
        """Labels or values as the whole table has them, whatever this part of it looks like."""
        import polars as pl

        if self.classes is None:
            return parsed(column).to_numpy()
        if self.classes.dtype.kind == "U":
            return column.cast(pl.String).to_numpy().astype(str)
        return parsed(column).cast(pl.Int64).to_numpy()


@dataclass(frozen=True)
class ExaminedTable:
    """A stream and what one pass over it has found; `sizes` [pieces, roles] are numbers of rows."""

    stream: TableStream
    division: Division
    target: Target
    preparation: Preparation
    notes: list[str]
    standardization: Standardization
    sizes: np.ndarray
    n_without_target: int
    digest: str

    def n_rows(self, role: str) -> int:
        return int(self.sizes[:, ROLES.index(role)].sum())

    def samples(self, role: str) -> "TableSamples":
        return TableSamples(self, role)

    def parts(self, place: int, role: str) -> "Iterator[tuple[pl.DataFrame, np.ndarray, np.ndarray]]":
        """The rows of a piece that have this role: as frames, features, and labels or values."""
        piece, columns = self.stream.pieces[place], [*self.preparation.names, self.target.name]
        generator = self.division.generator(piece)
        for frame in read_piece(piece, columns=columns, numbers=self.preparation.number_names):
            roles = self.division.roles(generator, frame.height)
            found = self._with_role(frame, roles, ROLES.index(role))
            if found.height:
                target = target_column(found, self.target.name)
                yield found, self._features(found), self.target.values(target)

    def _with_role(self, frame: "pl.DataFrame", roles: np.ndarray, role: int) -> "pl.DataFrame":
        import polars as pl

        return frame.filter(target_column(frame, self.target.name).is_not_null() & pl.Series(roles == role))

    def _features(self, frame: "pl.DataFrame") -> np.ndarray:
        # The whole table has shown that its commas are clear; a part of it may not.
        numbers = [parsed(frame[name]) for name in self.preparation.number_names]
        return self.preparation.transform(frame.with_columns(numbers), new_categories="ignore")


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
            yield torch.from_numpy(features), torch.from_numpy(found), None

    def digest(self) -> str:
        return self.table.digest


def examine(
    stream: TableStream,
    target: str,
    *,
    task: str = "auto",
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    division: Division | None = None,
) -> ExaminedTable:
    """One pass over the table; what is not as it should be is an error that names file and row."""
    import polars as pl

    division = division or Division()
    check_columns((*drop, *categorical), list(stream.schema))
    check_target_name(target, [name for name in stream.schema if name not in drop])
    features = {name: kind for name, kind in stream.schema.items() if name not in (*drop, target)}
    statistics, about = TableStatistics(features, categorical=categorical), _Targets(target, stream.schema[target])
    sizes = np.zeros((len(stream.pieces), len(ROLES)), dtype=np.int64)
    n_rows = Counter[str]()
    for place, piece in enumerate(stream.pieces):
        file, generator = piece.file.path, division.generator(piece)
        for frame in read_piece(piece):
            roles = division.roles(generator, frame.height)
            known = target_column(frame, target).is_not_null()
            roles, rows = roles[known.to_numpy()], n_rows[file] + 1 + known.arg_true().to_numpy()
            n_rows[file] += frame.height
            frame = frame.filter(known)
            learned, places = pl.Series(roles < ROLES.index("test")), Places(file, rows)
            statistics.add(frame, learned, places)
            about.add(target_column(frame, target), learned, places)
            sizes[place] += np.bincount(roles, minlength=len(ROLES))
    _check_rows(stream, sizes, n_rows, target)
    found = about.found(task)
    preparation, notes = statistics.preparation()
    content = f"{statistics.digest()} {found.digest()} {sizes.tolist()} {division}"
    return ExaminedTable(
        stream,
        division,
        found,
        preparation,
        notes,
        statistics.standardization(preparation),
        sizes,
        n_rows.total() - int(sizes.sum()),
        hashlib.sha256(content.encode()).hexdigest(),
    )


def _check_rows(stream: TableStream, sizes: np.ndarray, n_rows: Counter[str], target: str) -> None:
    """Every file must hold rows, and there must be some of each kind that was asked for."""
    for file in stream.files:
        if not n_rows[file.path]:
            raise TableError(f"{file.path} must hold at least one row below its heading, got none; check the file")
    if not sizes.sum():
        raise TableError(f"the target column {quoted(target)} must hold values, got none; check the table")
    if not sizes[:, ROLES.index("training")].sum():
        raise TableError(
            f"{stream.source} must leave rows to learn from, got none of {int(sizes.sum())}; hold out a smaller share"
        )


class _Targets:
    """Summaries of the target column: its labels while they are few, its numbers while all cells are numbers."""

    def __init__(self, name: str, dtype: "pl.DataType") -> None:
        self._name, self._dtype = name, dtype
        self._all, self._learned = Counter[Any](), Counter[Any]()
        self._column = ColumnStatistics(name, dtype, categorical=False)
        self._moments = Moments.of(np.empty((0, 1)))
        self._least, self._most = math.inf, -math.inf

    def add(self, values: "pl.Series", learned: "pl.Series", places: Places) -> None:
        import polars as pl

        if has_no_text(self._dtype):
            target_values(values, "classification")  # which says so
        self._column.add(values, pl.Series([True]).new_from_index(0, len(values)), places)
        if self._column.is_number and len(values):
            numbers = parsed(values).to_numpy()
            self._least, self._most = min(self._least, numbers.min()), max(self._most, numbers.max())
            kept = numbers[learned.to_numpy() & np.isfinite(numbers)]
            self._moments = self._moments.merged(Moments.of(kept[:, None]))
        if len(self._all) <= MOST_LABELS:
            for counter, part in ((self._all, values), (self._learned, values.filter(learned))):
                counts = part.value_counts(name="n")
                counter.update(dict(zip(counts[self._name], counts["n"], strict=True)))

    def found(self, task: str) -> Target:
        few = len(self._all) <= MOST_LABELS
        distinct = self._series(self._all)
        if task == "auto":
            task = task_of(distinct) if few else "regression" if self._column.is_number else "classification"
        if task == "regression":
            return self._values(distinct)
        if not few:
            raise TableError(
                f"the target column {quoted(self._name)} must hold at most {MOST_LABELS:,} classes when streamed, "
                f"got more; group them, or pass --memory-limit to read the table whole"
            )
        return self._classes(distinct)

    def _series(self, counter: Counter[Any]) -> "pl.Series":
        import polars as pl

        return pl.Series(self._name, list(counter), dtype=self._dtype)

    def _values(self, distinct: "pl.Series") -> Target:
        if not (self._column.is_number and math.isfinite(self._least) and math.isfinite(self._most)):
            target_values(distinct.extend_constant(math.inf, 1) if self._column.is_number else distinct, "regression")
        mean, deviation = (torch.from_numpy(part) for part in (self._moments.mean, self._moments.deviation))
        scale = Standardization.of_moments(mean, deviation)
        return Target(self._name, "regression", None, self._moments.count, scale, self._least, self._most)

    def _classes(self, distinct: "pl.Series") -> Target:
        labels = target_values(distinct, "classification")
        classes, which = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise TableError(
                f"the target column {quoted(self._name)} must hold two classes at least, got only {str(classes[0])!r}"
            )
        counts = np.bincount(which, weights=[self._learned[label] for label in self._all])
        if not counts.all():
            raise TableError(
                f"the rows to learn from must hold all {len(classes)} classes, got {np.count_nonzero(counts)}; "
                f"pass a smaller --test-fraction"
            )
        return Target(self._name, "classification", classes, counts, None, math.nan, math.nan)
