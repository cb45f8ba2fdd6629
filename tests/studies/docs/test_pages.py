"""What the pages of the documentation show was run, and prints what it says."""

import re
import shlex

import pytest

from tests.cli.commands import run
from tests.test_readme import DOCS, PAGES, ROOT, blocks_of, name_of, programs_of, ran_as_it_says

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
