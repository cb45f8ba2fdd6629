"""What RELEASING.md relies on: the checks before a release can fail, and do what they say."""

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from tools import changelog, lowest, release_check, site_versions, smoke

ROOT = Path(__file__).parents[2]
VERSIONED = (
    "CITATION.cff",
    ".zenodo.json",
    "recipe/recipe.yaml",
    "CHANGELOG.md",
    "pyproject.toml",
    "src/fracdnn/version.py",
)
LOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- New.\n\n## [0.0.1] - 2026-01-02\n\n- Old.\n"


@pytest.fixture
def checkout(tmp_path):
    """What a release has to agree on, with the changelog cut."""
    for name in VERSIONED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text(changelog.cut(LOG, "0.1.0", "2026-11-18"), encoding="utf-8")
    return tmp_path


def test_a_checkout_that_agrees_is_ready(checkout):
    assert release_check.disagreements(checkout, "v0.1.0") == []


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        ("CITATION.cff", "version: 0.1.0", "version: 0.2.0", "CITATION.cff says 0.2.0, not 0.1.0"),
        (".zenodo.json", '"0.1.0"', '"0.0.9"', ".zenodo.json says 0.0.9, not 0.1.0"),
        ("recipe/recipe.yaml", '"0.1.0"', '"1.1.0"', "recipe/recipe.yaml says 1.1.0, not 0.1.0"),
        ("recipe/recipe.yaml", "    - pytorch >=2.11\n", "", "recipe/recipe.yaml lacks 'pytorch >=2.11'"),
        ("CHANGELOG.md", "2026-11-18", "soon", "CHANGELOG.md needs a section '## [0.1.0] - YEAR-MONTH-DAY'"),
    ],
)
def test_what_disagrees_is_named(checkout, name, old, new, complaint):
    text = (checkout / name).read_text(encoding="utf-8")
    assert old in text
    (checkout / name).write_text(text.replace(old, new), encoding="utf-8")
    (found,) = release_check.disagreements(checkout, None)
    assert found.startswith(complaint)


def test_another_tag_and_what_is_left_to_fill_in_are_named(checkout):
    assert release_check.disagreements(checkout, "v0.2.0") == ["the tag is v0.2.0, the version 0.1.0"]
    (checkout / "a.md").write_text("by\nFILL-IN\n", encoding="utf-8")
    assert release_check.placeholders(checkout, ["a.md", "CHANGELOG.md"]) == ["a.md:2 is left to fill in"]


def test_the_list_of_what_to_fill_in_is_whole():
    """Each file with a placeholder stands in RELEASING.md."""
    text = (ROOT / "RELEASING.md").read_text(encoding="utf-8")
    found = {place.partition(":")[0] for place in release_check.placeholders(ROOT, release_check.files(ROOT))}
    assert [name for name in sorted(found) if f"`{name}`" not in text] == []


def test_the_changelog_is_cut_and_read():
    cut = changelog.cut(LOG, "0.1.0", "2026-11-18")
    assert changelog.section(cut, "0.1.0") == "### Added\n\n- New.\n"
    assert changelog.section(cut, "Unreleased") == "\n"
    assert changelog.section(cut, "0.0.1") == "- Old.\n"
    for version in ("0.0.1", "0.2.0"):
        with pytest.raises(SystemExit, match="already" if version == "0.0.1" else "nothing under"):
            changelog.cut(LOG if version == "0.0.1" else cut, version, "2026-11-18")
    with pytest.raises(SystemExit, match="no section"):
        changelog.section(LOG, "0.1.0")


def test_versions_of_the_site_lie_side_by_side(tmp_path):
    site, pages = tmp_path / "site", tmp_path / "pages"
    site.mkdir()
    pages.mkdir()
    for ref, text in (
        ("refs/heads/main", "a"),
        ("refs/tags/v0.9.1", "b"),
        ("refs/tags/v0.10.0", "c"),
        ("refs/heads/x", "d"),
    ):
        (site / "index.html").write_text(text, encoding="utf-8")
        site_versions.add(site, pages, site_versions.name_of(ref), "https://example.org/")
    entries = json.loads((pages / "switcher.json").read_text(encoding="utf-8"))
    assert [each["version"] for each in entries] == ["0.10", "0.9", "dev"]
    assert [each.get("preferred", False) for each in entries] == [True, False, False]
    assert entries[1]["url"] == "https://example.org/0.9/"
    assert "url=0.10/" in (pages / "index.html").read_text(encoding="utf-8")
    assert [(pages / name / "index.html").read_text(encoding="utf-8") for name in ("0.10", "0.9", "dev")] == [
        "c",
        "b",
        "d",
    ]


def test_each_dependency_has_a_lower_bound():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = lowest.lowest(project)
    assert {"torch", "numpy", "scipy", "typer"} <= found.keys()
    project["dependencies"].append("torch==2.13.0")
    with pytest.raises(SystemExit, match="must be NAME>=VERSION"):
        lowest.lowest(project)


@pytest.mark.parametrize("printed", ["0.56 2\n", "0.5 3\n", "0.5\n", ""])
def test_the_walk_through_readme_can_fail(printed):
    code = "print(\n    x,\n)  # 0.5 (about)\nlist(\n    x,\n)  # 7\nprint(2)  # 2\n"
    assert smoke.differences(code, "0.502 2\n") == []
    assert len(smoke.differences(code, printed)) == 1


def test_readme_has_what_the_walk_looks_for():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(smoke.python_blocks(text)) >= 3
    assert [line.split()[1] for line in smoke.commands(text)] == ["train", "predict", "report"]


def test_every_action_is_pinned_by_its_hash():
    lines = [line for path in (ROOT / ".github/workflows").glob("*.yml") for line in path.read_text().splitlines()]
    used = [line.partition("uses: ")[2] for line in lines if "uses: " in line]
    assert len(used) > 10
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", each)] == []
