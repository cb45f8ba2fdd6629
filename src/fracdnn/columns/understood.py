"""What was understood of a table, column by column, in words: for the terminal, reports and model files."""

from collections.abc import Sequence
from typing import Any

from fracdnn.columns.column import Categories, Column, Dates, Numbers, Unused
from fracdnn.columns.encoding import Encoding, TableSummary
from fracdnn.columns.summary import ColumnSummary
from fracdnn.columns.words import count

# So many columns are listed in a terminal, and so much of a name and of examples.
MOST_LINES, NAME_WIDTH, EXAMPLES_WIDTH = 60, 24, 34
HEADINGS = ("column", "kind", "examples", "missing", "what became of it")


def describe_columns(summary: TableSummary, encoding: Encoding) -> list[dict[str, str]]:
    """By `HEADINGS`, for each column of the table but the target."""
    rows = []
    for column, found in zip(encoding.columns, summary.columns, strict=True):
        share = 1 - found.cells / found.rows if found.rows else 0.0
        missing = "" if not share else "under 0.1%" if share < 0.001 else f"{share:.1%}"
        cells = column.name, column.kind, ", ".join(found.examples), missing, _became(column, found)
        rows.append(dict(zip(HEADINGS, cells, strict=True)))
    return rows


def as_lines(rows: Sequence[dict[str, str]]) -> list[str]:
    """One line for each column, those that are left out first to be shown where there are too many."""
    kept = sorted(range(len(rows)), key=lambda k: (rows[k]["kind"] != Unused.kind, k))[:MOST_LINES]
    lines = []
    for k in sorted(kept):
        name, kind, examples, missing, became = (rows[k][heading] for heading in HEADINGS)
        kind = "left out" if kind == Unused.kind else kind
        told = became + (f"; {missing} missing" if missing and kind != "left out" else "")
        lines.append(f"  {_cut(name, NAME_WIDTH)}  {kind:<8}  {_cut(examples, EXAMPLES_WIDTH)}  {told}".rstrip())
    more = len(rows) - len(kept)
    return [*lines, f"  … and {count(more, 'column')} more; `fracdnn report` lists all"] if more else lines


def _became(column: Column, found: ColumnSummary) -> str:
    if isinstance(column, Unused):
        return column.why
    words: list[Any] = []
    if isinstance(column, Numbers):
        reading = found.reading(column)
        is_constant = reading is not None and reading.least == reading.most
        words = ["the same number in every row" if is_constant else "a number"]
        words += [f"in {column.unit}"] if column.unit else []
        words += [{"": "", ".": "commas separate thousands", ",": "with a decimal comma"}[column.decimal]]
        words += [f"missing ones become {column.median:g}, the median"] if column.gaps else []
    elif isinstance(column, Categories):
        known = count(len(column.categories), "category")
        words = [f"the {known} that are most frequent, and one for all others" if column.others else known]
        words += ["codes with leading zeros"] if found.marks.codes else []
    elif isinstance(column, Dates):
        parts = ", ".join(column.parts).replace("days", f"days since {column.first}")
        order = {"ymd": "", "dmy": "day before month", "mdy": "month before day", "clock": ""}[column.order]
        words = ["a time of day" if column.order == "clock" else parts, order]
    strays = found.strays(column)
    words += [f"{count(strays.count, 'cell')} such as {strays.examples[0]} taken as missing"] if strays.count else []
    return ", ".join(word for word in words if word)


def _cut(text: str, width: int) -> str:
    text = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    shown = text if len(text) <= width else f"{text[: width - 1]}…"
    return f"{shown:<{width}}"
