"""Whether published results still hold: some runs again, their numbers compared with the published ones."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from records.keeping import Record

# How far numbers may be apart: on the machine of the published run, and elsewhere, where sums are rounded otherwise.
SAME, NEAR = 1e-9, 0.03


class Again(NamedTuple):
    """A published run, what it gives now, and published runs of its kind: of other seeds, say."""

    name: str
    before: Record
    now: Record
    alike: Sequence[Record]
    is_chaotic: bool = False


def sample(items: Sequence[Any], count: int) -> list[Any]:
    """The first, the last, and those between at equal distances."""
    places = {round(k * (len(items) - 1) / max(1, count - 1)) for k in range(count)} if items else set()
    return [items[place] for place in sorted(places)]


def holds(study: str, runs: Iterable[Again], made: Record) -> bool:
    """Print whether runs give the published numbers: to 9 digits with the versions and the machine of that time.

    Elsewhere trainings diverge by rounding. There, and where a run is chaotic, a number may differ by 3 %, or lie no
    further from those of its kind than these from one another.
    """
    wrong, there, count = [], True, 0
    for run in runs:
        count += 1
        same_place = all(run.before["made_with"].get(name) == made[name] for name in ("versions", "machine"))
        changes = list(differences(run.before, run.now, []))
        if changes and (run.is_chaotic or not same_place):
            there, changes = False, list(differences(run.before, run.now, run.alike, NEAR))
        wrong += [f"{study}, {run.name}: {'; '.join(changes[:4])}"] if changes else []
    told = "the same numbers" if there else "numbers like the published ones, which were rounded otherwise"
    print("\n".join(wrong) or f"{study}: {count} runs again, {told}", flush=True)
    return not wrong


def differences(before: Any, now: Any, alike: Sequence[Any], near: float = SAME, name: str = "") -> Iterator[str]:
    """What is not as it was, of all that is there now."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in now:
            yield from differences(before.get(key), now[key], [run.get(key) for run in alike], near, f"{name} {key}")
    elif isinstance(before, list) and isinstance(now, list):
        alike = [run for run in alike if isinstance(run, list)]
        yield from differences(len(before), len(now), [len(run) for run in alike], near, f"{name}, length")
        for place, pair in enumerate(zip(before, now, strict=False)):
            yield from differences(*pair, [run[place] for run in alike if len(run) > place], near, name)
    elif before != now and not _is_close(before, now, alike, near):
        yield f"{name} {before} -> {now}".strip()


def _is_close(before: Any, now: Any, alike: Sequence[Any], near: float) -> bool:
    if not all(isinstance(value, int | float) for value in (before, now, *alike)):
        return now in alike
    low, high = min(alike, default=before), max(alike, default=before)
    return math.isclose(before, now, rel_tol=near) or 2 * low - high <= now <= 2 * high - low
