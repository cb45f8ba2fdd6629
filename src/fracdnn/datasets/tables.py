"""Small tables as rows of text, from a spreadsheet (.xlsx), a CSV file, or a zip file with one of them.

What a file is shows in its content, not in its name. Nothing is unpacked to disk, and all is bounded in size.
"""

import csv
import io
import re
import zipfile

from fracdnn.extras import require

UNPACKED_LIMIT = 10_000_000
_ZIP_STARTS = (b"PK\x03\x04", b"PK\x05\x06")
# The row or cell of a worksheet with more than three digits or two letters, as in r="A1000".
_FAR_CELL = re.compile(rb"""\br\s*=\s*["'](?:[A-Za-z]{3,}\d+|[A-Za-z]*\d{4,})["']""")


class UnreadableTableError(ValueError):
    """A content that is no such table; the message is what was found instead."""


def read_rows(content: bytes) -> list[list[str]]:
    """The rows that hold anything, cells stripped of blanks around them."""
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
        if name.startswith("__MACOSX/"):
            continue
        if name.lower().endswith(".xlsx"):
            return _spreadsheet_rows(_members(content))
        if name.lower().endswith(".csv"):
            return _csv_rows(content)
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
