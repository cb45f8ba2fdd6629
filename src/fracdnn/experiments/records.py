"""Lines of JSON, appended at once: an end at any time loses no record but those under way."""

import json
import os
from pathlib import Path
from typing import Any


def append_line(path: Path, record: Any) -> None:
    """One whole line, on the disk when this returns."""
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line_of(record)}\n")
        file.flush()
        os.fsync(file.fileno())


def line_of(record: Any) -> str:
    return json.dumps(record, ensure_ascii=False)


def whole_lines(path: Path) -> list[Any]:
    """What a file holds; a last line that was cut off while it was written is left out."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
