"""Tables of people's own: read, prepare, learn from, predict for. Polars is imported when a table is read.

Models are imported when they are first used, so that an error about a file comes without torch.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fracdnn.tabular.model import TableModel, load
else:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module 'fracdnn.tabular' has no attribute {name!r}")
        globals()[name] = found = getattr(import_module("fracdnn.tabular.model"), name)
        return found


__all__ = ["TableModel", "load"]
