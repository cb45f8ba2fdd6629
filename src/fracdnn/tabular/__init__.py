"""Tables of people's own: read, prepare, learn from, predict for. Polars is imported when a table is read."""

from typing import TYPE_CHECKING, Any

__all__ = ["TableModel", "load"]

if TYPE_CHECKING:
    from fracdnn.tabular.model import TableModel, load


def __getattr__(name: str) -> Any:
    """Models are imported when they are first used, so that an error about a file comes without torch."""
    if name not in __all__:
        raise AttributeError(f"module 'fracdnn.tabular' has no attribute {name!r}")
    from fracdnn.tabular import model

    return getattr(model, name)
