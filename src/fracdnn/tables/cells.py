"""Reading of cells: as numbers, as text, or as missing.

People write numbers as 1,017.5 and 1.017,5, $ 12, 12 % and (12), which is -12. A cell is a number if it follows one of
two grammars: a decimal point with commas, blanks or apostrophes between thousands, or a decimal comma with points.
"1,017" and "1.017" follow both, and the other cells of the column decide.
"""

from dataclasses import dataclass

from fracdnn.exceptions import TableError
from fracdnn.tables.late import pl
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
# Amounts in these currencies are written with commas between thousands.
_COMMA_IS_THOUSANDS = ("$", "£", "¥")
_THREE_DECIMALS = r"^[+-]?[1-9]\d{0,2}[.]\d{3}$"
_CODE = r"^0\d+$"
# Accountants write negative numbers in parentheses.
_NEGATIVE = r"^\(([^-+()]+)\)$"


@dataclass(frozen=True)
class Strays:
    """Cells of another kind than their column: their number, and up to three examples in alphabetical order."""

    count: int = 0
    examples: tuple[str, ...] = ()

    @classmethod
    def of(cls, cells: "pl.Series") -> "Strays":
        """Count these cells."""
        return cls(len(cells), tuple(cells.unique().sort().head(3).to_list()))

    def merged(self, other: "Strays") -> "Strays":
        """Return the strays of two parts of a table together."""
        return Strays(self.count + other.count, tuple(sorted({*self.examples, *other.examples})[:3]))


def missing_as_null(column: "pl.Series") -> "pl.Series":
    """Return text without blanks around it, with nulls for NaN and for words that mean a missing value."""
    if column.dtype.is_float():
        return column.fill_nan(None)
    if column.dtype != pl.String:
        return column
    stripped = column.str.strip_chars()
    return stripped.set(stripped.is_in(MISSING), None)


def as_text(column: "pl.Series") -> "pl.Series":
    """Return the column as text with nulls; 1.0 becomes 1, as a missing value makes floats of integers."""
    if has_no_text(column.dtype):
        raise TableError(
            f"column {quoted(column.name)} must hold numbers, text or dates, got cells of type {column.dtype}; "
            f"save them as text"
        )
    text = column.cast(pl.String)
    return missing_as_null(text.str.replace(r"^(-?\d+)\.0$", "${1}") if column.dtype.is_float() else text)


def has_no_text(dtype: "pl.DataType") -> bool:
    """Return True for types that cannot be written as text: lists, structs, bytes, durations."""
    return dtype.is_nested() or dtype in (pl.Binary, pl.Duration, pl.Object)


def may_be_numbers(dtype: "pl.DataType") -> bool:
    """Return True for types whose cells may all be numbers."""
    return dtype.is_numeric() or dtype in (pl.Boolean, pl.Null, pl.String)


def numbers_in(column: "pl.Series", *, units: bool = True, decimal: str = "") -> "pl.Series | None":
    """Return the column as float64 with nulls, or None if some cell is not a number, a code, or of another unit.

    Without `units`, cells with a unit are not numbers. `decimal` is the sign where the cells do not tell it.
    """
    column = missing_as_null(column)
    marks = Marks.of(column)
    is_odd = not may_be_numbers(column.dtype) or not marks.are_one_unit or (marks.units and not units)
    if is_odd or parsed(column).null_count() > column.null_count():
        return None
    return parsed(column, marks.decimal(column.name, decimal) or decimal)


def parsed(column: "pl.Series", decimal: str = "", unit: str | None = None, *, truth: bool = False) -> "pl.Series":
    """Return the column as float64, null for cells that are not numbers with this decimal sign, or of another `unit`.

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
    is_plain = values.is_not_null() & ~column.str.contains(_THREE_DECIMALS).fill_null(False)
    found = values.zip_with(is_plain, found)
    if truth and found.null_count() > column.null_count():
        lower = column.str.to_lowercase()
        found = found.set(lower == "true", 1.0).set(lower == "false", 0.0)
    return found


@dataclass(frozen=True)
class Marks:
    """Evidence on how the numbers of a column are written, as numbers of cells.

    `points` and `commas`: cells that only a decimal point, or only a decimal comma explains; `thousands`: the first of
    these with a comma; `unclear`: cells whose comma may be either, and the `first` of them. `bare`: cells without a
    unit. `codes`: cells such as 007.
    """

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
        """Look at cells without blanks around them; those that are not numbers do not count."""
        if column.dtype != pl.String or not len(column):
            return cls()
        column = column.drop_nulls()
        codes, bare = (int(column.str.contains(form).sum()) for form in (_CODE, r"^[+-]?[\d.,]+$"))
        plain = column.str.contains(r"^[+-]?\d*[.]\d*$") & ~column.str.contains(_THREE_DECIMALS)
        odd = column.filter(column.str.contains(r"^\(|[,$€£¥%‰\s'’]|[.].*[.]|\d[A-Za-zµμΩ°]"))
        if not len(odd):
            return cls(points=int(plain.sum()), bare=bare, codes=codes)
        parts = _parts(odd)
        point, comma, marked, has_comma = (
            parts["digits"].str.contains(form).fill_null(False) for form in (*_GRAMMAR.values(), "[.,]", ",")
        )
        unclear = odd.filter(point & comma & has_comma)
        units = parts["unit"].filter(point | comma).drop_nulls().unique().sort().head(4).to_list()
        return cls(
            points=int(plain.sum()) + int((point & ~comma & marked).sum()),
            commas=int((comma & ~point).sum()),
            thousands=int((point & ~comma & has_comma).sum()),
            unclear=len(unclear),
            first=unclear[0] if len(unclear) else "",
            units=tuple(units),
            bare=bare,
            codes=codes,
        )

    @property
    def are_one_unit(self) -> bool:
        """True if the numbers are of one kind: no codes, at most one unit, and percent signs everywhere or nowhere."""
        return not self.codes and len(self.units) < 2 and not (self.units in (("%",), ("‰",)) and self.bare)

    @property
    def unit(self) -> str:
        """The unit of numbers of one kind, or nothing."""
        return self.units[0] if self.units else ""

    def decimal(self, name: str, decimal: str = "") -> str:
        """Return the decimal sign, or nothing if no cell has a comma.

        If the commas of the column of that name do not tell, `decimal` does; without it, raise an error.
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
    """Return sign, digits with separators, power of ten and unit of each cell; null for cells of another form."""
    written = column.str.replace_all("−", "-", literal=True).str.replace(_NEGATIVE, "-$1")
    is_negative = (pl.col("before") == "-") != (pl.col("after") == "-")
    sign = pl.when(is_negative).then(pl.lit("-")).otherwise(pl.lit(""))
    others = {"power": pl.col("power").fill_null(""), "unit": pl.coalesce("money", "unit")}
    return written.str.extract_groups(_CELL).struct.unnest().select("digits", sign=sign, **others)


def _as_plain(digits: "pl.Series", decimal: str) -> "pl.Series":
    """Return digits with a decimal point and nothing else, null where the grammar of the decimal sign forbids them."""
    kept = digits.set(~digits.str.contains(_GRAMMAR[decimal]).fill_null(False), None)
    return kept.str.replace_all(_GROUPED[decimal], "").str.replace(decimal, ".", literal=True)
