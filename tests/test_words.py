"""Plain American English in what people read: README, documentation, gallery, docstrings and messages."""

import ast
import re
from pathlib import Path

import pytest

import fracdnn

ROOT, PACKAGE = Path(__file__).parents[1], Path(fracdnn.__file__).parent
# Patterns, and what to write in their place: the table of the style guide, and what readers stumbled over.
INSTEAD = {
    r"(the|a|its|their|one|every|each|from|at|till|grid's) begin": "start",
    r"begin(?= (of|itself|and the end)\b)": "start",
    r"ask(s|ed|ing)? for": "requested, needed, requires",
    r"just before(?= it is)": "as the left limit",
    r"t(old|ell|elling) (\w+ )?(\w+ )?apart": "no significant difference, distinguished",
    r"(its|their) like": "of the same shape and dtype",
    r"mend(s|ed|ing)?": "fix",
    r"faults (found|fixed)": "bugs",
    r"c[ao]mes? to no end": "did not converge",
    r"fits? together": "consistent",
    r"(can|could|cannot|can not) serve": "can run",
    r"numbers that is none": "invalid",
    r"opening map": "input projection",
    r"learnt|whilst|colour\w*": "learned, while, color",
    r"\w*(optimi|minimi|maximi|regulari|normali|standardi|initiali|discreti|quanti|summari|recogni|generali|seriali)"
    r"s(e[drs]?|ing|ation)": "American spelling, with z",
    r"(neighbour|centre|behaviour|labour|favour|honour|licence|artefact|catalogue)s?": "American spelling",
    r"(?-i:grey)|modelling|labelled|per cent": "gray, modeling, labeled, percent",
    r"bent (smoothly|within)": "soft-clipped",
    r"stands? a second time": "are added",
    r"without another part": "holds out a different fold",
    r"is no failure": "no warning",
    r"own the loss": "dominate the loss",
    r"was not (cut|disturbed|interrupted)": "uninterrupted",
    r"exact for the steps that were taken": "the exact gradient of the computed solution",
    r"right when told|those told": "precision",
    r"found / right": "recall / precision",
    r"always the shares": "baseline (class frequencies)",
    r"may owe that to": "this may be chance",
    r"gone through the data": "reached the limit of epochs",
    r"expect little": "results will be unreliable",
    r"part the classes": "separate the classes",
    r"say the same share": "split their importance",
    r"whichever way (it|they) c[ao]mes? out": "nothing",
    r"nothing was chosen on": "held out from all tuning",
    r"a seed is not a number": "one seed is not a result",
    r"can be bold": "can reach significance",
    r"at another hour": "in a separate run",
    r"never quiet": "other jobs were running",
    r"(states?|steps|rows) a (layer|second)": "per",
    r"simpler kin|and its kin": "simpler variant",
    r"needs no Python": "works without Python",
    r"a hole|cells? that (is|are) empty": "a missing value",
}
WORDS = re.compile(rf"\b(?:{'|'.join(INSTEAD)})\b", re.IGNORECASE)
PARTS = ("explanation", "how-to", "measured", "reference", "start", "tutorials")
FOLDERS = ("docs", *(f"docs/{name}" for name in PARTS))
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "RELEASING", "SECURITY", "CODE_OF_CONDUCT", "paper")),
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
    assert words_in(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_docstrings_and_messages(path):
    strings = [text for text in strings_of(path.read_text(encoding="utf-8")) if isinstance(text, str)]
    found = [word for text in strings for word in words_in(text)]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "steps toward the\n    begin",
        "Asked for by name",
        "it asks for more",
        "10 faults mended",
        "colours",
        "an optimiser",
        "tell the two apart",
        "one state a layer",
        "columns that say the same share what they are worth",
    ],
)
def test_a_word_would_be_found(text):
    assert words_in(text)
    assert words_in(f'f"{{x}} {text}"')


@pytest.mark.parametrize(
    "text",
    [
        "layers begin at multiples",
        "begin = 0",
        "recommended",
        "each row a layer",
        "amend",
        "GREY",
        "raise precise promise",
    ],
)
def test_other_words_may_be(text):
    assert words_in(text) == []
