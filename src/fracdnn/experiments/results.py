"""A result as a file: settings, seeds, versions and numbers in one JSON document."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fracdnn.container import versions
from fracdnn.files import write_whole


def write_result(path: Path, settings: Any, numbers: dict[str, Any]) -> Path:
    """Write one result; `settings` is a dataclass, `numbers` whatever JSON holds."""
    document = {
        "settings": asdict(settings),
        "versions": versions(),
        "numbers": numbers,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    return write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
