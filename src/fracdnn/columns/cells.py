"""What the cells of a Polars column hold: numbers, categories, nothing, or something that is none of them."""

from dataclasses import dataclass
from typing import ClassVar

from fracdnn.columns.late import pl
from fracdnn.columns.numerals import Marks, read_numbers
from fracdnn.columns.summaries import Sums
from fracdnn.columns.words import quoted
from fracdnn.exceptions import TableError

# Text that holds no value.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?", "#N/A", "#NA", "<NA>", "-NaN", "-nan")
# Where so many cells to learn from are numbers, and such a share of them, the others are taken as missing.
LEAST_NUMBERS, LEAST_SHARE = 20, 0.95


@dataclass(frozen=True)
class Strays(Sums):
    """Cells that are no numbers in a column of numbers: how many, and the first different ones by the alphabet."""

    ways: ClassVar = {"examples": lambda mine, theirs: tuple(sorted({*mine, *theirs})[:3])}
    count: int = 0
    examples: tuple[str, ...] = ()

    @classmethod
    def of(cls, cells: "pl.Series") -> "Strays":
        return cls(len(cells), tuple(cells.unique().sort().head(3).to_list()))


def missing_as_null(column: "pl.Series") -> "pl.Series":
    """Text without blanks around it, with nulls for words that mean a missing value and for NaN."""
    if column.dtype.is_float():
        return column.fill_nan(None)
    if column.dtype != pl.String:
        return column
    stripped = column.str.strip_chars()
    return stripped.set(stripped.is_in(MISSING), None)


def numbers_in(column: "pl.Series", *, units: bool = True, decimal: str = "") -> "pl.Series | None":
    """The column as float64 with nulls, or None if some cell is not a number, a code, or of another unit.

    Without `units`, numbers with one are none. The `decimal` sign is that of an earlier table, where it told.
    """
    column = missing_as_null(column)
    if not may_be_numbers(column.dtype):
        return None
    marks = Marks.of(column)
    if not marks.are_one_unit or (marks.units and not units):
        return None
    values = parsed(column)
    if values.null_count() > column.null_count():
        return None
    return parsed(column, decimal or marks.writing(column.name).decimal)


def parsed(column: "pl.Series", decimal: str = "", unit: str | None = None, *, truth: bool = False) -> "pl.Series":
    """The column as float64, null for cells that are no numbers with this decimal sign, or of another `unit`.

    With `truth`, the words true and false are 1 and 0.
    """
    column = missing_as_null(column)
    if column.dtype != pl.String:
        return column.cast(pl.Float64, strict=False)
    values = read_numbers(column, decimal, unit)
    if truth and values.null_count() > column.null_count():
        lower = column.str.to_lowercase()
        values = values.set(lower == "true", 1.0).set(lower == "false", 0.0)
    return values


def are_numbers(numbers: int, cells: int) -> bool:
    """Whether a column of so many cells to learn from, so many of which are numbers, is one of numbers."""
    return numbers == cells or skips_text(numbers, cells)


def skips_text(numbers: int, cells: int) -> bool:
    return numbers >= LEAST_NUMBERS and numbers >= LEAST_SHARE * cells


def as_text(column: "pl.Series") -> "pl.Series":
    """The column as text, with nulls for missing cells; 1.0 is the same as 1, as a gap makes floats of integers."""
    if has_no_text(column.dtype):
        raise TableError(
            f"column {quoted(column.name)} must hold numbers, text or dates, got cells of type {column.dtype}; "
            f"save them as text"
        )
    column = missing_as_null(column)
    text = column if column.dtype == pl.String else column.cast(pl.String)
    return missing_as_null(text.str.replace(r"^(-?\d+)\.0$", "${1}") if column.dtype.is_float() else text)


def has_no_text(dtype: "pl.DataType") -> bool:
    """Whether cells of the type are neither text nor can be written as it: lists, structs, bytes, durations."""
    return dtype.is_nested() or dtype in (pl.Binary, pl.Duration, pl.Object)


def may_be_numbers(dtype: "pl.DataType") -> bool:
    return dtype.is_numeric() or dtype in (pl.Boolean, pl.Null, pl.String)


def not_numbers(name: str, rule: str, cell: str, where: str) -> TableError:
    return TableError(
        f"column {quoted(name)} must hold {rule}, got {cell} in {where}; "
        f"correct the cell, or leave it empty if it is not known"
    )
