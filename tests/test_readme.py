"""What the README shows was run, and prints what it says; `tests/studies/docs/test_pages.py` has the other pages."""

import re
from pathlib import Path

import pytest

from tests.cli.commands import run_program
from tools.smoke import differences

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "gallery" not in page.parts]
FENCE = re.compile(r"^```(python|sh|text)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)


def blocks_of(page):
    """Language and content of each block, in order."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def name_of(page):
    return page.name if page.parent in (ROOT, DOCS) else f"{page.parent.name}/{page.name}"


def programs_of(pages):
    """For `parametrize`: each block of Python."""
    return [
        pytest.param(code, id=f"{name_of(page)} {number}")
        for page in pages
        for number, code in enumerate(code for language, code in blocks_of(page) if language == "python")
    ]


def ran_as_it_says(code, folder):
    """Run the code there, and compare what it prints with its comments."""
    program = folder / "program.py"
    program.write_text(code, encoding="utf-8")
    done = run_program(program, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert differences(code, done.stdout) == []


@pytest.mark.parametrize("code", programs_of([README]))
def test_python_prints_what_its_comments_say(code, tmp_path):
    ran_as_it_says(code, tmp_path)


def test_readme_is_read_in_a_minute():
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition("## Measured\n")
    measured, _, after = rest.partition("\n## ")
    assert measured
    assert len((before + after).splitlines()) <= 76  # 90 with eight measured rows


@pytest.mark.parametrize("page", [README, *PAGES], ids=name_of)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), target
