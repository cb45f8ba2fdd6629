"""Tables larger than memory: read piece by piece, in any order, as often as a training needs them.

A piece is a range of rows of a Parquet file (whose row groups and pages outside it Polars skips), a range of bytes of a
text file, or a whole file where no place in it can be found without reading what is before (.gz, .xlsx, text that is
not in UTF-8). Small files that follow one another in a folder are one piece, read at once: each read has a cost.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from fracdnn.exceptions import TableError
from fracdnn.extras import require
from fracdnn.tables import reading
from fracdnn.tables.late import pl
from fracdnn.tables.reading import PART_ROWS, UTF_8, checked_encoding, ending_of, read_parts, readable
from fracdnn.validation import check_count

# A piece of a wide Parquet table has fewer rows than `PART_ROWS`.
MOST_CELLS = 4_000_000
# Bytes that reading, preparing and training take for each byte of a table of float64; about 7 were measured for Parquet
# (benchmarks/stream.py). For text a guess: as large as its numbers in float64, gzipped a quarter of that.
_COPIES = 8
_COMPRESSION = 4


@dataclass(frozen=True)
class File:
    """One part of the table, as it was found: its columns, its state, and how to read it."""

    path: str
    ending: str
    schema: "pl.Schema"
    state: tuple[int, ...]
    heading: bytes = b""
    separator: str = ","
    encoding: str = UTF_8

    @property
    def form(self) -> tuple[object, ...]:
        """The same for files that lie in one folder and are read alike."""
        return Path(self.path).parent, self.ending, list(self.schema.items()), self.heading, self.separator


@dataclass(frozen=True)
class Span:
    """Rows or bytes from `begin` to `end` of a file; to None is all of it."""

    file: File
    begin: int = 0
    end: int | None = None


@dataclass(frozen=True)
class Piece:
    """What is read at once: a span, or those of small files of one folder, written alike; its `number` in the table."""

    number: int
    spans: tuple[Span, ...]

    @property
    def file(self) -> File:
        return self.spans[0].file


@dataclass(frozen=True)
class TableStream:
    """The pieces of a table. Only headings and footers have been read, of text files also where rows end."""

    source: str
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, source: str, *, piece_rows: int = PART_ROWS, encoding: str = UTF_8) -> "TableStream":
        """A file or a folder of parts, which must have the same columns; a pipe has no pieces to come back to."""
        require("polars")
        check_count(piece_rows, "piece_rows", minimum=1)
        encoding = checked_encoding(encoding)
        if source == "-":
            raise TableError("a streamed table must be a file or a folder, got standard input; save it to a file first")
        pieces: list[tuple[Span, ...]] = []
        held = math.inf
        paths = reading.files_of(source)
        for path in paths:
            found = list(_spans(path, piece_rows, encoding)) if len(paths) == 1 or _state(path)[0] else []
            if not found:
                continue
            file, first = found[0].file, pieces[0][0].file if pieces else found[0].file
            reading.check_alike(path, file.schema, first.path, first.schema)
            most = _rows_of_piece(file.schema, piece_rows) if file.ending == ".parquet" else reading.PART_BYTES
            size = (found[-1].end or math.inf) - found[0].begin
            if pieces and held + size <= most and pieces[-1][0].file.form == file.form:
                pieces[-1] += (found[0],)
                held += size
            else:
                pieces += [(span,) for span in found]
                held = size if len(found) == 1 else math.inf  # what comes after a larger file is not joined to it
        if not pieces:
            raise reading.NoRowsError(f"{source} must hold at least one row below its heading, got none; check it")
        return cls(source, tuple(Piece(number, spans) for number, spans in enumerate(pieces)))

    @property
    def files(self) -> list[File]:
        return list({span.file.path: span.file for piece in self.pieces for span in piece.spans}.values())

    def digest(self) -> str:
        """What tells a table from another one without reading it: of each span, its file with its size, and where."""
        spans = (span for piece in self.pieces for span in piece.spans)
        return repr([(Path(span.file.path).name, span.file.state[0], span.begin, span.end) for span in spans])

    @property
    def schema(self) -> "pl.Schema":
        """The names of the columns and their types; text files have text."""
        return self.pieces[0].file.schema


def memory_for(source: str) -> int:
    """Bytes that a training takes about which reads the whole table; 0 for a sheet, which cannot be streamed."""
    require("polars")
    content = 0
    for file in reading.files_of(source):
        ending = ending_of(file)
        if ending == ".parquet":
            with readable(file, ending):
                scan = pl.scan_parquet(file, glob=False)
                content += 8 * len(scan.collect_schema()) * scan.select(pl.len()).collect().item()
        elif ending != ".xlsx":
            content += Path(file).stat().st_size * (_COMPRESSION if ending.endswith(".gz") else 1)
    return _COPIES * content


def read_piece(
    piece: Piece, *, columns: Sequence[str] | None = None, numbers: Sequence[str] = ()
) -> "Iterator[pl.DataFrame]":
    """The rows of a piece, as one frame or more; of Parquet, only some columns where they are named.

    Columns named in `numbers` come as numbers where all their cells in a frame are.
    """
    files = [span.file for span in piece.spans]
    _check_unchanged(files)
    try:
        yield from _frames(piece, columns, numbers)
    except (TableError, OSError):
        _check_unchanged(files)  # else that is the reason
        for file in files:  # the error of the file that has it, with the line
            deque(read_parts(file.path, numbers, file.encoding), maxlen=0)
        raise
    _check_unchanged(files)


def _check_unchanged(files: Sequence[File]) -> None:
    for file in files:
        if _state(file.path) != file.state:
            raise TableError(
                f"{file.path} must stay as it is while it is read, got a file that has changed since; "
                f"start again when nobody writes to it"
            )


def _frames(piece: Piece, columns: Sequence[str] | None, numbers: Sequence[str]) -> "Iterator[pl.DataFrame]":
    file, first = piece.file, piece.spans[0]
    if first.end is None:
        yield from read_parts(file.path, numbers, file.encoding)
    elif file.ending == ".parquet":
        with readable(file.path, file.ending):
            rows = pl.scan_parquet([span.file.path for span in piece.spans], glob=False)
            rows = rows.slice(first.begin, first.end - first.begin) if len(piece.spans) == 1 else rows
            names = rows.collect_schema().names()
            found = rows.select(names if columns is None else [name for name in columns if name in names]).collect()
        found = reading.with_folders(found, file.path)
        yield found if columns is None else found.select(columns)
    else:
        block = b"\n".join(map(_block, piece.spans))
        found = reading.text_frame(file.heading, block, file.separator, file.path, numbers)
        yield reading.with_folders(found, file.path)


def _block(span: Span) -> bytes:
    with Path(span.file.path).open("rb") as opened:
        opened.seek(span.begin)
        return opened.read((span.end or 0) - span.begin)


def _rows_of_piece(schema: "pl.Schema", most: int) -> int:
    return max(1, min(most, MOST_CELLS // max(1, len(schema))))


def _spans(path: str, piece_rows: int, encoding: str) -> Iterator[Span]:
    """The spans of a file, none where it has no rows."""
    ending, state = ending_of(path), _state(path)
    reading.check_is_encoded(path, ending, encoding)
    if ending == ".parquet":
        with readable(path, ending):
            scan = pl.scan_parquet(path, glob=False)
            schema, n_rows = scan.collect_schema(), scan.select(pl.len()).collect().item()
        file = File(path, ending, reading.with_folders(schema.to_frame(), path).schema, state)
        borders = [*range(0, n_rows, _rows_of_piece(file.schema, piece_rows)), n_rows]
        yield from (Span(file, begin, end) for begin, end in pairwise(borders))
    elif ending in (".csv", ".tsv") and encoding == UTF_8:
        file = None
        for heading, separator, begin, block in reading.text_blocks(path, ending):
            if file is None:
                schema = reading.with_folders(reading.text_frame(heading, b"", separator, path), path).schema
                file = File(path, ending, schema, state, heading, separator)
            if block:
                yield Span(file, begin, begin + len(block))
    else:
        with suppress(reading.NoRowsError):
            schema = next(read_parts(path, encoding=encoding)).schema
            yield Span(File(path, ending, schema, state, encoding=encoding))


def _state(path: str) -> tuple[int, ...]:
    found = Path(path).stat()
    return found.st_size, found.st_mtime_ns, found.st_ino
