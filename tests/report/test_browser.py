"""What a reader sees of a report in Chromium, and does with it."""

import pytest

from tests.browser.axe import serious_faults
from tests.browser.chromium import PHONE, new_page, watched
from tests.report.cases import CASES, INJECTION
from tests.slow import slow_but

DRAWN = "[...document.querySelectorAll('svg')].map((picture) => picture.getBoundingClientRect().height)"


def opened(browser, path, **options):
    """The page with every plot drawn, and a list of what must stay empty: errors, dialogs, requests elsewhere."""
    page = new_page(browser, **options)
    wrong = watched(page, "file:", messages=("error",))
    page.goto(path.as_uri())
    drawn = page.evaluate(DRAWN)
    assert len(drawn) >= 4
    assert min(drawn) > 100
    return page, wrong


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


# Numbers of the text that stand on more than one line, or reach out of their card; plots draw their own.
BROKEN_NUMBERS = r"""() => {
  const pattern = /(?<![^\s(“])[−+-]?\d[\d.,]*(?:e[+-]?\d+|×10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?%?(?=[\s.,;:)”]|$)/gu;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const broken = [];
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (node.parentElement.closest("script, style, svg")) continue;
    const card = node.parentElement.closest(".scrolled, section, .tiles > div");
    for (const found of node.data.matchAll(pattern)) {
      const range = document.createRange();
      range.setStart(node, found.index);
      range.setEnd(node, found.index + found[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      const inside = !card || card.matches(".scrolled")
        || range.getBoundingClientRect().right <= card.getBoundingClientRect().right;
      if (lines.size > 1 || !inside) broken.push(found[0]);
    }
  }
  return broken;
}"""


class TestNumbers:
    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("prices", {}),
            pytest.param("twenty", PHONE, marks=pytest.mark.slow),
            pytest.param("prices", PHONE, marks=pytest.mark.slow),
            pytest.param("twenty", {"viewport": {"width": 900, "height": 700}}, marks=pytest.mark.slow),
        ],
    )
    def test_numbers_are_never_broken(self, browser, cases, name, options):
        page, wrong = opened(browser, cases[name][3], **options)
        page.locator("summary").last.click()
        assert page.locator(".tiles .number").count() >= 4
        assert page.evaluate(BROKEN_NUMBERS) == []
        assert overflow(page) <= 0
        assert wrong == []
        # Broken ones would be found.
        page.add_style_tag(
            content=".number { white-space: normal; overflow-wrap: anywhere; display: block; width: 2em }"
        )
        assert len(page.evaluate(BROKEN_NUMBERS)) >= 4
        page.close()


class TestAccessibility:
    @pytest.mark.parametrize(
        ("name", "scheme"),
        [
            ("iris", "dark"),
            pytest.param("prices", "light", marks=pytest.mark.slow),
            pytest.param("prices", "dark", marks=pytest.mark.slow),
            pytest.param("iris", "light", marks=pytest.mark.slow),
            pytest.param("twenty", "light", marks=pytest.mark.slow),
            pytest.param("twenty", "dark", marks=pytest.mark.slow),
        ],
    )
    def test_axe_finds_no_serious_fault(self, browser, cases, name, scheme):
        page, _ = opened(browser, cases[name][3], color_scheme=scheme)
        page.locator("summary").last.click()
        assert serious_faults(page) == []
        # One would be found.
        faint = {"light": "#eeeeee", "dark": "#222b38"}[scheme]
        page.evaluate(f"document.querySelector('.headline').style.color = '{faint}'")
        assert any("color-contrast" in fault for fault in serious_faults(page))
        page.close()


class TestBrowser:
    @pytest.mark.parametrize("name", slow_but(["four classes"], CASES))  # other tests open the other cases
    def test_every_plot_is_drawn_without_a_fault(self, browser, cases, name):
        page, wrong = opened(browser, cases[name][3])
        assert wrong == []
        page.close()

    def test_colors_follow_the_system(self, browser, cases):
        page, wrong = opened(browser, cases["iris"][3], color_scheme="dark")
        color = "getComputedStyle(document.querySelector('svg text')).fill"
        assert page.evaluate(color) == "rgb(228, 233, 240)"
        page.emulate_media(color_scheme="light")
        assert page.evaluate(color) == "rgb(28, 36, 48)"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(244, 245, 247)"
        assert wrong == []
        page.close()

    def test_phone_shows_one_column_without_sideways_scrolling(self, browser, cases):
        page, wrong = opened(browser, cases["twenty"][3], **PHONE)
        assert overflow(page) <= 0
        lefts = {box["x"] for box in (each.bounding_box() for each in page.locator("main section").all())}
        assert len(lefts) == 1
        assert wrong == []
        page.close()

    def test_names_are_shown_as_they_are(self, browser, cases):
        page, wrong = opened(browser, cases["bad names"][3])
        assert page.title() == INJECTION
        assert page.inner_text("h1") == INJECTION
        texts = page.locator("svg text").all_text_contents()
        assert {"</script><scr…", "<b>%{x} & y", "$x$"} <= set(texts)
        assert wrong == []
        page.close()
