"""Dates as numbers: days, and where they vary month, weekday (Monday is 1) and hour; other cells are missing.

A date is one of Polars's types or text as ISO 8601 has it: 2024-05-31, 2024-05-31 17:45, 2024-05-31T17:45:30.5+02:00.
The clock is that of the cell's own zone, to the second. Two other orders take the same, and the day first (31.5.2024,
31/05/24) or the month first (5/31/2024 5:45 PM); "clock" takes times of day (17:45, 5:45:30 PM) as those of
1970-01-01. The whole column decides on its order.
"""

from datetime import date, datetime, timedelta

import numpy as np

from fracdnn.exceptions import TableError
from fracdnn.tables.cells import missing_as_null
from fracdnn.tables.late import pl
from fracdnn.tables.words import quoted

PARTS = ("days", "month", "weekday", "hour")
SECONDS_PER_DAY = 86_400
_FORMS = {
    "ymd": r"^(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})",
    "dmy": r"^(?P<day>\d{1,2})[./-](?P<month>\d{1,2})[./-](?P<year>\d{4}|\d{2})",
    "mdy": r"^(?P<month>\d{1,2})[/-](?P<day>\d{1,2})[/-](?P<year>\d{4}|\d{2})",
}
_CLOCK = (
    r"(?:[T ]+(?P<clock>\d{1,2}:\d{2})(?P<seconds>:\d{2})?(?:[.,]\d+)?(?: ?(?P<half>[AaPp])[Mm])?"
    r"(?:Z|[+-]\d{2}(?::?\d{2})?)?)?$"
)
ORDERS = (*_FORMS, "clock")
_EPOCH = date(1970, 1, 1)
# Seconds since 1970 that Python's dates, and so model files, can name.
_LEAST, _MOST = (round((end - datetime(1970, 1, 1)).total_seconds()) for end in (datetime.min, datetime.max))


def orders_of(dtype: "pl.DataType") -> tuple[str, ...]:
    """Return the orders in which cells of the type may be dates."""
    if dtype == pl.String:
        return ORDERS
    return ("ymd",) if dtype in (pl.Date, pl.Datetime) else ("clock",) if dtype == pl.Time else ()


def seconds_in(column: "pl.Series", name: str = "", order: str = ORDERS[0]) -> "pl.Series":
    """Return whole seconds since 1970, null for cells that are not dates; messages call the column by `name`."""
    column = missing_as_null(column.cast(pl.String) if column.dtype in (pl.Categorical, pl.Enum, pl.Time) else column)
    if column.null_count() == len(column):
        return pl.Series(column.name, [None] * len(column), dtype=pl.Int64)
    if column.dtype == pl.String:
        moments = _moments(f"{_EPOCH} " + column if order == "clock" else column, "ymd")
        if order in ("dmy", "mdy"):
            moments = moments.zip_with(moments.is_not_null(), _moments(column, order))
    elif column.dtype in (pl.Date, pl.Datetime):
        moments = column.cast(pl.Datetime) if column.dtype != pl.Datetime else column.dt.replace_time_zone(None)
    else:
        what = "times such as 17:45" if order == "clock" else "dates such as 2024-05-31"
        raise TableError(
            f"column {quoted(name or column.name)} must hold {what}, got cells of type {column.dtype}; "
            f"save them as {what.split()[0]} or as text"
        )
    found = moments.dt.epoch("s")
    return found.set(~found.is_between(_LEAST, _MOST - 1), None)


def _moments(column: "pl.Series", order: str) -> "pl.Series":
    """Return dates written in this order; a year of two digits is 1970 to 2069."""
    parts = column.str.extract_groups(_FORMS[order] + _CLOCK).struct.unnest()
    year = pl.col("year").str.replace(r"^([7-9]\d)$", "19${1}").str.replace(r"^(\d\d)$", "20${1}")
    clock = pl.col("clock").fill_null("00:00") + pl.col("seconds").fill_null(":00")
    whole = parts.select(year + "-" + pl.col("month") + "-" + pl.col("day") + " " + clock).to_series()
    moments, half = whole.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False), parts["half"]
    if half.null_count() == len(half):
        return moments
    return moments.zip_with(half.is_null(), (whole + half + "m").str.to_datetime("%Y-%m-%d %I:%M:%S%p", strict=False))


def parts_of(seconds: "pl.Series") -> np.ndarray:
    """Return the `PARTS` of each date [n, 4], days since 1970; NaN for nulls."""
    moments = pl.from_epoch(seconds, time_unit="s")
    columns = (seconds / SECONDS_PER_DAY, moments.dt.month(), moments.dt.weekday(), moments.dt.hour())
    return np.column_stack([each.cast(pl.Float64).to_numpy() for each in columns])


def date_features(seconds: "pl.Series", first: str, median: float, parts: tuple[str, ...]) -> np.ndarray:
    """Return the `parts` of dates [n, len(parts)], days since `first`; a missing date is `median` days after it."""
    begin = days_of(first)
    values = parts_of(seconds.fill_null(round((begin + median) * SECONDS_PER_DAY)))
    values[:, 0] -= begin
    return values[:, [PARTS.index(part) for part in parts]]


def days_of(first: str) -> int:
    """Return the days from 1970 to a date."""
    return (date.fromisoformat(first) - _EPOCH).days


def date_of(days: float) -> str:
    """Return the date so many days after 1970, rounded down."""
    return (_EPOCH + timedelta(days=int(np.floor(days)))).isoformat()
