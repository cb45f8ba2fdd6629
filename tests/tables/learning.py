"""What `Encoder.fit` says of a table's columns."""

import numpy as np
import polars as pl

from fracdnn.tables import Encoder
from fracdnn.tables.frames import with_categories


def learned_from(table, *, categorical=(), tested=None):
    """The encoder of columns in use, and the notes; rows that are `tested` come after those to learn from."""
    whole = with_categories(table if tested is None else pl.concat([table, tested]), categorical)
    encoder = Encoder.fit(whole, (np.arange(whole.height) < table.height).astype(float))
    return encoder.used(), encoder.notes()


def inputs_of(encoder, table):
    """The inputs of a table whose columns come in any order."""
    return encoder.transform(table.select(encoder.names), lambda row: f"row {row + 1}")
