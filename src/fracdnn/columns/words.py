"""Names and cells as messages show them."""

import difflib
import reprlib
from collections import Counter
from collections.abc import Sequence

from fracdnn.exceptions import TableError


def check_columns(wanted: Sequence[str], columns: Sequence[str]) -> None:
    """Every wanted column must be there; the message names the nearest of the others that are."""
    missing = [name for name in wanted if name not in columns]
    if missing:
        others = [name for name in columns if name not in wanted]
        lines = [f"the table must have the column {nearest(name, others)}" for name in missing[:3]]
        more = f" (and {len(missing) - 3} more)" if len(missing) > 3 else ""
        raise TableError("; ".join(lines) + more + f"; it has {listed(columns)}")


def check_unique(names: Sequence[str | None], table: str) -> None:
    """Every column must have a name of its own; those without one are named by their places."""
    name, n = Counter(name for name in names if name).most_common(1)[0] if any(names) else ("", 0)
    if n > 1:
        raise TableError(f"{table} must have each column once, got {quoted(name)} {n} times; rename or remove one")


def nearest(name: str, names: Sequence[str]) -> str:
    """The name quoted, with the nearest of those that there are, as it is written there."""
    folded: dict[str, str] = {}
    for each in names:
        folded.setdefault(each.strip().casefold(), each)
    wanted = name.strip().casefold()
    close = difflib.get_close_matches(name, names, n=1)
    if wanted in folded:
        close = [folded[wanted]]
    elif not close:
        parts = [each for each in folded if len(wanted) > 1 and wanted in each]
        close = [folded[each] for each in difflib.get_close_matches(wanted, folded, n=1) or parts[:1]]
    return quoted(name) + (f" (did you mean {quoted(close[0])}?)" if close else "")


def quoted(text: str) -> str:
    """A name or a cell as a message shows it: of a long one, both ends."""
    shortened = reprlib.Repr()
    shortened.maxstring = 80
    return shortened.repr(text)


def count(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def listed(names: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(quoted(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
