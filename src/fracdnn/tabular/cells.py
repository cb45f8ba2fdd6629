"""What cells hold: numbers, categories, nothing, or something that is none of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fracdnn.exceptions import TableError
from fracdnn.tabular.reading import MISSING
from fracdnn.tabular.words import quoted

if TYPE_CHECKING:
    import polars as pl

# The category that stands for an empty cell.
NOTHING = "(missing)"
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


def missing_as_null(column: "pl.Series") -> "pl.Series":
    """Text without blanks around it, the words for a missing value as nulls; other columns as they are."""
    import polars as pl

    if column.dtype != pl.String:
        return column
    stripped = column.str.strip_chars()
    return stripped.set(stripped.is_in(MISSING), None)


def numbers_in(column: "pl.Series") -> "pl.Series | None":
    """The column as float64 with nulls, or None if some cell is not a number; a comma may stand for the point."""
    import polars as pl

    column = missing_as_null(column)
    if column.dtype == pl.Null:
        return column.cast(pl.Float64)
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return column.cast(pl.Float64)
    if column.dtype != pl.String:
        return None
    values = column.cast(pl.Float64, strict=False)
    if values.null_count() == column.null_count():
        return values
    values = parsed(column)
    return None if values.null_count() > column.null_count() else _with_clear_commas(column, values)


def numbers_among(column: "pl.Series") -> "pl.Series":
    """The numbers of a column of text, with nulls for other cells."""
    column = missing_as_null(column)
    return _with_clear_commas(column, parsed(column))


def _with_clear_commas(column: "pl.Series", values: "pl.Series") -> "pl.Series":
    with_comma = column.filter(column.str.contains(",", literal=True) & values.is_not_null())
    if len(with_comma):
        check_commas(column.name, with_comma[0], bool(is_ambiguous(with_comma).all()))
    return values


def parsed(column: "pl.Series") -> "pl.Series":
    """The column as float64, with nulls also for cells that are no numbers; a comma may stand for the point."""
    import polars as pl

    column = missing_as_null(column)
    if column.dtype == pl.String:
        column = column.str.replace(",", ".", literal=True)
    return column.cast(pl.Float64, strict=False)


def is_ambiguous(with_comma: "pl.Series") -> "pl.Series":
    """Whether a comma may separate thousands as well as decimals."""
    return with_comma.str.contains(r"^[+-]?\d{1,3},\d{3}$")


def check_commas(name: str, cell: str, all_ambiguous: bool) -> None:
    if all_ambiguous:
        raise TableError(
            f"column {quoted(name)} must be clear about its commas, got {quoted(cell)}, which may be a "
            f"thousand times more or less; write numbers with a decimal point and without separators"
        )


def strays_in(column: "pl.Series") -> "pl.Series":
    """The cells that hold something, but no number."""
    import polars as pl

    column = missing_as_null(column)
    if column.dtype != pl.String:
        return pl.Series(column.name, [], dtype=pl.String)
    return column.filter(column.is_not_null() & parsed(column).is_null())


def are_numbers(numbers: int, cells: int) -> bool:
    """Whether a column of so many cells to learn from, so many of which are numbers, is one of numbers."""
    return numbers == cells or skips_text(numbers, cells)


def skips_text(numbers: int, cells: int) -> bool:
    return numbers >= LEAST_NUMBERS and numbers >= LEAST_SHARE * cells


def as_categories(column: "pl.Series") -> "pl.Series":
    """The column as text, with a word for empty cells."""
    import polars as pl

    if has_no_text(column.dtype):
        raise TableError(
            f"column {quoted(column.name)} must hold categories, got cells of type {column.dtype}; save them as text"
        )
    text = missing_as_null(column if column.dtype == pl.String else column.cast(pl.String))
    return text.fill_null(NOTHING)


def has_no_text(dtype: "pl.DataType") -> bool:
    """Whether cells of the type are neither text nor can be written as it: lists, structs, bytes, durations."""
    import polars as pl

    return dtype.is_nested() or dtype in (pl.Binary, pl.Duration, pl.Object)


def is_usable(dtype: "pl.DataType") -> bool:
    """Whether a column of the type may be numbers, categories or dates."""
    import polars as pl

    return not (dtype == pl.Time or has_no_text(dtype))
