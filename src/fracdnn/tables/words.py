"""Names and cells as messages show them."""

import difflib
import reprlib
from collections import Counter
from collections.abc import Sequence

from fracdnn.exceptions import TableError

_MEANING = dict.fromkeys(("y", "yes", "j", "ja", "true", "oui"), "yes") | dict.fromkeys(
    ("n", "no", "nein", "false", "non"), "no"
)


def check_columns(wanted: Sequence[str], columns: Sequence[str]) -> None:
    """Raise an error unless every wanted column is there; it names the nearest of the other columns."""
    missing = [name for name in wanted if name not in columns]
    if missing:
        others = [name for name in columns if name not in wanted]
        lines = [f"the table must have the column {nearest(name, others)}" for name in missing[:3]]
        more = f" (and {len(missing) - 3} more)" if len(missing) > 3 else ""
        raise TableError("; ".join(lines) + more + f"; it has {listed(columns)}")


def check_target_name(target: str, columns: Sequence[str]) -> None:
    """Raise an error unless the target is a column."""
    if target not in columns:
        raise TableError(f"the table must have the target column {nearest(target, columns)}; it has {listed(columns)}")


def check_unique(names: Sequence[str | None], table: str) -> None:
    """Raise an error if two columns have the same name; several may have none."""
    name, n = Counter(name for name in names if name).most_common(1)[0] if any(names) else ("", 0)
    if n > 1:
        raise TableError(f"{table} must have each column once, got {quoted(name)} {n} times; rename or remove one")


def nearest(name: str, names: Sequence[str]) -> str:
    """Return the name quoted, with the nearest of the known names, as it is written there."""
    folded = {each.strip().casefold(): each for each in reversed(names)}
    wanted = name.strip().casefold()
    close = [wanted] if wanted in folded else difflib.get_close_matches(wanted, folded, n=1)
    close = close or [each for each in reversed(folded) if len(wanted) > 1 and wanted in each]
    return quoted(name) + (f" (did you mean {quoted(folded[close[0]])}?)" if close else "")


def quoted(text: str) -> str:
    """Return a name or a cell as messages show it: both ends of a long one."""
    shortened = reprlib.Repr()
    shortened.maxstring = 80
    return shortened.repr(text)


def alike(names: Sequence[str]) -> list[list[str]]:
    """Return groups of names that may mean the same: in other case or signs, yes and ja, or a letter more or less."""
    groups: dict[str, list[str]] = {}
    for name in (each for each in names if not any(sign.isdigit() for sign in each)):
        key = "".join(each for each in name.casefold() if each.isalnum()) or name
        groups.setdefault(_MEANING.get(key, key), []).append(name)
    words = [key for key in groups if len(key) > 5]
    for place, key in enumerate(words):
        near = difflib.get_close_matches(key, words[:place], n=1, cutoff=0.92)
        if near and near[0] in groups:
            groups[near[0]] += groups.pop(key)
    return [group for group in groups.values() if len(group) > 1]


def count(n: int, word: str) -> str:
    """Return a number with its noun: 1 class, 2 classes, 1,000 rows."""
    plural = f"{word[:-1]}ies" if word.endswith("ory") else f"{word}es" if word.endswith("ss") else f"{word}s"
    return f"{n:,} {word if n == 1 else plural}"


def listed(names: Sequence[str], most: int = 20) -> str:
    """Return names quoted, and how many more there are."""
    shown = ", ".join(quoted(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
