"""What was measured, a line of JSON each, appended at once: an end at any time loses no run but those under way."""

from pathlib import Path

from benchmarks.study.runs import Record, Run
from fracdnn.experiments.records import append_line, line_of, whole_lines
from fracdnn.files import write_whole


def run_of(record: Record) -> Run:
    return Run(record["seed"], record["table"], record["model"])


def read_records(path: Path) -> dict[Run, Record]:
    """By run, of two the later. A last line that was cut off while it was written is left out."""
    return {run_of(record): record for record in whole_lines(path)}


def kept_records(path: Path, without: set[Run]) -> dict[Run, Record]:
    """What a file holds, after these runs and a line that was cut off were taken out of it."""
    records = {run: record for run, record in read_records(path).items() if run not in without}
    text = "".join(f"{line_of(record)}\n" for record in records.values())
    if path.exists() and path.read_text(encoding="utf-8") != text:
        write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return records


append_record = append_line
