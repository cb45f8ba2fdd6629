"""`python -m tools.lowest`: a constraint for each dependency, at the lowest version that pyproject.toml admits.

`python -m tools.lowest torch==2.13.0` puts that in place of one of them, where the lowest cannot be had.
"""

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
# Extras of users; those of developers are pinned by constraints.txt.
EXTRAS = ("estimators", "tables", "report", "cli", "onnx", "fit")


def lowest(project: dict) -> dict[str, str]:
    """Each package with its lower bound, as pyproject.toml writes it."""
    lines = [*project["dependencies"], *(line for extra in EXTRAS for line in project["optional-dependencies"][extra])]
    others = [line for line in lines if not line.startswith("fracdnn[")]
    found = [re.fullmatch(r"([\w.-]+)>=([\w.]+)", line) for line in others]
    if not all(found):
        raise SystemExit(f"each dependency must be NAME>=VERSION, got {others}")
    return {match[1]: match[2] for match in found if match}


def main(instead: list[str]) -> None:
    versions = lowest(tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"])
    versions |= dict(line.split("==") for line in instead)
    print("\n".join(f"{name}=={version}" for name, version in versions.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
