"""From a file to a network's inputs: `read` makes a frame of a file, and an `Encoder` makes inputs of a frame.

    reading     files, folders and pipes of all formats as Polars frames, in which cells of text formats are text
    frames      tables that are passed in Python
    learning    decides what a column is; the rules in words: docs/estimators.md
    column      the rule of each kind, and the inputs it makes: numbers, categories, dates
    encoder     `Encoder`: fit, transform, state
    targets     the column to be predicted
    ids         columns that only number the rows
    suspicions  warnings about tables whose scores promise too much
    cells, dates, words    how cells are written, and how messages show them

Polars reads the files. The rest is written here, since no library does it: skrub's TableVectorizer takes numbers with
units, currencies, decimal commas or one stray cell for categories, and codes such as 05453 for numbers; it knows no ids
and no row numbers, and no messages that name a cell. It imports pandas and matplotlib, which takes longer than torch,
and skops stores it in megabytes. Model files are plain values without pickle, which `Encoder.state` gives.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fracdnn.tables.encoder import Encoder
    from fracdnn.tables.reading import read, read_parts

__all__ = ["Encoder", "read", "read_parts"]


def __getattr__(name: str) -> Any:
    """Import public names when they are first used: the command looks at files without importing NumPy."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module 'fracdnn.tables' has no attribute {name!r}")
    return getattr(import_module(f"fracdnn.tables.{'encoder' if name == 'Encoder' else 'reading'}"), name)
