"""What the cells of a Polars column hold: numbers, categories, nothing, or something that is none of them."""

from dataclasses import dataclass

from fracdnn.columns.late import pl
from fracdnn.columns.words import quoted
from fracdnn.exceptions import TableError

# Text that holds no value.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?", "#N/A", "#NA", "<NA>", "-NaN", "-nan")
# Where so many cells to learn from are numbers, and such a share of them, the others are taken as missing.
LEAST_NUMBERS, LEAST_SHARE = 20, 0.95
# A comma that may separate thousands as well as decimals.
_THOUSANDS = r"^[+-]?\d{1,3},\d{3}$"


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


@dataclass(frozen=True)
class Commas:
    """Of cells with a comma in place of the point: the first, how many, and how many may mean thousands."""

    first: str = ""
    count: int = 0
    ambiguous: int = 0

    @classmethod
    def of(cls, column: "pl.Series") -> "Commas":
        if column.dtype != pl.String:
            return cls()
        cells = column.filter(column.str.contains(",", literal=True))
        return cls(cells[0], len(cells), int(cells.str.contains(_THOUSANDS).sum())) if len(cells) else cls()

    def merged(self, other: "Commas") -> "Commas":
        return Commas(self.first or other.first, self.count + other.count, self.ambiguous + other.ambiguous)

    def check(self, name: str) -> None:
        """Of the whole column: a part of it may be unclear."""
        if self.count and self.count == self.ambiguous:
            raise TableError(
                f"column {quoted(name)} must be clear about its commas, got {quoted(self.first)}, which may be a "
                f"thousand times more or less; write numbers with a decimal point and without separators"
            )


def missing_as_null(column: "pl.Series") -> "pl.Series":
    """Text without blanks around it, with nulls for words that mean a missing value and for NaN."""
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
    if values.null_count() > column.null_count():
        return None
    Commas.of(column).check(column.name)
    return values


def parsed(column: "pl.Series", *, truth: bool = False) -> "pl.Series":
    """The column as float64, with nulls also for cells that are no numbers; a comma may stand for the point.

    With `truth`, the words true and false are 1 and 0.
    """
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


def is_usable(dtype: "pl.DataType") -> bool:
    """Whether a column of the type may be numbers, categories or dates."""
    return not (dtype == pl.Time or has_no_text(dtype))


def may_be_numbers(dtype: "pl.DataType") -> bool:
    return dtype.is_numeric() or dtype in (pl.Boolean, pl.Null, pl.String)


def not_numbers(name: str, rule: str, cell: str, where: str) -> TableError:
    """What is raised where a column of numbers holds something else."""
    return TableError(
        f"column {quoted(name)} must hold {rule}, got {cell} in {where}; "
        f"correct the cell, or leave it empty if it is not known"
    )
