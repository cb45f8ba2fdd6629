"""What a table in memory says of its columns, as `fracdnn train` asks it."""

import numpy as np
import polars as pl

from fracdnn.tables.encoder import left_out_notes, summary_of, with_inputs
from fracdnn.tables.frames import with_categories


def learned_from(table, *, categorical=(), tested=None):
    """The encoding of columns in use, and the notes; rows that are `tested` come after those to learn from."""
    whole = table if tested is None else pl.concat([table, tested])
    whole = with_categories(whole, categorical)
    summary = summary_of(whole, (np.arange(whole.height) < table.height).astype(float))
    encoding = with_inputs(summary.encoding(whole.schema))
    return encoding.used(), [*left_out_notes(encoding), *summary.notes(encoding)]


def inputs_of(encoding, table):
    """The inputs of a table whose columns come in any order."""
    return encoding.transform(table.select(encoding.names), lambda row: f"row {row + 1}")
