"""What the README and the pages of the documentation show was run, and prints what it says."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.commands import run, run_program

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *(page for page in sorted(DOCS.rglob("*.md")) if "gallery" not in page.parts)]
TUTORIALS = sorted(page for page in (DOCS / "tutorials").glob("*.md") if page.stem != "index")
FENCE = re.compile(r"^```(python|sh|text)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


def blocks_of(page):
    """Language and content of each block, in order."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def name_of(page):
    return page.name if page.parent in (ROOT, DOCS) else f"{page.parent.name}/{page.name}"


BLOCKS = [
    pytest.param(code, id=f"{name_of(page)} {number}")
    for page in PAGES
    if page not in TUTORIALS
    for number, code in enumerate(code for language, code in blocks_of(page) if language == "python")
]


def ran_as_it_says(code, folder):
    """Run the code there, and compare what it prints with its comments."""
    program = folder / "program.py"
    program.write_text(code, encoding="utf-8")
    done = run_program(program, cwd=folder)
    assert done.returncode == 0, done.stderr
    comments = [line.rpartition("# ")[2].partition(" (")[0] for line in code.splitlines() if line.startswith("print(")]
    said, printed = " ".join(comments).split(), done.stdout.split()
    assert len(said) == len(printed) > 0
    for text, value in zip(said, printed, strict=True):
        if re.fullmatch(r"\d+\.\d+", text):
            decimals = len(text.partition(".")[2])
            assert abs(float(text) - float(value)) <= 0.51 * 10**-decimals
        else:
            assert text == value


@pytest.mark.parametrize("code", BLOCKS)
def test_python_prints_what_its_comments_say(code, tmp_path):
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


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target
