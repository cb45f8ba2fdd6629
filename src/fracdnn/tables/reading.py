"""Tables from files, folders of files and pipes, whole or in parts of bounded size.

Files end in .csv, .tsv, .csv.gz, .tsv.gz, .parquet or .xlsx; those of a folder, and of its folders NAME=VALUE (a column
more, as Hive has it), or those that a pattern with * finds, are parts of one table, in the order of their names. Parts
without rows are passed over. Text is in UTF-8 unless another encoding is named. Cells of text formats come as text; an
`Encoder.transform` makes numbers of them, and can then say which cell is not one.
"""

import csv
import gzip
import re
import sys
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE, lookup
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from glob import glob
from io import BufferedReader, StringIO, TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import unquote

from fracdnn.exceptions import InvalidArgumentError, TableError
from fracdnn.extras import require
from fracdnn.tables.late import pl
from fracdnn.tables.words import check_unique, listed, nearest, quoted

UTF_8 = "utf-8"
TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
ENDINGS = (*TEXT, ".parquet", ".xlsx")
SEPARATORS = (",", ";", "\t", "|")
# Folders as Hive and Spark name them, the value that they write for a missing one, and patterns of files.
_FOLDER, _MISSING = re.compile(r"([^/=]+)=([^/]*)/"), "__HIVE_DEFAULT_PARTITION__"
_PATTERN = re.compile(r"[*?\[]")
# Up to the first line end outside quotes: names may hold line ends.
_HEADING = re.compile(rb'(?:[^"\n]++|"[^"]*+"?)*+')
PART_BYTES = 8_000_000
PART_ROWS = 65_536


class NoRowsError(TableError):
    """A table, or a part of one, with nothing but columns."""


def read_table(source: str, encoding: str = UTF_8, sheet: str | None = None) -> "pl.DataFrame":
    """The whole table; "-" is standard input, as CSV. Of an Excel file, the sheet of that name, or the first one."""
    require("polars")
    return pl.concat(list(read_parts(source, encoding=encoding, sheet=sheet)), how="vertical_relaxed")


def read_parts(
    source: str, numbers: Sequence[str] = (), encoding: str = UTF_8, sheet: str | None = None
) -> "Iterator[pl.DataFrame]":
    """The table in parts, at least one, each with all columns and at least one row.

    Columns named in `numbers` come as numbers where all their cells are; other columns of text formats as text.
    """
    require("polars")
    files, encoding = files_of(source), checked_encoding(encoding)
    first: tuple[str, pl.Schema] | None = None
    for file in files:
        ending = ending_of(file)
        check_is_encoded(file, ending, encoding, sheet)
        if len(files) > 1 and not Path(file).stat().st_size:
            continue
        parts = _text_parts(file, ending, numbers, encoding) if ending in TEXT else _binary_parts(file, ending, sheet)
        is_new = True
        for part in (with_folders(part, file) for part in parts if part.height):
            if is_new:
                first = first or (file, part.schema)
                check_alike(file, part.schema, *first)
            is_new = False
            yield part
    if first is None:
        sheets = sheets_of(files[0]) if ending_of(files[0]) == ".xlsx" else []
        remedy = f"--sheet names another of {listed(sheets)}" if len(sheets) > 1 else "check the file"
        raise NoRowsError(f"{_name(source)} must hold at least one row below its heading, got none; {remedy}")


def with_folders(part: "pl.DataFrame", file: str) -> "pl.DataFrame":
    """With a column of text for each folder NAME=VALUE on the way to the file, unless the file has it."""
    found = {name: value for name, value in _FOLDER.findall(file) if name not in part.columns}
    values = {name: None if value == _MISSING else unquote(value) for name, value in found.items()}
    return part.with_columns(pl.lit(value, pl.String).alias(name) for name, value in values.items())


def files_of(source: str) -> list[str]:
    """The parts of a table: the files of a folder by name, all of one kind, those of a pattern, or the one named."""
    if "://" in source:
        raise TableError(
            f"DATA must be a file or folder on this machine or a mounted one, got {source}; copy it first, as by "
            f"'aws s3 sync' or 'gcloud storage rsync', or mount the bucket"
        )
    if source == "-" or (not Path(source).is_dir() and (Path(source).exists() or not _PATTERN.search(source))):
        return [source]
    matches = [Path(source)] if Path(source).is_dir() else sorted(map(Path, glob(source, recursive=True)))  # noqa: PTH207 absolute ones
    files = [str(file) for match in matches for file in (_within(match) if match.is_dir() else [match])]
    if not files and not Path(source).is_dir():
        raise TableError(f"{source} must match parts of a table, got no file; check the pattern")
    if not files:
        raise TableError(f"{source} must hold parts of a table ({', '.join(ENDINGS)}), got an empty folder; check it")
    for file in files:
        if Path(file).is_dir():
            raise TableError(f"{source} must hold parts of a table only, got the folder {file}; move it elsewhere")
        if ending_of(file) != ending_of(files[0]):
            raise TableError(f"{file} must be of the same kind as {files[0]}, got another ending; move it elsewhere")
    return files


def _within(folder: Path) -> Iterator[Path]:
    """The parts in a folder, and in its folders NAME=VALUE, by name."""
    for file in sorted(folder.iterdir()):
        if not file.name.startswith((".", "_")):
            yield from _within(file) if file.is_dir() and "=" in file.name else [file]


def check_there(source: str) -> None:
    """A table that can be opened, as far as one can tell without reading it."""
    for file in files_of(source) if source != "-" else ():
        ending_of(file)
        Path(file).open("rb").close()


def check_is_encoded(file: str, ending: str, encoding: str, sheet: str | None = None) -> None:
    """Only text has an encoding that can be named, and only .xlsx a sheet."""
    if sheet is not None and ending != ".xlsx":
        raise TableError(f"{file} must be an .xlsx file for --sheet, got a {ending} file; leave --sheet out")
    if encoding != UTF_8 and ending not in TEXT:
        raise TableError(
            f"{file} must be a .csv or .tsv file for --encoding, got a {ending} file; leave --encoding out"
        )


def check_alike(file: str, schema: "pl.Schema", first_file: str, first: "pl.Schema") -> None:
    """A part must have the columns of the first one, and of Parquet the same types."""
    here, there = [[name for name in one if name not in other] for one, other in ((schema, first), (first, schema))]
    if here or there:
        what = f"{here[0]!r:.80} beside them" if here else f"no {there[0]!r:.80}"
        raise TableError(f"{file} must have the columns of {first_file}, got {what}; write the parts alike")
    other = next((name for name in first if schema[name] != first[name]), None)
    if other is not None and ending_of(file) == ".parquet":
        raise TableError(
            f"{file} must have cells of type {first[other]} in column {other!r:.80} as {first_file} has, "
            f"got {schema[other]}; write the parts alike"
        )


def ending_of(source: str) -> str:
    if source == "-":
        return ".csv"
    lower = source.lower()
    found = next((ending for ending in ENDINGS if lower.endswith(ending)), None)
    if found is None:
        raise TableError(f"{source} must end in one of {', '.join(ENDINGS)}; the ending says how to read it")
    return found


def _name(source: str) -> str:
    return "standard input" if source == "-" else source


def sheets_of(source: str) -> list[str]:
    require("fastexcel")
    import fastexcel

    with readable(source, ".xlsx"):
        return fastexcel.read_excel(source).sheet_names


def check_sheet(source: str, sheet: str | None) -> None:
    if sheet is not None and sheet not in (sheets := sheets_of(source)):
        raise TableError(f"{source} must have the sheet {nearest(sheet, sheets)}; it has {listed(sheets)}")


def _binary_parts(source: str, ending: str, sheet: str | None) -> "Iterator[pl.DataFrame]":
    options: dict[str, Any] = {"engine": "calamine"}
    if ending == ".xlsx" and sheet is not None:
        check_sheet(source, sheet)
        options["sheet_name"] = sheet
    elif ending == ".xlsx":
        require("fastexcel")
    with readable(source, ending):
        if ending == ".parquet":
            yield from pl.scan_parquet(source, glob=False).collect_batches(chunk_size=PART_ROWS)
        else:
            # A name that occurs twice is made another one by what reads the sheet.
            first = pl.read_excel(source, has_header=False, read_options={"n_rows": 1}, **options)
            check_unique([None if cell is None else str(cell) for row in first.rows() for cell in row], source)
            # The whole sheet decides on the type of a column, not its first hundred rows.
            yield pl.read_excel(source, infer_schema_length=None, **options)


@contextmanager
def readable(source: str, ending: str) -> Iterator[None]:
    """Around what reads a file that is not text: its content must be what the ending promises."""
    Path(source).open("rb").close()  # a missing file, a folder, no permission: said as Python does it
    try:
        yield
    except (OSError, TableError):
        raise
    except Exception as error:
        # Polars and calamine raise many kinds.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TableError(
            f"{source} must be a {ending} file, got one that cannot be read ({reason}); save it again"
        ) from None


def _text_parts(source: str, ending: str, numbers: Sequence[str], encoding: str) -> "Iterator[pl.DataFrame]":
    line = 0
    for heading, separator, _, block in text_blocks(source, ending, encoding):
        line = line or heading.count(b"\n") + 1
        yield text_frame(heading, block, separator, source, numbers, line)
        line += block.count(b"\n")


def text_blocks(source: str, ending: str, encoding: str = UTF_8) -> Iterator[tuple[bytes, str, int, bytes]]:
    """Rows of a text file in UTF-8, each time after the heading, the separator and the place where they begin."""
    file: Any = gzip.open if ending.endswith(".gz") else open
    content = sys.stdin.buffer if source == "-" else file(source, "rb")
    with content if encoding == UTF_8 else TextIOWrapper(content, encoding=encoding, newline="") as stream:
        blocks = _blocks(stream, source)
        first = next(blocks, b"")
        heading, separator, rest = _headed(first, source, ending)
        begin = len(first) - len(rest)
        for block in chain([rest], blocks):
            yield heading, separator, begin, block
            begin += len(block)


def _headed(first: bytes, source: str, ending: str) -> tuple[bytes, str, bytes]:
    """The heading, the separator, and what of the first block comes below."""
    whole = first.removeprefix(BOM_UTF8)
    end = cast(re.Match[bytes], _HEADING.match(whole)).end()
    heading, rest = whole[:end], whole[end + 1 :]
    if b"\0" in heading or first.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise _not_utf_8(first, source, "a byte of another encoding in line 1")
    if not heading.strip():
        raise TableError(f"{_name(source)} must begin with the names of the columns, got an empty line; check the file")
    outside_quotes = re.sub(rb'"[^"]*"', b"", heading)
    separator = max(SEPARATORS, key=lambda each: outside_quotes.count(each.encode()))
    separator = "\t" if ending.startswith(".tsv") else separator
    # Polars would make another name of one that occurs twice; a heading that it cannot read is an error later.
    with suppress(pl.exceptions.PolarsError):
        names = pl.read_csv(heading, has_header=False, separator=separator, infer_schema=False).row(0)
        if sum(not name for name in names) > 1:  # as pandas calls them
            names = tuple(name or f"Unnamed: {place}" for place, name in enumerate(names))
            heading = separator.join('"' + name.replace('"', '""') + '"' for name in names).encode()
        check_unique(names, _name(source))
    return heading, separator, rest


def _blocks(stream: IO[Any], source: str) -> Iterator[bytes]:
    """Blocks that end at the end of a row: a line end outside quotes."""
    left = b""
    while block := _read(stream, source):
        left += block
        end = len(left) if len(block) < PART_BYTES else _row_end(left)  # all that is left of a file
        if end:
            yield left[:end]
            left = left[end:]
        elif len(left) > 20 * PART_BYTES:
            raise TableError(f"{_name(source)} must have rows of less than 100 MB, got a longer one; check its quotes")
    if left:
        yield left


def _read(stream: IO[Any], source: str) -> bytes:
    try:
        found = _piped() if stream is sys.stdin.buffer else stream.read(PART_BYTES)
        return found.encode() if isinstance(found, str) else found
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"{source} must be a whole gzip file, got one that is not ({error}); save it again") from None
    except UnicodeError as error:
        encoding, reason = getattr(stream, "encoding", UTF_8), getattr(error, "reason", error)
        raise TableError(
            f"{_name(source)} must be in {encoding}, got bytes that are not ({reason}); "
            f"pass another --encoding, or leave it out for UTF-8"
        ) from None


def _piped() -> bytes:
    """As much of standard input, in the portions of a pipe: one read of all would wait on while a signal is pending."""
    found, pipe = bytearray(), cast(BufferedReader, sys.stdin.buffer)
    while len(found) < PART_BYTES and (portion := pipe.read1(PART_BYTES - len(found))):
        found += portion
    return bytes(found)


def _row_end(block: bytes) -> int:
    """Behind the last line end with an even number of quotes before it; 0 where there is none."""
    before, quotes = len(block), block.count(b'"')
    while (end := block.rfind(b"\n", 0, before)) >= 0:
        quotes -= block.count(b'"', end, before)
        if quotes % 2 == 0:
            return end + 1
        before = end
    return 0


def text_frame(
    heading: bytes, rows: bytes, separator: str, source: str, numbers: Sequence[str] = (), line: int = 1
) -> "pl.DataFrame":
    """Rows of a text file, as many as there are; cells as text, but for columns in `numbers` that hold only numbers.

    For messages, `line` is the number of the last line before the rows.
    """
    content, kinds = heading + b"\n" + rows, dict.fromkeys(numbers, pl.Float64)
    try:
        try:
            frame = pl.read_csv(content, separator=separator, infer_schema=False, schema_overrides=kinds)
        except pl.exceptions.PolarsError:
            # Some cell is no number, or a word for a missing one: as text, it can be told.
            frame = pl.read_csv(content, separator=separator, infer_schema=False)
        # Quotes in a name come doubled; lines without anything are no rows.
        frame = frame.rename({name: name.replace('""', '"') for name in frame.columns if '""' in name})
        return frame.filter(~pl.all_horizontal(pl.all().is_null()))
    except pl.exceptions.NoDataError:
        raise TableError(f"{_name(source)} must hold a table, got nothing; check the file") from None
    except pl.exceptions.PolarsError as error:
        raise _unreadable(heading, rows, separator, source, line, error) from None


def _unreadable(heading: bytes, rows: bytes, separator: str, source: str, line: int, error: Exception) -> TableError:
    for before, part in ((0, heading), (line, rows)):
        try:
            text = part.decode()
        except UnicodeDecodeError as place:
            place_line = before + part.count(b"\n", 0, place.start) + 1
            return _not_utf_8(heading + rows, source, f"the byte 0x{part[place.start]:02x} in line {place_line}")
    got, remedy = f"a row that cannot be read ({str(error).splitlines()[0]})", "correct the file"
    with suppress(csv.Error):
        names = next(csv.reader([heading.decode()], delimiter=separator))
        cells = csv.reader(StringIO(text, newline=""), delimiter=separator)
        if many := next((len(row) for row in cells if len(row) > len(names)), 0):
            got = f"{many} in line {line + cells.line_num} in place of {len(names)}"
            remedy = f"correct that line, and put cells with {separator!r} in double quotes"
            if sum(map(bool, names)) == 1:
                remedy = f"correct that line, or let line 1 name all columns, where it is {quoted(heading.decode())}"
    return TableError(
        f"{_name(source)} must be a table whose rows have as many cells as its heading, got {got}; {remedy}"
    )


def _not_utf_8(content: bytes, source: str, got: str) -> TableError:
    guess = guessed_encoding(content)
    remedy = f"--encoding {guess}, which it looks like" if guess else "--encoding NAME, the one that it was saved in"
    return TableError(f"{_name(source)} must be in UTF-8, got {got}; pass {remedy}, or save it as UTF-8")


def checked_encoding(name: str) -> str:
    """As Python calls it; with or without a mark at its beginning, UTF-8 is one."""
    try:
        "a".encode(name)
        found = lookup(name).name
    except (LookupError, ValueError):
        raise InvalidArgumentError(
            f"encoding must be one of text that Python knows, got {name!r:.40}; such as latin-1, cp1252 or utf-16"
        ) from None
    return UTF_8 if found == "utf-8-sig" else found


def guessed_encoding(content: bytes) -> str | None:
    """What text that is not UTF-8 looks like; None where that cannot be told."""
    for name, marks in (("utf-32", (BOM_UTF32_LE, BOM_UTF32_BE)), ("utf-16", (BOM_UTF16_LE, BOM_UTF16_BE))):
        if content.startswith(marks):
            return name
    if b"\0" in content[:2]:
        return "utf-16-be" if content[:1] == b"\0" else "utf-16-le"
    # From 0x80 to 0x9f latin-1 has nothing that is printed.
    name = "cp1252" if any(0x80 <= byte < 0xA0 for byte in set(content)) else "latin-1"
    try:
        content.decode(name)
    except UnicodeDecodeError:
        return None
    return name
