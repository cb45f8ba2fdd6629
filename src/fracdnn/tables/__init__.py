"""From a file to a network's inputs: `read` makes a frame of a file, `Encoder` makes inputs of a frame.

`summary` decides what a column is, `column` holds what was learned of it, `encoder` makes inputs of it. The rules in
words: docs/estimators.md. Polars is imported when a table is read.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["Encoder", "read"]

if TYPE_CHECKING:
    from fracdnn.tables.encoder import Encoder
    from fracdnn.tables.sources import read


def __getattr__(name: str) -> Any:
    """Import public names when they are first used, so that an error about a file comes without torch."""
    if name == "read":
        from fracdnn.tables.sources import read

        return read
    if name == "Encoder":
        from fracdnn.tables.encoder import Encoder

        return Encoder
    raise AttributeError(f"module 'fracdnn.tables' has no attribute {name!r}")
