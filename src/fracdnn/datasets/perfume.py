"""The perfume data: odours of 20 perfumes, a reading a second for 28 seconds (UCI data set 303; Esme & Karlik 2016)."""

import csv
import hashlib
import io
import math
import re
import reprlib
import warnings
import zipfile
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from fracdnn.datasets.download import SIZE_LIMIT, cache_folder, download
from fracdnn.exceptions import DownloadError, InvalidArgumentError, InvalidTypeError
from fracdnn.extras import require
from fracdnn.files import write_whole

N_PERFUMES, N_SECONDS = 20, 28
_CACHED = "perfume.csv"
# SHA-256 of the readings as text: commas between seconds, a line for each perfume, in the order of the table.
CHECKSUM = "6fc89b75cf8c0c47d11cc8086cfcbedd04553334520837283184e898916f1ea1"
URL = "https://archive.ics.uci.edu/static/public/303/perfume+data.zip"
_REMEDY = (
    "get perfume_data.xlsx from https://archive.ics.uci.edu/dataset/303/perfume+data "
    'and pass where it is, load_perfume("perfume_data.xlsx")'
)
UNPACKED_LIMIT = 10_000_000
_ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")
# The row or cell of a worksheet with more than three digits or two letters, as in r="A1000".
_FAR_CELL = re.compile(rb"""\br\s*=\s*["'](?:[A-Za-z]{3,}\d+|[A-Za-z]*\d{4,})["']""")


class UnreadableTableError(ValueError):
    """A content that is no such table; the message is what was found instead."""


@dataclass(frozen=True)
class Perfume:
    """560 samples: `data` [560, 2] (strength, quality), `target` [560] in 0 … 19, `second` [560] in 1 … 28.

    Only 152 points are distinct and many recur within a class, so random folds leak; `split_by_time` does not.
    """

    data: np.ndarray
    target: np.ndarray
    second: np.ndarray
    target_names: list[str]

    def split_by_time(self, seconds: int = 14) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """X_train, X_test, y_train, y_test: the first seconds for training, the rest for testing."""
        early = self.second <= seconds
        return self.data[early], self.data[~early], self.target[early], self.target[~early]


def load_perfume(path: str | PathLike[str] | None = None, *, url: str | None = None) -> Perfume:
    """The perfume table: from a file, else from the cache, else from the UCI repository (or a mirror at `url`).

    A file is the repository's zip file, the spreadsheet in it (.xlsx), or a CSV file with or without a heading: a line
    for each perfume, its name and 28 readings. A reading packs two integers, strength · 1000 + quality.

    Wherever they come from, the readings must be those of the repository, in its order: a checksum of their values is
    compared. Names may be spelled otherwise. A download of at most 1 MB is kept in the folder that the environment
    variable FRACDNN_CACHE names, else in the user's folder for caches; `DownloadError` says what to do without network.
    """
    if path is None:
        try:
            return _perfume(_read(cache_folder() / _CACHED))
        except (OSError, UnreadableTableError):  # not there, or damaged
            return _perfume(_downloaded(URL if url is None else url))
    if url is not None:
        raise InvalidArgumentError(f"url must be left out when path is given, got {url!r}; pass one of the two")
    if not isinstance(path, (str, PathLike)):
        raise InvalidTypeError(f"path must be a str or a Path, got {path!r} of type {type(path).__name__}; {_REMEDY}")
    try:
        return _perfume(_read(Path(path)))
    except UnreadableTableError as error:
        raise InvalidArgumentError(f"path must hold the perfume table, got {error} in {path}; {_REMEDY}") from None
    except (OSError, ValueError) as error:  # ValueError: a null character
        reason = getattr(error, "strerror", error)
        raise InvalidArgumentError(f"path must name a readable file, got {str(path)!r}: {reason}; {_REMEDY}") from None


def _downloaded(url: str) -> list[list[str]]:
    try:
        rows = _table(download(url))
    except DownloadError as error:
        raise DownloadError(f"{error}; {_REMEDY}") from None
    except UnreadableTableError as error:
        raise DownloadError(f"{url} must hold the perfume table, got {error}; {_REMEDY}") from None
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    try:
        kept = text.getvalue().encode()
        write_whole(cache_folder() / _CACHED, lambda temporary: temporary.write_bytes(kept))
    except OSError as error:
        warnings.warn(
            f"the perfume table could not be kept in {cache_folder()}: {error.strerror}; "
            f"set FRACDNN_CACHE to a folder that can be written, or it is downloaded each time",
            stacklevel=3,
        )
    return rows


def _read(path: Path) -> list[list[str]]:
    with path.open("rb") as file:
        content = file.read(SIZE_LIMIT + 1)
    if len(content) > SIZE_LIMIT:
        raise UnreadableTableError(f"more than {SIZE_LIMIT} bytes")
    return _table(content)


def _table(content: bytes) -> list[list[str]]:
    """Rows of a name and 28 whole numbers, as text; the same numbers as in the repository."""
    rows = read_rows(content)
    if rows and len(rows[0]) > 1 and math.isnan(_number(rows[0][1])):
        rows = rows[1:]
    if len(rows) != N_PERFUMES:
        raise UnreadableTableError(f"{len(rows)} lines instead of {N_PERFUMES}")
    for row in rows:
        if len(row) != N_SECONDS + 1:
            raise UnreadableTableError(f"a line of {len(row)} cells instead of a name and {N_SECONDS} readings")
        for cell in row[1:]:
            if not _number(cell).is_integer():
                raise UnreadableTableError(f"the reading {reprlib.repr(cell)} instead of a whole number")
    rows = [[row[0].strip("'"), *(str(int(float(cell))) for cell in row[1:])] for row in rows]
    checksum = hashlib.sha256("\n".join(",".join(row[1:]) for row in rows).encode()).hexdigest()
    if checksum != CHECKSUM:
        raise UnreadableTableError(f"other readings (checksum {checksum[:8]}…, not {CHECKSUM[:8]}…)")
    return rows


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _perfume(rows: list[list[str]]) -> Perfume:
    readings = np.array([[int(cell) for cell in row[1:]] for row in rows]).ravel()
    return Perfume(
        data=np.stack([readings // 1000, readings % 1000], axis=-1).astype(np.float64),
        target=np.repeat(np.arange(N_PERFUMES), N_SECONDS),
        second=np.tile(np.arange(1, N_SECONDS + 1), N_PERFUMES),
        target_names=[row[0] for row in rows],
    )


def read_rows(content: bytes) -> list[list[str]]:
    """The rows that hold anything of a spreadsheet (.xlsx), a CSV file, or a zip file with one of them; cells stripped.

    What a file is shows in its content, not in its name. Nothing is unpacked to disk, and all is bounded in size.
    """
    rows = _zip_rows(_members(content)) if content.startswith(_ZIP_STARTS) else _csv_rows(content)
    rows = [[cell.strip() for cell in row] for row in rows]
    return [row for row in rows if any(row)]


def _csv_rows(content: bytes) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    except (UnicodeDecodeError, csv.Error):
        raise UnreadableTableError("neither a spreadsheet (.xlsx) nor a CSV file in UTF-8") from None


def _zip_rows(members: dict[str, bytes]) -> list[list[str]]:
    """A spreadsheet is a zip file itself."""
    if "xl/workbook.xml" in members:
        return _spreadsheet_rows(members)
    for name, content in members.items():
        if name.lower().endswith((".xlsx", ".csv")) and not name.startswith("__MACOSX/"):
            return _csv_rows(content) if name.lower().endswith(".csv") else _spreadsheet_rows(_members(content))
    raise UnreadableTableError("a zip file without a spreadsheet (.xlsx) or a CSV file")


def _members(content: bytes) -> dict[str, bytes]:
    """What a zip file holds, unpacked in memory. What is longer than it announces is not read to its end."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for info in archive.infolist():
                # zipfile unpacks the other methods without a bound.
                if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise UnreadableTableError(f"a zip file packed by the uncommon method {info.compress_type}")
            if sum(info.file_size for info in archive.infolist()) > UNPACKED_LIMIT:
                raise UnreadableTableError(f"a file that unpacks to more than {UNPACKED_LIMIT} bytes")
            return {info.filename: archive.open(info).read(info.file_size) for info in archive.infolist()}
    except UnreadableTableError:
        raise
    except Exception as error:  # damage shows in many ways: BadZipFile, zlib.error, EOFError, RuntimeError …
        raise UnreadableTableError(f"a zip file or spreadsheet that cannot be read ({error})") from None


def _spreadsheet_rows(members: dict[str, bytes]) -> list[list[str]]:
    """The first sheet. The reader gets a new archive of the bounded members, so it cannot unpack more than these."""
    require("polars", "fastexcel")
    import polars

    # It would also make room for each cell up to the farthest, and a lack of memory ends the process.
    if any(b"sheetData" in content and _FAR_CELL.search(content) for content in members.values()):
        raise UnreadableTableError("a spreadsheet with more than 999 rows or 702 columns")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    try:
        frame = polars.read_excel(packed, engine="calamine", has_header=False, read_options={"dtypes": "string"})
    except Exception as error:  # the reader's own classes, and Polars'
        reason = str(error).partition("\n")[0]
        raise UnreadableTableError(f"a spreadsheet that cannot be read ({reason})") from None
    return [["" if cell is None else cell for cell in row] for row in frame.rows()]
