"""Polars, imported when it is first used: that takes a quarter of a second, which arrays of numbers do without."""

from typing import TYPE_CHECKING, Any


class _Late:
    def __getattr__(self, name: str) -> Any:
        import polars

        found = getattr(polars, name)
        setattr(self, name, found)  # the next use does not come here
        return found


if TYPE_CHECKING:
    import polars as pl
else:
    pl = _Late()

__all__ = ["pl"]
