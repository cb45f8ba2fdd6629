"""Several versions of the site in one folder, for the branch gh-pages.

`python -m tools.site_versions name refs/tags/v0.1.0` prints FRACDNN_DOCS_VERSION=0.1, for other refs =dev;
`add SITE PAGES NAME` puts a built site into PAGES/NAME, lists all versions in PAGES/switcher.json, and has
PAGES/index.html lead to the newest release.
"""

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEV = "dev"
INDEX = """<!DOCTYPE html>
<meta charset="utf-8">
<title>fracdnn</title>
<meta http-equiv="refresh" content="0; url={0}/">
"""
# What the notebooks of the site need on Binder.
BINDER = "fracdnn[all]\npandas\nrdatasets\n"


def name_of(ref: str) -> str:
    """`0.1` for a tag v0.1.3; `dev` for anything else."""
    found = re.fullmatch(r"refs/tags/v(\d+\.\d+)\.\d+", ref)
    return found[1] if found else DEV


def newest_first(names: list[str]) -> list[str]:
    """Releases from new to old, then dev."""
    releases = [name for name in names if re.fullmatch(r"\d+\.\d+", name)]
    return sorted(releases, key=lambda name: [int(part) for part in name.split(".")], reverse=True) + [DEV] * (
        DEV in names
    )


def add(site: Path, pages: Path, name: str, address: str) -> None:
    """Put a built site among the others, in place of an earlier one of the same name."""
    shutil.rmtree(pages / name, ignore_errors=True)
    shutil.copytree(site, pages / name)
    names = newest_first([path.name for path in pages.iterdir() if path.is_dir()])
    entries: list[dict[str, str | bool]] = [
        {"version": each, "url": f"{address}{each}/", "name": each} for each in names
    ]
    if names[0] != DEV:
        entries[0] |= {"name": f"{names[0]} (stable)", "preferred": True}
    (pages / "switcher.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    (pages / "index.html").write_text(INDEX.format(names[0]), encoding="utf-8")
    (pages / ".nojekyll").touch()
    (pages / "requirements.txt").write_text(BINDER, encoding="utf-8")


def main(arguments: list[str]) -> None:
    if arguments[0] == "name":
        print(f"FRACDNN_DOCS_VERSION={name_of(arguments[1])}")
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    add(Path(arguments[1]), Path(arguments[2]), arguments[3], project["urls"]["Documentation"])


if __name__ == "__main__":
    main(sys.argv[1:])
