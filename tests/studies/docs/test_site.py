"""The site: every page, in a browser; names, examples and links; and what a new reader finds how fast."""

import re
import sys
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import torch

from tests.browser.axe import serious_faults
from tests.browser.chromium import PHONE, browser, new_page, playwright, watched  # noqa: F401
from tests.studies.docs.building import ROOT, site  # noqa: F401

sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "docs" / "_site")]

import check_links  # noqa: E402
from check_links import Page, broken_links  # noqa: E402
from fresh import torch_defaults  # noqa: E402
from names import described  # noqa: E402


class Quiet(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture(scope="module")
def address(site):  # noqa: F811
    """Where the site is served, as it would be from static files."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def pages_of(folder):
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*.html"))
    return sorted(path for path in found if not path.startswith("_static"))


def test_every_page_opens_without_errors_or_outside_requests(browser, site, address):  # noqa: F811
    """On a phone, where nothing but tables and code may be wider than the screen."""
    pages = pages_of(site)
    assert len(pages) > 35
    page = new_page(browser, viewport=PHONE["viewport"])
    wrong = watched(page, address)
    wide = []
    for path in pages:
        assert page.goto(address + path).ok
        if page.evaluate("document.documentElement.scrollWidth - window.innerWidth") > 0:
            wide.append(path)
    assert (wrong, wide) == ([], [])
    page.close()


@pytest.mark.parametrize(("scheme", "other"), [("light", "reference/optim.html"), ("dark", "explanation/l1.html")])
def test_accessible_in_light_and_dark(browser, address, scheme, other):  # noqa: F811
    page = new_page(browser, color_scheme=scheme)
    for path in ("index.html", other):
        page.goto(address + path)
        assert page.get_attribute("html", "data-theme") == scheme
        assert serious_faults(page) == [], path
    page.close()


# What a new reader looks for: the links to follow from the front page, and the title found there.
WAYS = {
    "the order": (["How do I choose the order?"], "Choose an order"),
    "the order, by the navigation": (["How-to", "Choose an order"], "Choose an order"),
    "own layers": (["How do I use it with my own layers?"], "Use your own layers"),
    "an equation": (["How do I fit an equation to measurements?"], "Fit a fractional equation"),
    "accuracy": (["How accurate is it, and how fast?"], "Measured"),
    "accuracy of the solver": (["Measured", "table"], "The solver: fdeint"),
    "a class": (["Reference", "fracdnn.nn", "FractionalStack"], "Layers with memory: fracdnn.nn"),
}


@pytest.mark.parametrize("what", WAYS)
def test_a_new_reader_finds_in_three_clicks(browser, address, what):  # noqa: F811
    links, title = WAYS[what]
    assert len(links) <= 3
    page = new_page(browser)
    page.goto(address + "index.html")
    for link in links:
        page.get_by_role("link", name=link, exact=True).first.click()
        page.wait_for_load_state()
    assert page.inner_text("h1").removesuffix("#").strip() == title
    page.close()


def test_search_finds_a_name(browser, address):  # noqa: F811
    page = new_page(browser)
    wrong = watched(page, address)
    page.goto(address + "search.html?q=parameter_groups")
    page.wait_for_selector("#search-results li a")
    assert "nn.html" in page.inner_html("#search-results")
    assert wrong == []
    page.close()


# Words that users type, and a page that has to be among the first twelve results.
SEARCHES = {
    "uncertainty": "how-to/how-sure.html",
    "Excel sheet": "tutorials/table.html",
    "stiff": "solver.html",
    "slow": "how-to/gpu.html",
    "GPU memory": "how-to/deep-stacks.html",
    "ensemble": "estimators.html",
}


@pytest.mark.parametrize("words", SEARCHES)
def test_search_finds_what_users_call_it(browser, address, words):  # noqa: F811
    page = new_page(browser)
    page.goto(f"{address}search.html?q={words.replace(' ', '+')}")
    page.wait_for_selector(f"#search-results li:nth-child(-n+12) > a[href^='{SEARCHES[words]}']")
    page.close()


def test_code_fits_a_screen_of_1280_pixels(browser, site, address):  # noqa: F811
    """Between the side bars; what developers read on the page about contributing may scroll."""
    page = new_page(browser, viewport={"width": 1280, "height": 800})
    too_wide = "[...document.querySelectorAll('.highlight pre')].some(block => block.scrollWidth > block.clientWidth)"
    wide = []
    for path in pages_of(site):
        page.goto(address + path)
        if page.evaluate(too_wide):
            wide.append(path)
    assert {*wide} <= {"reference/contributing.html"}
    page.close()


class Prose(HTMLParser):
    """What a page says outside of code, signatures and formulas."""

    LEFT_OUT = ("code", "pre", "script", "style", "math", "head")

    def __init__(self, path):
        super().__init__()
        self.inside, self.text = [], ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        if self.inside[-1:] == [tag] or tag in self.LEFT_OUT or "sig" in (dict(attrs).get("class") or "").split():
            self.inside.append(tag)

    def handle_endtag(self, tag):
        if self.inside[-1:] == [tag]:
            self.inside.pop()

    def handle_data(self, data):
        self.text += "" if self.inside else data


RAW_FORMULA = re.compile(r"[^\W\d_)\]]\^[\w({−-]\S*|[)\]]\^\S+|\b[^\W\d_]_(?:\{|[^\W_]{1,2}\b)\S*")


@pytest.mark.parametrize("folder", [".", "explanation", "gallery", "how-to", "reference", "start", "tutorials"])
def test_formulas_are_typeset(site, folder):  # noqa: F811
    left_out = ("changelog", "genindex")
    pages = [path for path in sorted((site / folder).glob("*.html")) if path.stem not in left_out]
    raw = {path.stem: RAW_FORMULA.findall(Prose(path).text) for path in pages}
    assert {name: found for name, found in raw.items() if found} == {}


def test_a_raw_formula_would_be_found():
    for text in ("Σ_k H_jk", "t^γ", "d_t^0.5", "f_{j−1}", "(j/n)^grading"):
        assert RAW_FORMULA.findall(text)
    assert RAW_FORMULA.findall("n_features, classes_ and s^, y_true") == []


def test_every_script_of_the_gallery_has_a_card_with_its_title():
    cards = (ROOT / "examples" / "gallery" / "index.rst").read_text(encoding="utf-8")
    found = re.findall(r"grid-item-card:: (.+)\n +:link: (plot_\w+)\n(?: +:.*\n)+\n +(\S.+)\n", cards)
    scripts = sorted((ROOT / "examples" / "gallery").glob("plot_*.py"))
    titles = {path.stem: path.read_text(encoding="utf-8").splitlines()[1] for path in scripts}
    assert {name: title for title, name, _ in found} == titles
    assert all(". " not in sentence and sentence.endswith(".") for _, _, sentence in found)


def test_links_lead_somewhere(site):  # noqa: F811
    assert broken_links(site) == []


def test_a_folder_that_is_no_site_has_no_links_to_praise(tmp_path):
    with pytest.raises(SystemExit, match=r"holds no index\.html: build the site first"):
        check_links.main(tmp_path)


def test_a_script_of_the_gallery_does_not_find_the_torch_of_the_one_before():
    torch.set_default_dtype(torch.float64)
    try:
        torch_defaults({}, "plot_next.py")
        assert torch.empty(0).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<a href="b.html#here"></a><a href="b.html#gone"></a><img src="c.png">')
    (tmp_path / "b.html").write_text('<p id="here"></p><a href="https://elsewhere.org/x"></a><a href="#"></a>')
    assert broken_links(tmp_path) == ["a.html: b.html#gone", "a.html: c.png"]


def test_every_public_name_has_docstring_and_example(site):  # noqa: F811
    pages = {path.stem: Page(path).places for path in (site / "reference").glob("*.html")}
    for home in described().values():
        found = [name for name, places in pages.items() if home in places]
        assert len(found) == 1, f"{home} is described on {len(found)} pages of docs/reference; it has to be on one"
        source = (ROOT / "docs" / "reference" / f"{found[0]}.md").read_text(encoding="utf-8")
        examples = " ".join(re.findall(r"```python\n(.*?)```", source, flags=re.DOTALL))
        if ".exceptions." not in home:
            assert re.search(rf"\b{home.rpartition('.')[2]}\b", examples), f"{home} is in no example of {found[0]}.md"
