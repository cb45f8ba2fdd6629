"""The playground's page in Chromium, opened from the file system: asked, waited for."""

import json
from pathlib import Path

from tests.browser.chromium import PATIENCE, new_page, watched

STATIC = Path(__file__).parents[2] / "docs" / "playground"
ADDRESS = (STATIC / "index.html").as_uri()


def opened(browser, settings="", **options):
    """The page with these settings, ready, and a list of what must stay empty."""
    page = new_page(browser, **options)
    wrong = watched(page, STATIC.as_uri())
    page.goto(f"{ADDRESS}#{settings}")
    until(page, "document.getElementById('status').textContent !== ''")
    return page, wrong


def until(page, condition, seconds=PATIENCE):
    """Wait for a condition; playwright's own way needs `eval`, which the page does not allow."""
    page.evaluate(
        f"""async (milliseconds) => {{
            const end = performance.now() + milliseconds;
            while (!({condition})) {{
                if (performance.now() > end) throw new Error("it did not come");
                await new Promise(requestAnimationFrame);
            }}
        }}""",
        1000 * seconds,
    )


def until_told(page, text):
    until(page, f"document.getElementById('status').textContent.includes({json.dumps(text)})")


def inside(page, expression):
    """Return the value of JavaScript in which `playground` is the page's own."""
    return page.evaluate(f"async () => {expression}")


def settled(page):
    """Wait until everything is drawn."""
    page.evaluate("""async () => {
        while (playground.frame !== null || playground.unfinished.size) await new Promise(requestAnimationFrame);
    }""")


def picture(page, selector):
    """What a canvas shows."""
    settled(page)
    return page.evaluate("(selector) => document.querySelector(selector).toDataURL()", selector)
