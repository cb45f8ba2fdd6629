"""A result as a file: settings, seeds, versions and numbers in one JSON document."""

import json
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fracdnn.files import write_whole


def write_result(path: Path, settings: Any, numbers: dict[str, Any]) -> Path:
    """Write one result; `settings` is a dataclass, `numbers` whatever JSON holds."""
    document = {
        "settings": asdict(settings),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("fracdnn", "torch", "numpy")}},
        "numbers": numbers,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    return write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
