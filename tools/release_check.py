"""`python -m tools.release_check`: fails while a release would be wrong; `--tag v0.1.0` also compares the tag.

Looks for what is left to fill in, and whether version, changelog, citation and recipe agree. `make test` does not run
it: it fails on purpose until a person has filled in the address of the repository.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Written where only a person knows what belongs there; RELEASING.md lists the places.
PLACEHOLDER = "FILL-IN"
# These speak of the placeholder itself.
ABOUT_IT = (
    "RELEASING.md",
    "docs/_site/notebooks.py",
    "tests/studies/docs/test_notebooks.py",
    "tests/studies/test_release.py",
    "tools/release_check.py",
)


def files(root: Path) -> list[str]:
    """What is tracked and what would be: every file that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()


def placeholders(root: Path, names: list[str]) -> list[str]:
    """`file:line` of each place that is left to fill in."""
    found = []
    for name in names:
        path = root / name
        if name in ABOUT_IT or path.suffix in (".png", ".gz", ".json") or not path.is_file():
            continue
        lines = path.read_text(encoding="utf-8", errors="ignore").splitlines()
        found += [f"{name}:{number} is left to fill in" for number, line in enumerate(lines, 1) if PLACEHOLDER in line]
    return found


def disagreements(root: Path, tag: str | None) -> list[str]:
    """Where the version is not the same everywhere, or the changelog is not cut."""
    version = re.findall(r'^__version__ = "(.+)"$', (root / "src/fracdnn/version.py").read_text(), re.MULTILINE)[0]
    cited = re.findall(r"^version: (.+)$", (root / "CITATION.cff").read_text(), re.MULTILINE)
    deposit = json.loads((root / ".zenodo.json").read_text())["version"]
    recipe = re.findall(r'^  version: "(.+)"$', (root / "recipe/recipe.yaml").read_text(), re.MULTILINE)
    found = [
        f"{name} says {', '.join(said) or 'no version'}, not {version}"
        for name, said in (("CITATION.cff", cited), (".zenodo.json", [deposit]), ("recipe/recipe.yaml", recipe))
        if said != [version]
    ]
    sections = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    days = [day for name, day in sections if name == version]
    if not days or not _is_day(days[0]):
        found.append(f"CHANGELOG.md needs a section '## [{version}] - YEAR-MONTH-DAY' in place of Unreleased")
    if tag is not None and tag != f"v{version}":
        found.append(f"the tag is {tag}, the version {version}")
    return found + _unlike_dependencies(root)


def _is_day(text: str) -> bool:
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def _unlike_dependencies(root: Path) -> list[str]:
    """The recipe asks for what pyproject.toml asks for."""
    wanted = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    recipe = (root / "recipe/recipe.yaml").read_text()
    lines = [line.replace("torch>=", "pytorch >=") if line.startswith("torch") else line for line in wanted]
    lines = [re.sub(r"(\w)>=", r"\1 >=", line) for line in lines]
    return [f"recipe/recipe.yaml lacks '{line}'" for line in lines if f"    - {line}\n" not in recipe]


def main() -> None:
    parser = argparse.ArgumentParser(description="Fail while a release would be wrong.")
    parser.add_argument("--tag", help="the tag of the release, such as v0.1.0")
    found = placeholders(ROOT, files(ROOT)) + disagreements(ROOT, parser.parse_args().tag)
    if found:
        sys.exit("\n".join(["not ready for a release (see RELEASING.md):", *found]))
    print("ready for a release")


if __name__ == "__main__":
    main()
