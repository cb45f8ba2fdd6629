"""Tutorials as notebooks: the same programs, and links that lead to the site."""

import json
import sys

import pytest

from tests.studies.docs.building import ROOT, site  # noqa: F401
from tests.test_readme import blocks_of

sys.path.insert(0, str(ROOT / "docs" / "_site"))
notebooks = pytest.importorskip("notebooks", reason="the extra docs is not installed")

TUTORIALS = [page for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")) if page.stem != "index"]
ADDRESS = "https://example.org/0.1/"


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_notebook_is_the_tutorials_program(page):
    notebook = notebooks.notebook_of(page.read_text(encoding="utf-8"), ADDRESS, "tutorials")
    first, *cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert first.startswith("%pip install")
    expected = [(language, code.strip()) for language, code in blocks_of(page) if language != "text"]
    commands = ["\n".join(f"!{line}" for line in code.splitlines()) for _, code in expected]
    assert cells == [code if language == "python" else commands[n] for n, (language, code) in enumerate(expected)]
    texts = "".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    assert ".md)" not in texts
    assert "](.." not in texts
    assert f"]({ADDRESS}" in texts


def test_where_links_lead():
    page = "[a](order.md#x) [b](../solver.md) [c](https://d.org) [e](#f) ![g](../images/h.png)"
    (_, cell) = notebooks.notebook_of(page, ADDRESS, "tutorials")["cells"]
    links = f"[a]({ADDRESS}tutorials/order.html#x) [b]({ADDRESS}solver.html) [c](https://d.org) [e](#f) *g*"
    assert "".join(cell["source"]) == links


def test_colab_and_binder_open_it_once_the_repository_has_an_address():
    urls = {"Repository": "https://github.com/FILL-IN/fracdnn"}
    assert list(notebooks.links_of("digits", urls, "0.1")) == ["Download as a notebook"]
    links = notebooks.links_of("digits", {"Repository": "https://github.com/someone/fracdnn"}, "0.1")
    assert links["Open in Colab"].endswith("/github/someone/fracdnn/blob/gh-pages/0.1/notebooks/digits.ipynb")
    assert links["Open in Binder"].endswith("/gh/someone/fracdnn/gh-pages?urlpath=lab/tree/0.1/notebooks/digits.ipynb")


def test_the_site_has_them(site):  # noqa: F811
    made = {path.stem for path in (site / "notebooks").glob("*.ipynb")}
    assert made >= {page.stem for page in TUTORIALS} | {
        path.stem for path in (ROOT / "examples/gallery").glob("plot_*.py")
    }
    gallery = json.loads((site / "notebooks" / "plot_springpots.ipynb").read_text(encoding="utf-8"))
    assert "".join(gallery["cells"][0]["source"]).startswith("%pip install")
    assert 'href="../notebooks/digits.ipynb"' in (site / "tutorials" / "digits.html").read_text(encoding="utf-8")
