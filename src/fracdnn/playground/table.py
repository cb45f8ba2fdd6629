"""The user's own table as the playground takes it: two columns of numbers, one of classes, or more to choose from."""

from typing import Any

import numpy as np

from fracdnn.columns.cells import missing_as_null, numbers_in
from fracdnn.columns.words import listed, quoted
from fracdnn.exceptions import TableError
from fracdnn.tabular.model import target_values
from fracdnn.tabular.reading import read_table

# As in static/table.js, which takes files in the browser.
MOST_ROWS, LEAST_ROWS, MOST_CLASSES = 2000, 10, 5


def table_document(source: str, encoding: str = "utf-8") -> dict[str, Any]:
    """What the page reads as table.json, from a table of any kind that `fracdnn train` takes.

    The classes are in the only column that is not all numbers, else in the last. Rows with empty cells are left out; of
    more than 2,000 rows, so many are taken at equal distances, and `left` says how many are not. Of more than three
    columns the page lets the user choose, and has them as CSV.
    """
    table = read_table(source, encoding)
    if table.width < 3:
        raise TableError(
            f"{source} must have three columns or more, two of numbers and one of classes, got "
            f"{listed(table.columns)}; add what is missing"
        )
    if table.width > 3:
        return {"csv": table[_taken(table.height)].write_csv()}
    table = table.with_columns(missing_as_null(column) for column in table.iter_columns()).drop_nans().drop_nulls()
    if table.height < LEAST_ROWS:
        raise TableError(
            f"{source} must have at least {LEAST_ROWS} rows without missing values, got {table.height}; add rows"
        )
    others = [column.name for column in table.iter_columns() if numbers_in(column) is None]
    if len(others) > 1:
        raise TableError(
            f"{source} must have two columns of numbers, got other cells in {listed(others)}; write them as numbers"
        )
    target = others[0] if others else table.columns[-1]
    labels = target_values(table[target], "classification").astype(str)
    n_classes = len(np.unique(labels))
    if not 2 <= n_classes <= MOST_CLASSES:
        raise TableError(
            f"the class column {quoted(target)} must hold 2 to {MOST_CLASSES} classes, got {n_classes}; keep some"
        )
    names = [name for name in table.columns if name != target]
    x, rows = np.column_stack([numbers_in(table[name]) for name in names]), _taken(table.height)  # type: ignore[misc]
    for name, is_finite in zip(names, np.isfinite(x).all(0), strict=True):
        if not is_finite:
            raise TableError(f"column {quoted(name)} must hold finite numbers, got infinite ones; correct the table")
    points = {"x": x[rows].tolist(), "labels": labels[rows].tolist(), "left": table.height - len(rows)}
    return {"columns": names, "target": target, **points}


def _taken(n: int) -> np.ndarray:
    return np.linspace(0, n, min(n, MOST_ROWS), endpoint=False).astype(int)
