"""What the cells of a Polars column hold: numbers, categories, nothing, or something that is none of them.

People write numbers as 1,017.5 and 1.017,5, $ 12, 12 % and (12), which is -12. A cell is a number if it follows one of
two grammars: a decimal point with commas, blanks or apostrophes between thousands, or a decimal comma with points.
"1,017" and "1.017" follow both, and the other cells of the column decide.
"""

from dataclasses import dataclass
from typing import ClassVar

from fracdnn.exceptions import TableError
from fracdnn.tables.late import pl
from fracdnn.tables.summaries import Sums
from fracdnn.tables.words import quoted

# Text that holds no value.
MISSING = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None", "?", "#N/A", "#NA", "<NA>", "-NaN", "-nan")
_UNIT = r"[%‰]|[A-Za-zµμΩ°²³/€$£¥]{1,6}"
_CELL = (
    r"^(?P<before>[+-]?)\s*(?P<money>[$€£¥])?\s*(?P<after>[+-]?)(?P<digits>\d[\d.,'’\s]*|[.,]\d+)"
    rf"(?P<power>e[+-]?\d+)?\s*(?P<unit>{_UNIT})?$"
)
_GROUPED = {".": r"[,'’\s]", ",": r"[.'’\s]"}
_GRAMMAR = {
    decimal: rf"^(\d+|[1-9]\d{{0,2}}(?:{group}\d{{3}})+)?([{decimal}]\d*)?\s*$" for decimal, group in _GROUPED.items()
}
# Amounts that are written with commas between thousands.
_COMMA_IS_THOUSANDS = ("$", "£", "¥")
_THREE_DECIMALS = r"^[+-]?[1-9]\d{0,2}[.]\d{3}$"
# Cells that are one number with a decimal point, another one with a comma.
DIFFERENT = r"^\D*[1-9]\d{0,2}[.,]\d{3}\D*$"
_CODE = r"^0\d+$"
# As accountants write it.
_NEGATIVE = r"^\(([^-+()]+)\)$"


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
    marks = Marks.of(column)
    is_odd = not may_be_numbers(column.dtype) or not marks.are_one_unit or (marks.units and not units)
    if is_odd or parsed(column).null_count() > column.null_count():
        return None
    return parsed(column, decimal or marks.decimal(column.name))


def parsed(column: "pl.Series", decimal: str = "", unit: str | None = None, *, truth: bool = False) -> "pl.Series":
    """The column as float64, null for cells that are no numbers with this decimal sign, or of another `unit`.

    With `truth`, the words true and false are 1 and 0.
    """
    column, decimal = missing_as_null(column), decimal or "."
    values = column.cast(pl.Float64, strict=False)
    if column.dtype != pl.String or (values.null_count() == column.null_count() and decimal == "."):
        return values
    parts = _parts(column)
    first, second = (_as_plain(parts["digits"], each) for each in (decimal, "," if decimal == "." else "."))
    written = parts["sign"] + first.zip_with(first.is_not_null(), second) + parts["power"]
    found = written.cast(pl.Float64, strict=False)
    if unit is not None:
        found = found.set((parts["unit"] != unit).fill_null(False), None)
    same = values.is_not_null() & ~column.str.contains(_THREE_DECIMALS).fill_null(False)
    found = values.zip_with(same, found)
    if truth and found.null_count() > column.null_count():
        lower = column.str.to_lowercase()
        found = found.set(lower == "true", 1.0).set(lower == "false", 0.0)
    return found


def as_text(column: "pl.Series") -> "pl.Series":
    """The column as text, with nulls for missing cells; 1.0 is the same as 1, as a gap makes floats of integers."""
    if has_no_text(column.dtype):
        raise TableError(
            f"column {quoted(column.name)} must hold numbers, text or dates, got cells of type {column.dtype}; "
            f"save them as text"
        )
    text = column.cast(pl.String)
    return missing_as_null(text.str.replace(r"^(-?\d+)\.0$", "${1}") if column.dtype.is_float() else text)


def has_no_text(dtype: "pl.DataType") -> bool:
    """Whether cells of the type are neither text nor can be written as it: lists, structs, bytes, durations."""
    return dtype.is_nested() or dtype in (pl.Binary, pl.Duration, pl.Object)


def may_be_numbers(dtype: "pl.DataType") -> bool:
    return dtype.is_numeric() or dtype in (pl.Boolean, pl.Null, pl.String)


@dataclass(frozen=True)
class Marks(Sums):
    """What tells how numbers are written: cells that only a decimal point or only a decimal comma explains, of the
    first those with a comma, those with a comma that may be either and the first of them, units, cells without one,
    and cells such as 007, which are codes.
    """

    ways: ClassVar = {
        "first": lambda mine, theirs: mine or theirs,
        "units": lambda mine, theirs: tuple(sorted({*mine, *theirs})[:4]),
    }
    points: int = 0
    commas: int = 0
    thousands: int = 0
    unclear: int = 0
    first: str = ""
    units: tuple[str, ...] = ()
    bare: int = 0
    codes: int = 0

    @classmethod
    def of(cls, column: "pl.Series") -> "Marks":
        """Of cells without blanks around them; those that are no numbers do not count."""
        if column.dtype != pl.String or not len(column):
            return cls()
        column = column.drop_nulls()
        codes = int(column.str.contains(_CODE).sum())
        bare = int(column.str.contains(r"^[+-]?[\d.,]+$").sum())
        odd = column.filter(column.str.contains(r"^\(|[,$€£¥%‰\s'’]|[.].*[.]|\d[A-Za-zµμΩ°]"))
        plain = column.str.contains(r"^[+-]?\d*[.]\d*$") & ~column.str.contains(_THREE_DECIMALS)
        points = int(plain.sum())
        if not len(odd):
            return cls(points=points, bare=bare, codes=codes)
        parts = _parts(odd)
        digits, unit = parts["digits"], parts["unit"]
        point, comma, marked, has_comma = (
            digits.str.contains(form).fill_null(False) for form in (*_GRAMMAR.values(), "[.,]", ",")
        )
        unclear = odd.filter(point & comma & has_comma)
        units = unit.filter(point | comma).drop_nulls().unique().sort().head(4).to_list()
        points += int((point & ~comma & marked).sum())
        counts = points, int((comma & ~point).sum()), int((point & ~comma & has_comma).sum()), len(unclear)
        return cls(*counts, unclear[0] if len(unclear) else "", tuple(units), bare, codes)

    @property
    def are_one_unit(self) -> bool:
        """Whether the numbers are of one kind: no codes, one unit at most, and a percent sign at all or none."""
        return not self.codes and len(self.units) < 2 and not (self.units in (("%",), ("‰",)) and self.bare)

    @property
    def unit(self) -> str:
        """That may stand beside numbers of one kind."""
        return self.units[0] if self.units else ""

    def decimal(self, name: str, decimal: str = "") -> str:
        """The decimal sign, nothing where no comma has told it.

        The column of that name must be clear about its commas where no `decimal` sign is given.
        """
        is_unclear = self.unclear and self.points == self.commas and self.unit not in _COMMA_IS_THOUSANDS
        if is_unclear and not decimal:
            raise TableError(
                f"column {quoted(name)} must be clear about its commas, got {quoted(self.first)}, which may be a "
                f"thousand times more or less; write numbers with a decimal point and without separators, or say which "
                f"it is: fracdnn train --decimal , or --decimal ."
            )
        if self.commas > self.points or (is_unclear and decimal == ","):
            return ","
        return "." if self.thousands or self.unclear else ""


def _parts(column: "pl.Series") -> "pl.DataFrame":
    """Sign, digits with separators, power of ten and unit of each cell; null where a cell has another form."""
    written = column.str.replace_all("−", "-", literal=True).str.replace(_NEGATIVE, "-$1")
    is_negative = (pl.col("before") == "-") != (pl.col("after") == "-")
    sign = pl.when(is_negative).then(pl.lit("-")).otherwise(pl.lit(""))
    others = {"power": pl.col("power").fill_null(""), "unit": pl.coalesce("money", "unit")}
    return written.str.extract_groups(_CELL).struct.unnest().select("digits", sign=sign, **others)


def _as_plain(digits: "pl.Series", decimal: str) -> "pl.Series":
    """Digits with a decimal point and nothing else, null where the grammar of the decimal sign does not allow them."""
    kept = digits.set(~digits.str.contains(_GRAMMAR[decimal]).fill_null(False), None)
    return kept.str.replace_all(_GROUPED[decimal], "").str.replace(decimal, ".", literal=True)
