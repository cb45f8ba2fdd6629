"""`python -m tools.changelog 0.1.0` prints a version's section of CHANGELOG.md; `cut 0.1.0` makes one of Unreleased."""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"
UNRELEASED = "## [Unreleased]\n"


def section(text: str, version: str) -> str:
    """What stands under the heading of a version."""
    found = re.search(rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## \[|\Z)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        raise SystemExit(f"CHANGELOG.md has no section '## [{version}]'")
    return found[1].strip() + "\n"


def cut(text: str, version: str, day: str) -> str:
    """The changelog with what was unreleased under a version and a day, and a new empty section above."""
    if UNRELEASED not in text or not section(text, "Unreleased").strip():
        raise SystemExit("CHANGELOG.md has nothing under '## [Unreleased]'")
    if f"## [{version}]" in text:
        raise SystemExit(f"CHANGELOG.md has a section '## [{version}]' already")
    return text.replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {day}\n", 1)


def main(arguments: list[str]) -> None:
    text = CHANGELOG.read_text(encoding="utf-8")
    if arguments[0] != "cut":
        print(section(text, arguments[0]), end="")
        return
    today = datetime.now(UTC).date().isoformat()
    CHANGELOG.write_text(cut(text, arguments[1], today), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
