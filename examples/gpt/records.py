"""The runs as one JSON file, written whole after each, so that an end at any time loses none that is done."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fracdnn.files import write_whole

NAME = "gpt.json"
Record = dict[str, Any]


def key(run: Record) -> tuple[str, int, int]:
    return run["arm"], run["depth"], run["seed"]


def read_runs(path: Path) -> dict[tuple[str, int, int], Record]:
    """Runs by arm, depth and seed, in the order of the file; none where there is no file."""
    if not path.exists():
        return {}
    return {key(run): run for run in json.loads(path.read_text(encoding="utf-8"))["runs"]}


def write_runs(path: Path, runs: Iterable[Record]) -> None:
    lines = ",\n".join(json.dumps(run, ensure_ascii=False, allow_nan=False) for run in runs)
    write_whole(path, lambda temporary: temporary.write_text(f'{{"runs": [\n{lines}\n]}}\n', encoding="utf-8"))


def is_same(run: Record, made: Record) -> bool:
    """Whether a run is what would be made now: done, with these settings, text, versions and device."""
    return "failed" not in run and identity(run) == identity({**run, **made})


def identity(run: Record) -> tuple[Any, ...]:
    made_with = run["made_with"]
    return run["settings"], run["text"], made_with["versions"], made_with["machine"].get("gpu")
