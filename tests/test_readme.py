"""What the README and the pages of the documentation show was run, and prints what it says."""

import re
from pathlib import Path

import pytest

from tests.cli.commands import run_program

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(code, id=f"{page.name} {number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL))
]


@pytest.mark.parametrize("code", BLOCKS)
def test_python_prints_what_its_comments_say(code, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(code, encoding="utf-8")
    run = run_program(program, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    comments = [line.rpartition("# ")[2].partition(" (")[0] for line in code.splitlines() if line.startswith("print(")]
    said, printed = " ".join(comments).split(), run.stdout.split()
    assert len(said) == len(printed) > 0
    for text, value in zip(said, printed, strict=True):
        if re.fullmatch(r"\d+\.\d+", text):
            decimals = len(text.partition(".")[2])
            assert abs(float(text) - float(value)) <= 0.51 * 10**-decimals
        else:
            assert text == value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
