"""Tables that are passed in Python, as Polars frames: frames of pandas, arrays and lists of objects.

pandas is not imported here: the caller who passes a frame has done so. Polars is, if a column is not all numbers.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import date, time
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from fracdnn.exceptions import InvalidTypeError
from fracdnn.extras import require
from fracdnn.tables.cells import as_text, has_no_text
from fracdnn.tables.late import pl
from fracdnn.tables.words import check_unique

_NUMBERS = "iufb"


def as_table(X: Any) -> Any:
    """Return a Polars frame; return X as it is if it is all numbers, or nothing that has columns."""
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(X, pandas.DataFrame):
        check_unique([str(name) for name in X.columns], "X")
        return X if all(dtype.kind in _NUMBERS for dtype in X.dtypes) else as_polars(X)
    if polars is not None and isinstance(X, polars.DataFrame):
        plain = all(dtype.is_numeric() or dtype in (polars.Boolean, polars.Null) for dtype in X.dtypes)
        return X if plain else polars.DataFrame([_checked(column) for column in X.iter_columns()])
    if isinstance(X, list | tuple):
        X = np.asarray(X) if np.asarray(X).dtype.kind != "U" else np.array(X, dtype=object)
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "OU" or X.ndim != 2:
        return X
    with suppress(TypeError, ValueError):  # scikit-learn takes arrays of numbers as text, too
        X.astype(np.float64)
        return X
    require("polars")
    return pl.DataFrame([_objects(f"x{j}", column) for j, column in enumerate(X.T.tolist())])


def as_polars(table: Any, names: Sequence[str] | None = None) -> "pl.DataFrame":
    """Return a Polars frame of whatever Polars or pandas takes; of pandas, only the columns in `names`."""
    require("polars")
    if isinstance(table, pl.DataFrame):
        return table
    if not (hasattr(table, "columns") and hasattr(table, "iloc")):
        return pl.DataFrame(table)
    check_unique([str(name) for name in table.columns], "the frame")
    columns = [(str(name), table.iloc[:, j]) for j, name in enumerate(table.columns)]
    return pl.DataFrame([_of_pandas(name, column) for name, column in columns if names is None or name in names])


def with_categories(table: "pl.DataFrame", names: Sequence[str]) -> "pl.DataFrame":
    """Return the table with these columns as categories; columns that cannot be text stay as they are."""
    columns = [table[name] for name in names if name in table.columns and not has_no_text(table.schema[name])]
    return table.with_columns(as_text(column).cast(pl.Categorical) for column in columns)


def _of_pandas(name: str, column: Any) -> "pl.Series":
    """Return a column of pandas."""
    dtype = column.dtype
    if hasattr(column, "cat"):
        codes = pl.Series(column.cat.codes.tolist(), dtype=pl.Int64)
        words = as_text(_objects(name, column.cat.categories.tolist(), str))
        return words.gather(codes.set(codes < 0, None)).cast(pl.Categorical)
    if dtype.kind == "M":
        return pl.Series(name, column.dt.tz_localize(None).to_numpy().astype("datetime64[us]"))
    if dtype.kind in "OU":
        return _objects(name, column.tolist())
    if dtype.kind not in _NUMBERS:
        raise _refused(name, dtype)
    return pl.Series(name, column.to_numpy(dtype=np.float64, na_value=np.nan))


def _objects(name: str, cells: Sequence[Any], other: Any = None) -> "pl.Series":
    """Return numbers, or text if a cell is text, a date or a time; with `other`, cells of other types become text."""
    cells = [None if _is_missing(cell) else cell for cell in cells]
    kinds = dict.fromkeys(type(cell) for cell in cells if cell is not None)
    odd = [kind for kind in kinds if not issubclass(kind, str | date | time | Real | Decimal | np.bool_)]
    if odd and other is None:
        raise _refused(name, odd[0].__name__)
    if odd or any(issubclass(kind, str | date | time) for kind in kinds):
        return pl.Series(name, [None if cell is None else _text(cell) for cell in cells], dtype=pl.String)
    return pl.Series(name, [None if cell is None else float(cell) for cell in cells], dtype=pl.Float64)


def _text(cell: Any) -> str:
    """Return a cell as text, whole numbers without a decimal point."""
    is_number = isinstance(cell, Real | Decimal) and not isinstance(cell, bool)
    return str(int(cell)) if is_number and cell == int(cell) else str(cell)


def _checked(column: "pl.Series") -> "pl.Series":
    """Return a column of numbers, text or dates."""
    if column.dtype == pl.Object:
        return _objects(column.name, column.to_list())
    if has_no_text(column.dtype):
        raise _refused(column.name, column.dtype)
    return column


def _refused(name: str, got: Any) -> InvalidTypeError:
    """Return the error for a column of another type."""
    return InvalidTypeError(
        f"column {name!r} of X must hold numbers, text, categories, booleans, dates or times of day, got {got}; "
        f"leave the column out, or make numbers of it first"
    )


def _is_missing(cell: Any) -> bool:
    """Return True for None, NaN, and pandas's NA and NaT."""
    is_number = isinstance(cell, Real | Decimal)
    return cell is None or (bool(cell != cell) if is_number else type(cell).__name__ in ("NAType", "NaTType"))
