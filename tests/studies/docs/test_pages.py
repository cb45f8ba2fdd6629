"""What the pages of the documentation show was run, and prints what it says."""

import re
import shlex

import pytest

from tests.cli.commands import run
from tests.test_readme import DOCS, PAGES, ROOT, blocks_of, name_of, programs_of, ran_as_it_says

COLUMNS = 80
GALLERY = sorted((ROOT / "examples" / "gallery").glob("plot_*.py"))
TUTORIALS = sorted(page for page in (DOCS / "tutorials").glob("*.md") if page.stem != "index")


@pytest.mark.parametrize("code", programs_of(page for page in PAGES if page not in TUTORIALS))
def test_python_prints_what_its_comments_say(code, tmp_path):
    if "from reproduction" in code:  # as its page says: in a checkout
        (tmp_path / "reproduction").symlink_to(ROOT / "reproduction")
    ran_as_it_says(code, tmp_path)


@pytest.mark.parametrize("page", TUTORIALS, ids=name_of)
def test_a_tutorial_is_one_program(page, tmp_path):
    """From top to bottom; commands between its parts are run, and print the lines shown, whatever their numbers."""
    python, printed = "", ""
    for language, content in [*blocks_of(page), ("end", "")]:
        if language == "python":
            python += content
            continue
        if python and language != "text":
            ran_as_it_says(python, tmp_path)
            python = ""
        if language == "sh":
            runs = [run(*shlex.split(line)[1:], cwd=tmp_path) for line in content.splitlines()]
            assert [each.returncode for each in runs] == [0] * len(runs), runs
            printed = runs[-1].stdout
        elif language == "text":
            assert re.sub(r"[\d.]+", "0", content) == re.sub(r"[\d.]+", "0", printed)


def code_lines_of(page):
    """The lines of code that the site shows: fenced or indented blocks, but not directives, whose words are no code.

    Output of commands, in blocks of `text`, is wrapped by the style sheet.
    """
    fence, found = None, []
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fence = line.removeprefix("```") if fence is None else None
        elif fence is not None and fence != "text" and not fence.startswith("{"):
            found.append(line)
        elif fence is None and line.startswith("    "):
            found.append(line.removeprefix("    "))
    return found


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=name_of)
def test_code_fits_the_columns_of_the_site(page):
    assert [line for line in code_lines_of(page) if len(line) > COLUMNS] == []


@pytest.mark.parametrize("script", GALLERY, ids=lambda path: path.stem)
def test_the_gallery_s_code_fits_the_columns_of_the_site(script):
    parser = pytest.importorskip("sphinx_gallery.py_source_parser", reason="the extra docs is not installed")
    _, blocks = parser.split_code_and_text_blocks(str(script))
    lines = [line for block in blocks if block[0] == "code" for line in block[1].splitlines()]
    assert len(lines) > 10
    assert [line for line in lines if len(line) > COLUMNS] == []
