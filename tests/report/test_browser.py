"""What a reader sees of a report in Chromium, and does with it."""

import pytest

from tests.browser.axe import serious_faults
from tests.browser.chromium import PHONE, new_page, watched
from tests.report.cases import CASES, INJECTION, flow_of
from tests.slow import slow_but

DRAWN = "[...document.querySelectorAll('.plot')].map((plot) => plot.querySelectorAll('svg').length)"


def opened(browser, path, **options):
    """The page with every plot drawn, and a list of what must stay empty: errors, dialogs, requests elsewhere."""
    page = new_page(browser, **options)
    wrong = watched(page, "file:", messages=("error",))
    page.goto(path.as_uri())
    page.wait_for_selector("#theme", state="visible")
    drawn = page.evaluate(DRAWN)
    assert len(drawn) >= 4
    assert all(drawn)
    return page, wrong


def plotted(page, name="flow", axis="x"):
    return page.evaluate(f"document.getElementById('{name}').data.map((trace) => Array.from(trace.{axis}))")


def joined(parts):
    return [number for part in parts for number in part]


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


# Numbers of the text that stand on more than one line, or reach out of their card; plots draw their own.
BROKEN_NUMBERS = r"""() => {
  const pattern = /(?<![^\s(“])[−+-]?\d[\d.,]*(?:e[+-]?\d+|×10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?%?(?=[\s.,;:)”]|$)/gu;
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const broken = [];
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (node.parentElement.closest("script, style, svg, .plot")) continue;
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
        page.locator("summary").click()
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
        page.locator("summary").click()
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

    def test_the_key_switches_a_class_in_all_small_plots(self, browser, cases):
        page, wrong = opened(browser, cases["iris"][3])
        visible = "[...document.querySelectorAll('.small')].map((plot) => plot.data.map((t) => t.visible !== false))"
        before = page.evaluate(visible)
        assert len(before) >= 2
        assert all(all(plot) for plot in before)
        page.locator("section", has=page.locator(".small")).locator(".key button").first.click()
        assert page.evaluate(visible) == [[False, *plot[1:]] for plot in before]
        assert wrong == []
        page.close()

    def test_slider_moves_the_points(self, browser, cases):
        path = cases["iris"][3]
        page, wrong = opened(browser, path)
        places = flow_of(path)
        assert joined(plotted(page)) == pytest.approx(places[4, :, 0].tolist())
        assert page.inner_text("#state-name") == "state 4 of 4"
        page.focus("#state")
        page.keyboard.press("Home")
        assert joined(plotted(page)) == pytest.approx(places[0, :, 0].tolist())
        page.keyboard.press("ArrowRight")
        assert joined(plotted(page)) == pytest.approx(places[1, :, 0].tolist())
        assert joined(plotted(page, axis="y")) == pytest.approx(places[1, :, 1].tolist())
        assert page.inner_text("#state-name") == "state 1 of 4"
        ranges = page.evaluate("document.getElementById('flow').layout.xaxis.range")
        box = page.locator("#state").bounding_box()
        page.mouse.click(box["x"] + box["width"] - 3, box["y"] + box["height"] / 2)
        assert joined(plotted(page)) == pytest.approx(places[4, :, 0].tolist())
        assert page.evaluate("document.getElementById('flow').layout.xaxis.range") == ranges
        page.click("#play")
        assert page.inner_text("#play") == "Pause"
        page.wait_for_selector("text=state 2 of 4")
        page.click("#play")
        assert page.inner_text("#play") == "Play"
        assert wrong == []
        page.close()

    def test_theme_follows_the_system_and_the_button(self, browser, cases, tmp_path):
        page, wrong = opened(browser, cases["iris"][3], color_scheme="dark")
        color = "document.getElementById('training').layout.font.color"
        assert page.evaluate(color) == "#e4e9f0"
        dark = page.screenshot(path=tmp_path / "dark.png")
        page.get_by_role("button", name="switch to light colors").click()
        assert page.evaluate(color) == "#1c2430"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(244, 245, 247)"
        assert page.screenshot(path=tmp_path / "light.png") != dark
        page.emulate_media(color_scheme="light")
        page.get_by_role("button", name="switch to dark colors").click()
        assert page.evaluate(color) == "#e4e9f0"
        assert wrong == []
        page.close()

    def test_phone_shows_one_column_without_sideways_scrolling(self, browser, cases):
        page, wrong = opened(browser, cases["twenty"][3], **PHONE)
        assert overflow(page) <= 0
        assert page.locator("#state").bounding_box()["height"] >= 44
        first, second = (page.locator(f"#{name}").bounding_box() for name in ("confusion", "regions"))
        assert first["x"] == second["x"]
        before = plotted(page)
        box = page.locator("#state").bounding_box()
        page.locator("#state").tap(position={"x": 3, "y": box["height"] / 2})
        assert plotted(page) != before
        assert wrong == []
        page.close()

    @pytest.mark.slow  # as the key of the small plots does, above
    def test_classes_are_hidden_and_shown_by_the_key(self, browser, cases):
        page, wrong = opened(browser, cases["level set"][3])
        visible = "document.getElementById('regions').data.map((trace) => trace.visible !== false)"
        button = page.locator("section", has=page.locator("#regions")).get_by_role("button", name="1")
        button.click()
        assert page.evaluate(visible) == [True, True, False]
        button.click()
        assert page.evaluate(visible) == [True, True, True]
        assert wrong == []
        page.close()

    @pytest.mark.slow  # the slider of classes, above, has the same flow
    def test_regression(self, browser, cases):
        path = cases["peaks"][3]
        page, wrong = opened(browser, path)
        page.focus("#state")
        page.keyboard.press("Home")
        assert plotted(page)[0] == pytest.approx(flow_of(path)[0, :, 0].tolist())
        assert wrong == []
        page.close()

    def test_names_are_shown_as_they_are(self, browser, cases):
        page, wrong = opened(browser, cases["bad names"][3])
        assert page.title() == INJECTION
        assert page.inner_text("h1") == INJECTION
        ticks = page.locator("#confusion .ytick text").all_text_contents()
        assert ticks == ["</script><script>…", "<b>%{x} & y"]
        assert page.locator("#regions .xtitle").text_content().startswith("</script><script>")
        assert page.locator("#regions .ytitle").text_content() == "$x$"
        assert wrong == []
        page.close()
