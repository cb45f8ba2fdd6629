"""Results as files: settings, commit, versions, sources and numbers in one JSON document a part, and its figures."""

import json
import subprocess
from pathlib import Path
from typing import Any

from fracdnn.experiments.jobs import plain, sources_of
from fracdnn.experiments.part import Numbers, Part
from fracdnn.experiments.sources import PACKAGE
from fracdnn.files import write_whole
from fracdnn.report.figures import save_figure
from fracdnn.version import versions

SETTINGS = {True: "quick, not the paper's", False: "the paper's"}


def write_result(path: Path, part: Part, numbers: Numbers, *, quick: bool, seconds: float) -> Path:
    document = {
        "setting": SETTINGS[quick],
        "settings": plain(part.quick if quick else part.full),
        "sources": sources_of(part),
        "commit": commit(),
        "versions": versions(),
        "seconds": round(seconds, 1),
        "numbers": numbers,
    }
    return write_document(path, document)


def write_document(path: Path, document: dict[str, Any]) -> Path:
    """A line for each run: short files, readable differences."""
    runs = ",\n   ".join(json.dumps(run, ensure_ascii=False) for run in document["numbers"]["runs"])
    text = json.dumps({**document, "numbers": {"runs": []}}, indent=1, ensure_ascii=False)
    text = text.replace('"runs": []', f'"runs": [\n   {runs}\n  ]')
    return write_whole(path, lambda temporary: temporary.write_text(text + "\n", encoding="utf-8"))


def read_result(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def finished(path: Path, part: Part, *, quick: bool) -> Numbers | None:
    """The numbers of an earlier run with these settings and sources, if there is one."""
    if not path.exists():
        return None
    found = read_result(path)
    wanted = {"settings": plain(part.quick if quick else part.full), "sources": sources_of(part)}
    return found["numbers"] if wanted.items() <= found.items() else None


def commit() -> str | None:
    """The commit these sources are of, with "+" where they differ from it; None outside a repository."""
    try:
        found = _git("rev-parse", "HEAD")
        return found + ("+" if _git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(PACKAGE), *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


def write_figures(folder: Path, part: Part, numbers: Numbers) -> None:
    """The part's figure as PNG and SVG."""
    figure = part.figure(numbers)
    for suffix in (".png", ".svg"):
        save_figure(folder / f"{part.name}{suffix}", figure)
