"""A table's cells as numbers: frames of pandas and Polars with columns of text, arrays of objects, arrays as they are.

Neither pandas nor Polars is imported here: whoever hands in a frame has done so.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_X_y, validate_data

from fracdnn.estimators.samples import dense
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError

_NUMBERS = "iufbc"


@dataclass(frozen=True)
class Cells:
    """Numbers [n, n_columns] in float64, NaN where a cell is missing.

    The numbers of a column in `texts` are places in its list of different texts.
    """

    numbers: Any
    texts: dict[int, list[str]]

    def __len__(self) -> int:
        return self.numbers.shape[0]

    def rows(self, which: Any) -> "Cells":
        """Some of the rows, with the zeros of a sparse matrix."""
        return Cells(dense(self.numbers[which]), self.texts)

    def numbers_of(self, column: int, name: str) -> np.ndarray:
        """The column as numbers [n]; text that is none is an error."""
        values = self.numbers[:, column]
        if column not in self.texts:
            return values
        read = np.array([_number(text) for text in self.texts[column]], dtype=object)
        good = np.array([number is not None for number in read])
        known = np.flatnonzero(~np.isnan(values))
        places = values[known].astype(np.int64)
        bad = known[~good[places]]
        if len(bad):
            text = self.texts[column][int(values[bad[0]])]
            raise InvalidArgumentError(
                f"column {name!r} of X must hold finite numbers as in fit, got {text[:40]!r} in row {bad[0]} "
                f"(the first is 0); correct the cell, or leave it missing"
            )
        found = np.full(len(values), np.nan)
        found[known] = read[places].astype(np.float64)
        return found

    def texts_of(self, column: int) -> tuple[np.ndarray, list[str]]:
        """The column as places [n] in a list of different texts, NaN where a cell is missing."""
        values = self.numbers[:, column]
        if column in self.texts:
            return values, self.texts[column]
        known = ~np.isnan(values)
        different, which = np.unique(values[known], return_inverse=True)
        places = np.full(len(values), np.nan)
        places[known] = which
        return places, [_text(value) for value in different.tolist()]


def checked_cells(
    estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool, **options: Any
) -> tuple[Cells, np.ndarray]:
    """X, and y where it is given, as scikit-learn wants them; cells may be missing, and numbers must be finite."""
    options = {"dtype": np.float64, "accept_sparse": "csr", "ensure_all_finite": "allow-nan", **options}
    alone = isinstance(y, str)
    X, columns = _columns(X)
    if columns is None:
        found = validate_data(estimator, X, y, reset=reset, **options)
        X, y = (found, y) if alone else found
        return Cells(X, {}), y
    validate_data(estimator, X, reset=reset, skip_check_array=True)  # names and number of columns
    coded = [_coded(column, name) for name, column in columns]
    numbers = np.column_stack([values for values, _ in coded])
    if alone:
        numbers = check_array(numbers, estimator=estimator, input_name="X", **options)
    else:
        numbers, y = check_X_y(numbers, y, estimator=estimator, **options)
    return Cells(numbers, {j: texts for j, (_, texts) in enumerate(coded) if texts}), y


def _columns(X: Any) -> tuple[Any, list[tuple[str, Any]] | None]:
    """X, and its columns with their names, each an array of numbers or a list of cells, None for a missing one.

    No columns where all of X is numbers, which are scikit-learn's to check.
    """
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(X, pandas.DataFrame):
        if not X.columns.is_unique:
            name = X.columns[X.columns.duplicated()][0]
            n = int((X.columns == name).sum())
            raise InvalidArgumentError(f"X must have each column once, got {name!r} {n} times; rename or remove one")
        if all(dtype.kind in _NUMBERS for dtype in X.dtypes):
            return X, None
        return X, [(repr(name), _pandas_column(X.iloc[:, j], name, pandas)) for j, name in enumerate(X.columns)]
    if polars is not None and isinstance(X, polars.DataFrame):
        if all(_polars_number(dtype, polars) for dtype in X.dtypes):
            return X, None
        return X, [(repr(column.name), _polars_column(column, polars)) for column in X.get_columns()]
    if isinstance(X, list | tuple):
        X = np.asarray(X) if np.asarray(X).dtype.kind != "U" else np.array(X, dtype=object)
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "OU" or X.ndim != 2 or _floats(X) is not None:
        return X, None
    columns = [[None if _missing(cell) else cell for cell in column] for column in X.T.tolist()]
    return X, [(f"'x{j}'", column if (read := _floats(column)) is None else read) for j, column in enumerate(columns)]


def _pandas_column(column: Any, name: Any, pandas: Any) -> Any:
    dtype = column.dtype
    if isinstance(dtype, pandas.CategoricalDtype):
        words = [_text(value) if _is_plain(value) else str(value) for value in column.cat.categories.tolist()]
        return [words[code] if code >= 0 else None for code in column.cat.codes.tolist()]
    if dtype.kind == "O":
        return [None if hole else cell for cell, hole in zip(column.astype(object), column.isna(), strict=True)]
    if dtype.kind not in _NUMBERS or dtype.kind == "c":
        raise _refused(repr(name), dtype)
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _polars_number(dtype: Any, polars: Any) -> bool:
    return dtype.is_numeric() or dtype in (polars.Boolean, polars.Null)


def _polars_column(column: Any, polars: Any) -> Any:
    if _polars_number(column.dtype, polars):
        return column.cast(polars.Float64).to_numpy()
    if column.dtype in (polars.String, polars.Categorical, polars.Enum):
        return column.cast(polars.String).to_list()
    if column.dtype != polars.Object:
        raise _refused(repr(column.name), column.dtype)
    return [None if _missing(cell) else cell for cell in column.to_list()]


def _coded(column: Any, name: str) -> tuple[np.ndarray, list[str]]:
    """The column as numbers; where a cell is text, as places in the texts that come with it."""
    if isinstance(column, np.ndarray):
        return column, []
    for cell in column:
        if cell is not None and not _is_plain(cell):
            raise _refused(name, type(cell).__name__)
    if not any(isinstance(cell, str) for cell in column):
        return np.array([np.nan if cell is None else float(cell) for cell in column]), []
    places: dict[str, int] = {}
    codes = [np.nan if cell is None else places.setdefault(_text(cell), len(places)) for cell in column]
    return np.array(codes, dtype=np.float64), list(places)


def _refused(name: str, got: Any) -> InvalidTypeError:
    return InvalidTypeError(
        f"column {name} of X must hold numbers, text, categories or booleans, got {got}; leave the column out, or make "
        f"numbers of it first, such as the year, month and weekday of a date"
    )


def _missing(cell: Any) -> bool:
    pandas = sys.modules.get("pandas")
    if cell is None or (pandas is not None and (cell is pandas.NA or cell is pandas.NaT)):
        return True
    return isinstance(cell, Real | Decimal) and bool(cell != cell)


def _is_plain(cell: Any) -> bool:
    return isinstance(cell, str | Real | Decimal | np.bool_)


def _text(cell: Any) -> str:
    """The cell as a category: 1.0 is the same as 1, as a hole in a column makes floats of its integers."""
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, bool | np.bool_):
        return str(bool(cell))
    number = float(cell)
    return str(int(number)) if number.is_integer() else repr(number)


def _number(text: str) -> float | None:
    """The finite number that a text is."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if np.isfinite(number) else None


def _floats(cells: np.ndarray | Sequence[Any]) -> np.ndarray | None:
    """All of them as numbers, text too, as scikit-learn does it with arrays; None where one is none."""
    try:
        return np.asarray(cells, dtype=object).astype(np.float64)
    except (TypeError, ValueError):
        return None
