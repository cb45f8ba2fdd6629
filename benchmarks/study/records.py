"""What was measured, a line of JSON each, appended at once: an end at any time loses no run but those under way."""

import json
import os
from pathlib import Path

from benchmarks.study.runs import Record, Run
from fracdnn.files import write_whole


def run_of(record: Record) -> Run:
    return Run(record["seed"], record["table"], record["model"])


def read_records(path: Path) -> dict[Run, Record]:
    """By run, of two the later. A last line that was cut off while it was written is left out."""
    return {run_of(record): record for record in map(json.loads, _whole_lines(path))}


def kept_records(path: Path, without: set[Run]) -> dict[Run, Record]:
    """What a file holds, after these runs and a line that was cut off were taken out of it."""
    records = {run: record for run, record in read_records(path).items() if run not in without}
    text = "".join(f"{line_of(record)}\n" for record in records.values())
    if path.exists() and path.read_text(encoding="utf-8") != text:
        write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return records


def append_record(path: Path, record: Record) -> None:
    """One whole line, on the disk when this returns."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line_of(record)}\n")
        file.flush()
        os.fsync(file.fileno())


def line_of(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False)


def _whole_lines(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()
