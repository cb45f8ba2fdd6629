"""Tables from files, folders of files and pipes, whole or in parts of bounded size.

Files end in .csv, .tsv, .csv.gz, .tsv.gz, .parquet or .xlsx; those of a folder, and of its folders NAME=VALUE (a column
more, as Hive has it), or those that a pattern with * finds, are parts of one table, in the order of their names. Parts
without rows are passed over. Text is in UTF-8 unless another encoding is named. Cells of text formats come as text; an
`Encoder` makes numbers of them, and can then say which cell is not one.
"""

import csv
import gzip
import re
import sys
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE, lookup
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import glob
from io import StringIO
from pathlib import Path
from typing import Any, cast
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
# The heading reaches to the first line end outside quotes: names may hold line ends.
_HEADING = re.compile(rb'(?:[^"\n]++|"[^"]*+"?)*+')
# A part has at most so many rows, and cells.
PART_ROWS, PART_CELLS = 65_536, 4_000_000
# Bytes that are read of a pipe at once, and in which the heading ends.
PORTION, MOST_HEADING = 1_000_000, 8_000_000


@dataclass(frozen=True)
class FileSummary:
    """What was read: the files in their order and, of a workbook, the sheet and all sheets there are."""

    source: str
    files: tuple[str, ...]
    sheet: str | None = None
    sheets: tuple[str, ...] = ()

    def notes(self) -> list[str]:
        """Return a remark if a workbook has further sheets, which are read only by name."""
        if len(self.sheets) < 2 or self.sheet != self.sheets[0]:
            return []
        return [f"reading the sheet {quoted(self.sheet)} of {listed(self.sheets)}; --sheet NAME reads another"]


def read(source: str, *, encoding: str = UTF_8, sheet: str | None = None) -> "tuple[pl.DataFrame, FileSummary]":
    """Read a whole table from a file, a folder of parts, a pattern with *, or "-" for standard input as CSV.

    Of an Excel file, read the named sheet, or the first one.
    """
    table = read_table(source, encoding, sheet)
    sheets = tuple(sheets_of(source)) if source.lower().endswith(".xlsx") else ()
    summary = FileSummary(source, tuple(files_of(source)), sheet or next(iter(sheets), None), sheets)
    return table, summary


def read_table(source: str, encoding: str = UTF_8, sheet: str | None = None) -> "pl.DataFrame":
    """Read a whole table without a summary."""
    require("polars")
    return pl.concat(list(read_parts(source, encoding, sheet)), how="vertical_relaxed")


def read_parts(source: str, encoding: str = UTF_8, sheet: str | None = None) -> "Iterator[pl.DataFrame]":
    """Read a table in parts, at least one, each with all columns and at least one row."""
    require("polars")
    files, encoding = files_of(source), checked_encoding(encoding)
    first: tuple[str, pl.Schema] | None = None
    for file in files:
        ending = _ending_of(file)
        _check_options(file, ending, encoding, sheet)
        if len(files) > 1 and not Path(file).stat().st_size:
            continue
        parts = _text_parts(file, ending, encoding) if ending in TEXT else _binary_parts(file, ending, sheet)
        for number, part in enumerate(_with_folders(part, file) for part in parts if part.height):
            if number == 0:
                first = first or (file, part.schema)
                _check_alike(file, part.schema, *first)
            yield part
    if first is None:
        sheets = sheets_of(files[0]) if _ending_of(files[0]) == ".xlsx" else []
        remedy = f"--sheet names another of {listed(sheets)}" if len(sheets) > 1 else "check the file"
        raise TableError(f"{_name(source)} must hold at least one row below its heading, got none; {remedy}")


def files_of(source: str) -> list[str]:
    """Return the parts of a table: the files of a folder by name, all of one kind, those of a pattern, or one file."""
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
        if _ending_of(file) != _ending_of(files[0]):
            raise TableError(f"{file} must be of the same kind as {files[0]}, got another ending; move it elsewhere")
    return files


def _within(folder: Path) -> Iterator[Path]:
    """Yield the parts in a folder, and in its folders NAME=VALUE, by name."""
    for file in sorted(folder.iterdir()):
        if not file.name.startswith((".", "_")):
            yield from _within(file) if file.is_dir() and "=" in file.name else [file]


def _with_folders(part: "pl.DataFrame", file: str) -> "pl.DataFrame":
    """Add a column of text for each folder NAME=VALUE on the way to the file, unless the file has it."""
    found = {name: value for name, value in _FOLDER.findall(file) if name not in part.columns}
    values = {name: None if value == _MISSING else unquote(value) for name, value in found.items()}
    return part.with_columns(pl.lit(value, pl.String).alias(name) for name, value in values.items())


def check_there(source: str) -> None:
    """Raise an error unless the table can be opened, as far as one can tell without reading it."""
    for file in files_of(source) if source != "-" else ():
        _ending_of(file)
        Path(file).open("rb").close()


def _check_options(file: str, ending: str, encoding: str, sheet: str | None) -> None:
    """Raise an error for an encoding of a file that is not text, and for a sheet of one that is not .xlsx."""
    if sheet is not None and ending != ".xlsx":
        raise TableError(f"{file} must be an .xlsx file for --sheet, got a {ending} file; leave --sheet out")
    if encoding != UTF_8 and ending not in TEXT:
        raise TableError(
            f"{file} must be a .csv or .tsv file for --encoding, got a {ending} file; leave --encoding out"
        )


def _check_alike(file: str, schema: "pl.Schema", first_file: str, first: "pl.Schema") -> None:
    """Raise an error unless a part has the columns of the first one, and for Parquet the same types."""
    here, there = [[name for name in one if name not in other] for one, other in ((schema, first), (first, schema))]
    if here or there:
        what = f"{here[0]!r:.80} beside them" if here else f"no {there[0]!r:.80}"
        raise TableError(f"{file} must have the columns of {first_file}, got {what}; write the parts alike")
    other = next((name for name in first if schema[name] != first[name]), None)
    if other is not None and _ending_of(file) == ".parquet":
        raise TableError(
            f"{file} must have cells of type {first[other]} in column {other!r:.80} as {first_file} has, "
            f"got {schema[other]}; write the parts alike"
        )


def _ending_of(source: str) -> str:
    """Return the ending that says how to read a file."""
    lower = ".csv" if source == "-" else source.lower()
    found = next((ending for ending in ENDINGS if lower.endswith(ending)), None)
    if found is None:
        raise TableError(f"{source} must end in one of {', '.join(ENDINGS)}; the ending says how to read it")
    return found


def _n_rows(n_columns: int) -> int:
    """Return the number of rows of a part."""
    return max(1, min(PART_ROWS, PART_CELLS // max(1, n_columns)))


def _name(source: str) -> str:
    return "standard input" if source == "-" else source


def sheets_of(source: str) -> list[str]:
    """Return the names of a workbook's sheets."""
    require("fastexcel")
    import fastexcel

    with _readable(source, ".xlsx"):
        return fastexcel.read_excel(source).sheet_names


def check_sheet(source: str, sheet: str | None) -> None:
    """Raise an error unless a workbook has the sheet."""
    if sheet is not None and sheet not in (sheets := sheets_of(source)):
        raise TableError(f"{source} must have the sheet {nearest(sheet, sheets)}; it has {listed(sheets)}")


def _binary_parts(source: str, ending: str, sheet: str | None) -> "Iterator[pl.DataFrame]":
    if ending == ".parquet":
        with _readable(source, ending):
            scan = pl.scan_parquet(source, glob=False)
            yield from scan.collect_batches(chunk_size=_n_rows(len(scan.collect_schema())), maintain_order=True)
        return
    require("fastexcel")
    check_sheet(source, sheet)
    options: dict[str, Any] = {"engine": "calamine"} | ({} if sheet is None else {"sheet_name": sheet})
    with _readable(source, ending):
        # Polars renames a column whose name occurs twice, so the names are read as a row first.
        first = pl.read_excel(source, has_header=False, read_options={"n_rows": 1}, **options)
        check_unique([None if cell is None else str(cell) for row in first.rows() for cell in row], source)
        # The whole sheet decides on the type of a column, not its first hundred rows.
        yield pl.read_excel(source, infer_schema_length=None, **options)


@contextmanager
def _readable(source: str, ending: str) -> Iterator[None]:
    """Turn the many kinds of errors that Polars and calamine raise for a damaged file into one."""
    Path(source).open("rb").close()  # a missing file, a folder, no permission: Python has the right message
    try:
        yield
    except (OSError, TableError):
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TableError(
            f"{source} must be a {ending} file, got one that cannot be read ({reason}); save it again"
        ) from None


def _text_parts(source: str, ending: str, encoding: str) -> "Iterator[pl.DataFrame]":
    """Read a text file; one in UTF-8 that is not compressed is never in memory as a whole."""
    content = _content(source, ending, encoding)
    names, separator = _heading(content, source, ending)
    options: dict[str, Any] = {"separator": separator, "infer_schema": False, "glob": False}
    try:
        scan = pl.scan_csv(content, with_column_names=lambda _: names, **options)
        for part in scan.collect_batches(chunk_size=_n_rows(len(names)), maintain_order=True):
            yield part.filter(~pl.all_horizontal(pl.all().is_null()))  # empty lines are not rows
    except pl.exceptions.PolarsError as error:
        raise _unreadable(content, names, separator, source, error) from None


def _content(source: str, ending: str, encoding: str) -> Path | bytes:
    """Return the path of a file that Polars reads by itself, or the content of another one in UTF-8."""
    if source != "-" and encoding == UTF_8 and not ending.endswith(".gz"):
        return Path(source)
    try:
        # A pipe is read in portions: one read of all would wait on while a signal is pending.
        pipe = iter(lambda: sys.stdin.buffer.read1(PORTION), b"") if source == "-" else ()  # type: ignore[union-attr]
        content = b"".join(pipe) if source == "-" else Path(source).read_bytes()
        content = gzip.decompress(content) if ending.endswith(".gz") else content
        return content if encoding == UTF_8 else content.decode(encoding).encode()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TableError(f"{source} must be a whole gzip file, got one that is not ({error}); save it again") from None
    except UnicodeError as error:
        raise TableError(
            f"{_name(source)} must be in {encoding}, got bytes that are not ({getattr(error, 'reason', error)}); "
            f"pass another --encoding, or leave it out for UTF-8"
        ) from None


def _heading(content: Path | bytes, source: str, ending: str) -> tuple[list[str], str]:
    """Return the names of the columns and the separator, which occurs most often outside quotes."""
    if isinstance(content, Path):
        with content.open("rb") as file:
            first = file.read(MOST_HEADING)
    else:
        first = content[:MOST_HEADING]
    heading = cast(re.Match[bytes], _HEADING.match(first.removeprefix(BOM_UTF8)))[0]
    if b"\0" in heading or first.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise _not_utf_8(first, source, "a byte of another encoding in line 1")
    if not heading.strip():
        raise TableError(f"{_name(source)} must begin with the names of the columns, got an empty line; check the file")
    outside_quotes = re.sub(rb'"[^"]*"', b"", heading)
    separator = "\t" if ending.startswith(".tsv") else max(SEPARATORS, key=lambda s: outside_quotes.count(s.encode()))
    try:
        row = next(csv.reader(StringIO(heading.decode(), newline=""), delimiter=separator))
    except UnicodeDecodeError as place:
        raise _not_utf_8(first, source, f"the byte 0x{heading[place.start]:02x} in line 1") from None
    several = sum(not name for name in row) > 1  # several columns without a name are called as pandas calls them
    names = [name or (f"Unnamed: {place}" if several else "") for place, name in enumerate(row)]
    check_unique(names, _name(source))
    return names, separator


def _unreadable(content: Path | bytes, names: list[str], separator: str, source: str, error: Exception) -> TableError:
    """Return an error that names the line that Polars cannot read."""
    whole = content.read_bytes() if isinstance(content, Path) else content
    try:
        text = whole.decode()
    except UnicodeDecodeError as place:
        line = whole.count(b"\n", 0, place.start) + 1
        return _not_utf_8(whole, source, f"the byte 0x{whole[place.start]:02x} in line {line}")
    got, remedy = f"a row that cannot be read ({str(error).splitlines()[0]})", "correct the file"
    with suppress(csv.Error):
        rows = csv.reader(StringIO(text, newline=""), delimiter=separator)
        if many := next((len(row) for row in rows if len(row) > len(names)), 0):
            got = f"{many} in line {rows.line_num} in place of {len(names)}"
            remedy = f"correct that line, and put cells with {separator!r} in double quotes"
            if sum(map(bool, names)) == 1:
                heading = quoted(text.splitlines()[0])
                remedy = f"correct that line, or let line 1 name all columns, where it is {heading}"
    return TableError(
        f"{_name(source)} must be a table whose rows have as many cells as its heading, got {got}; {remedy}"
    )


def _not_utf_8(content: bytes, source: str, got: str) -> TableError:
    guess = _guessed_encoding(content)
    remedy = f"--encoding {guess}, which it looks like" if guess else "--encoding NAME, the one that it was saved in"
    return TableError(f"{_name(source)} must be in UTF-8, got {got}; pass {remedy}, or save it as UTF-8")


def checked_encoding(name: str) -> str:
    """Return an encoding as Python calls it; UTF-8 with a mark at its beginning is UTF-8."""
    try:
        "a".encode(name)
        found = lookup(name).name
    except (LookupError, ValueError):
        raise InvalidArgumentError(
            f"encoding must be one of text that Python knows, got {name!r:.40}; such as latin-1, cp1252 or utf-16"
        ) from None
    return UTF_8 if found == "utf-8-sig" else found


def _guessed_encoding(content: bytes) -> str | None:
    """Return the encoding that text which is not UTF-8 looks like, or None."""
    for name, marks in (("utf-32", (BOM_UTF32_LE, BOM_UTF32_BE)), ("utf-16", (BOM_UTF16_LE, BOM_UTF16_BE))):
        if content.startswith(marks):
            return name
    if b"\0" in content[:2]:
        return "utf-16-be" if content[:1] == b"\0" else "utf-16-le"
    # latin-1 has no printed characters from 0x80 to 0x9f.
    name = "cp1252" if any(0x80 <= byte < 0xA0 for byte in set(content)) else "latin-1"
    try:
        content.decode(name)
    except UnicodeDecodeError:
        return None
    return name
