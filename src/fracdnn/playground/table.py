"""The user's own table as the playground takes it."""

from typing import Any

import numpy as np

from fracdnn.exceptions import TableError
from fracdnn.tables.reading import read_table
from fracdnn.tables.words import listed

# As in static/table.js, which finds numbers and classes in the cells.
MOST_ROWS = 2000


def table_document(source: str, encoding: str = "utf-8") -> dict[str, Any]:
    """What the page reads as table.json, from a table of any kind that `fracdnn train` takes.

    `csv` holds its cells; of more than 2,000 rows, so many at equal distances, and `left` says how many are not shown.
    """
    table = read_table(source, encoding)
    if table.width < 3:
        raise TableError(
            f"{source} must have three columns or more, two of numbers and one of classes, got "
            f"{listed(table.columns)}; add what is missing"
        )
    rows = np.linspace(0, table.height, min(table.height, MOST_ROWS), endpoint=False).astype(int)
    return {"csv": table[rows].write_csv(), "left": table.height - len(rows)}
