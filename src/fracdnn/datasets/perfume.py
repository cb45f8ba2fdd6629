"""The perfume data: odors of 20 perfumes, 28 readings each, a second apart (UCI data set 303; Esme & Karlik 2016)."""

import csv
import hashlib
import io
import warnings
import zipfile
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from fracdnn.datasets.download import cache_folder, download
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


@dataclass(frozen=True, eq=False)
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
    compared. Names may be spelled differently. A download of at most 1 MB is kept in the folder that the environment
    variable FRACDNN_CACHE names, else in the user's folder for caches; `DownloadError` says what to do without network.
    """
    if path is None:
        try:
            return _table((cache_folder() / _CACHED).read_bytes())
        except (OSError, ValueError):  # not there, or damaged
            return _downloaded(URL if url is None else url)
    if url is not None:
        raise InvalidArgumentError(f"url must be left out when path is given, got {url!r}; pass one of the two")
    if not isinstance(path, (str, PathLike)):
        raise InvalidTypeError(f"path must be a str or a Path, got {path!r} of type {type(path).__name__}; {_REMEDY}")
    try:
        return _table(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidArgumentError(
            f"path must hold the perfume table, got {str(path)!r}: {reason}; {_REMEDY}"
        ) from None


def _downloaded(url: str) -> Perfume:
    content = download(url, remedy=_REMEDY)
    try:
        perfume = _table(content)
    except ValueError as error:
        raise DownloadError(f"{url} must hold the perfume table, got {error}; {_REMEDY}") from None
    text = io.StringIO(newline="")
    readings = (perfume.data @ (1000, 1)).astype(np.int64).reshape(N_PERFUMES, N_SECONDS)
    csv.writer(text).writerows([name, *row] for name, row in zip(perfume.target_names, readings, strict=True))
    try:
        write_whole(cache_folder() / _CACHED, lambda temporary: temporary.write_bytes(text.getvalue().encode()))
    except OSError as error:
        warnings.warn(
            f"the perfume table could not be kept in {cache_folder()}: {error.strerror}; "
            f"set FRACDNN_CACHE to a folder that can be written, or it is downloaded each time",
            stacklevel=3,
        )
    return perfume


def _table(content: bytes) -> Perfume:
    """What a file holds; a `ValueError` unless its readings are those of the repository."""
    try:
        rows = [row for row in _rows(content) if any(map(str.strip, row))][-N_PERFUMES:]  # a heading comes before
        readings = np.array([row[1:] for row in rows], dtype=float)
    except ImportError:
        raise
    except Exception as error:  # damage shows in many ways: BadZipFile, zlib.error, the spreadsheet reader's own …
        reason = str(error).partition("\n")[0]
        raise ValueError(f"neither a spreadsheet (.xlsx) nor a CSV file of readings ({reason})") from None
    checksum = hashlib.sha256("\n".join(",".join(f"{x:.0f}" for x in row) for row in readings).encode()).hexdigest()
    if checksum != CHECKSUM:
        raise ValueError(f"other readings, {list(readings.shape)} (checksum {checksum[:8]}…, not {CHECKSUM[:8]}…)")
    return Perfume(
        data=np.stack(np.divmod(readings.ravel().round(), 1000), axis=-1),
        target=np.repeat(np.arange(N_PERFUMES), N_SECONDS),
        second=np.tile(np.arange(1, N_SECONDS + 1), N_PERFUMES),
        target_names=[row[0].strip(" '") for row in rows],
    )


def _rows(content: bytes) -> list[list[str]]:
    """The rows of a spreadsheet, of a CSV file, or of the first of these in a zip file: its content tells which."""
    if not content.startswith(b"PK"):
        return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(info.file_size for info in archive.infolist()) > UNPACKED_LIMIT:
            raise ValueError(f"it unpacks to more than {UNPACKED_LIMIT} bytes")
        if "xl/workbook.xml" not in archive.namelist():
            names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]
            tables = [name for name in names if name.lower().endswith((".xlsx", ".csv"))]
            if not tables:
                raise ValueError("no .xlsx or .csv in the zip file")
            return _rows(archive.read(tables[0]))
    require("polars", "fastexcel")
    import polars

    frame = polars.read_excel(content, has_header=False, read_options={"dtypes": "string"})
    return [[cell or "" for cell in row] for row in frame.rows()]
