"""The way from a file to a frame, with a summary of what was read."""

from dataclasses import dataclass

from fracdnn.tables.late import pl
from fracdnn.tables.reading import UTF_8, files_of, read_table, sheets_of
from fracdnn.tables.words import listed, quoted


@dataclass(frozen=True)
class FileSummary:
    """What was read: the files in their order and, of a workbook, the sheet and all sheets there are."""

    source: str
    files: tuple[str, ...]
    sheet: str | None = None
    sheets: tuple[str, ...] = ()

    def notes(self) -> list[str]:
        """Return remarks for the reader of a terminal: one if a workbook has sheets that were not read."""
        if len(self.sheets) < 2 or self.sheet != self.sheets[0]:
            return []
        return [f"reading the sheet {quoted(self.sheet)} of {listed(self.sheets)}; --sheet NAME reads another"]


def read(source: str, *, encoding: str = UTF_8, sheet: str | None = None) -> "tuple[pl.DataFrame, FileSummary]":
    """Read a whole table from a file, a folder of parts, a pattern with *, or "-" for standard input as CSV.

    Cells of text formats come as text; `Encoder` decides what they are. Of an Excel file, read the named sheet, or the
    first one.
    """
    frame, files = read_table(source, encoding, sheet), files_of(source)
    sheets = tuple(sheets_of(source)) if source.lower().endswith(".xlsx") else ()
    return frame, FileSummary(source, tuple(files), sheet or (sheets[0] if sheets else None), sheets)
