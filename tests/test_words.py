"""Plain American English in what people read: README, documentation, gallery, docstrings and messages."""

import ast
import re
from pathlib import Path

import pytest

import fracdnn

ROOT, PACKAGE = Path(__file__).parents[1], Path(fracdnn.__file__).parent
# Patterns, and what to write in their place.
INSTEAD = {
    r"(the|a|its|their|one|every|each|from|at|till|grid's) begin": "start",
    r"begin(?= (of|itself|and the end)\b)": "start",
    r"asked for": "requested, needed",
    r"told apart": "no significant difference, distinguished",
    r"(its|their) like": "of the same shape and dtype",
    r"mend(s|ed|ing)?": "fix",
    r"c[ao]mes? to no end": "did not converge",
    r"fits? together": "consistent",
    r"(can|could|cannot|can not) serve": "can run",
    r"opening map": "input projection",
    r"learnt|whilst|colour\w*": "learned, while, color",
    r"bent (smoothly|within)": "soft-clipped",
    r"is no failure": "no warning",
    r"own the loss": "dominate the loss",
    r"was not cut": "uninterrupted",
    r"right when told|those told": "precision",
    r"whichever way it c[ao]mes? out": "nothing",
    r"at another hour": "in a separate run",
    r"never quiet": "other jobs were running",
    r"(states?|steps|rows) a (layer|second)": "per",
    r"simpler kin": "simpler variant",
}
WORDS = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)
# Names of arms in docs/results, which two pages show as they are recorded.
ARMS = re.compile(r"learnt (order|by layer)")
RECORDED = ("study.md", "transformers.md")
FOLDERS = ("docs", *(f"docs/{name}" for name in ("explanation", "how-to", "reference", "start", "tutorials")))
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "RELEASING", "SECURITY", "CODE_OF_CONDUCT", "paper")),
    *(path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.md"))),
    *sorted((ROOT / "examples" / "gallery").glob("*.[pr]*")),
]
SOURCES = sorted(PACKAGE.rglob("*.py"))


def strings_of(text):
    """All strings of a program, docstrings and parts of f-strings among them."""
    return [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant) and node.value]


def words_in(text):
    """What should be said otherwise, also across the ends of lines."""
    return [match[0] for match in WORDS.finditer(" ".join(text.split()))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages(path):
    text = path.read_text(encoding="utf-8")
    assert words_in(ARMS.sub("", text) if path.name in RECORDED else text) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_docstrings_and_messages(path):
    strings = [text for text in strings_of(path.read_text(encoding="utf-8")) if isinstance(text, str)]
    found = [word for text in strings for word in words_in(text)]
    assert found == []


@pytest.mark.parametrize(
    "text", ["steps toward the\n    begin", "Asked for by name", "10 faults mended", "colours", "one state a layer"]
)
def test_a_word_would_be_found(text):
    assert words_in(text)
    assert words_in(f'f"{{x}} {text}"')


@pytest.mark.parametrize("text", ["layers begin at multiples", "begin = 0", "recommended", "each row a layer", "amend"])
def test_other_words_may_be(text):
    assert words_in(text) == []
