"""What the cells of a Polars column hold: numbers, categories, nothing, or something that is none of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fracdnn.columns.words import quoted
from fracdnn.exceptions import TableError

if TYPE_CHECKING:
    import polars as pl

# Text that holds no value.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?", "#N/A", "#NA", "<NA>", "-NaN", "-nan")
# Where so many cells to learn from are numbers, and such a share of them, the others are taken as missing.
LEAST_NUMBERS, LEAST_SHARE = 20, 0.95


@dataclass(frozen=True)
class Strays:
    """Cells that are no numbers in a column of numbers: how many, and the first different ones by the alphabet."""

    count: int = 0
    examples: tuple[str, ...] = ()

    @classmethod
    def of(cls, cells: "pl.Series") -> "Strays":
        return cls(len(cells), tuple(cells.unique().sort().head(3).to_list()))

    def merged(self, other: "Strays") -> "Strays":
        return Strays(self.count + other.count, tuple(sorted({*self.examples, *other.examples})[:3]))

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Strays":
        return cls(document["count"], tuple(document["examples"]))


def missing_as_null(column: "pl.Series") -> "pl.Series":
    """Text without blanks around it, with nulls for words that mean a missing value and for NaN."""
    import polars as pl

    if column.dtype.is_float():
        return column.fill_nan(None)
    if column.dtype != pl.String:
        return column
    stripped = column.str.strip_chars()
    return stripped.set(stripped.is_in(MISSING), None)


def numbers_in(column: "pl.Series") -> "pl.Series | None":
    """The column as float64 with nulls, or None if some cell is not a number; a comma may stand for the point."""
    column = missing_as_null(column)
    if not may_be_numbers(column.dtype):
        return None
    values = parsed(column)
    return None if values.null_count() > column.null_count() else with_clear_commas(column, values)


def with_clear_commas(column: "pl.Series", values: "pl.Series") -> "pl.Series":
    """The values that were made of the column's text; a comma in it must not be one of thousands."""
    import polars as pl

    if column.dtype == pl.String:
        with_comma = column.filter(column.str.contains(",", literal=True) & values.is_not_null())
        if len(with_comma):
            check_commas(column.name, with_comma[0], bool(is_ambiguous(with_comma).all()))
    return values


def parsed(column: "pl.Series", *, truth: bool = False) -> "pl.Series":
    """The column as float64, with nulls also for cells that are no numbers; a comma may stand for the point.

    With `truth`, the words true and false are 1 and 0.
    """
    import polars as pl

    column = missing_as_null(column)
    if column.dtype != pl.String:
        return column.cast(pl.Float64, strict=False)
    values = column.cast(pl.Float64, strict=False)
    if values.null_count() == column.null_count():
        return values
    values = column.str.replace(",", ".", literal=True).cast(pl.Float64, strict=False)
    if truth and values.null_count() > column.null_count():
        lower = column.str.to_lowercase()
        values = values.set(lower == "true", 1.0).set(lower == "false", 0.0)
    return values


def is_ambiguous(with_comma: "pl.Series") -> "pl.Series":
    """Whether a comma may separate thousands as well as decimals."""
    return with_comma.str.contains(r"^[+-]?\d{1,3},\d{3}$")


def check_commas(name: str, cell: str, all_ambiguous: bool) -> None:
    if all_ambiguous:
        raise TableError(
            f"column {quoted(name)} must be clear about its commas, got {quoted(cell)}, which may be a "
            f"thousand times more or less; write numbers with a decimal point and without separators"
        )


def are_numbers(numbers: int, cells: int) -> bool:
    """Whether a column of so many cells to learn from, so many of which are numbers, is one of numbers."""
    return numbers == cells or skips_text(numbers, cells)


def skips_text(numbers: int, cells: int) -> bool:
    return numbers >= LEAST_NUMBERS and numbers >= LEAST_SHARE * cells


def as_text(column: "pl.Series") -> "pl.Series":
    """The column as text, with nulls for missing cells; 1.0 is the same as 1, as a gap makes floats of integers."""
    import polars as pl

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
    import polars as pl

    return dtype.is_nested() or dtype in (pl.Binary, pl.Duration, pl.Object)


def is_usable(dtype: "pl.DataType") -> bool:
    """Whether a column of the type may be numbers, categories or dates."""
    import polars as pl

    return not (dtype == pl.Time or has_no_text(dtype))


def may_be_numbers(dtype: "pl.DataType") -> bool:
    import polars as pl

    return dtype.is_numeric() or dtype in (pl.Boolean, pl.Null, pl.String)
