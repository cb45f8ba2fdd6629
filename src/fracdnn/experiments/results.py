"""Results as files: settings, versions and numbers in one JSON document a part, and its figures."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fracdnn.experiments.part import Numbers, Part
from fracdnn.files import write_whole
from fracdnn.report.figures import save_figure
from fracdnn.version import versions


def write_result(path: Path, settings: Any, numbers: Numbers, *, quick: bool, seconds: float) -> Path:
    """Write one result; `settings` is a dataclass, `numbers` whatever JSON holds."""
    document = {
        "setting": "quick, not the paper's" if quick else "the paper's",
        "settings": asdict(settings),
        "versions": versions(),
        "seconds": round(seconds, 1),
        "numbers": numbers,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    return write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_figures(folder: Path, part: Part, numbers: Numbers) -> None:
    """The part's figure as PNG and SVG."""
    for suffix in (".png", ".svg"):
        save_figure(folder / f"{part.name}{suffix}", part.figure(numbers))
