"""What was measured, a line of JSON each, appended at once: an end at any time loses no run but those under way."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from benchmarks.study.runs import Record, Run
from fracdnn.files import write_whole


def run_of(record: Record) -> Run:
    return Run(record["seed"], record["table"], record["model"])


def read_records(path: Path) -> dict[Run, Record]:
    """By run, of two the later. A last line that was cut off while it was written is left out."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
    return {run_of(record): record for record in map(json.loads, lines)}


def write_records(path: Path, records: Iterable[Record]) -> None:
    text = "".join(f"{_line(record)}\n" for record in records)
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def append_record(path: Path, record: Record) -> None:
    """One whole line, on the disk when this returns."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{_line(record)}\n")
        file.flush()
        os.fsync(file.fileno())


def _line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False)
