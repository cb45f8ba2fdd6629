"""Tables of people's own: read, prepare, learn from, predict for. Polars is imported when a table is read."""

from fracdnn.tabular.model import TableModel, load

__all__ = ["TableModel", "load"]
