"""Chromium for tests: fixtures, to be imported where they are used, and pages."""

import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = ["--no-sandbox", "--disable-gpu"]
DESK = {"width": 1280, "height": 900}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
PATIENCE = 120  # seconds: the machine may be busy


@pytest.fixture(scope="module")
def playwright():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: install the package chromium to test pages in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def browser(playwright):
    found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
    yield found
    found.close()


def new_page(browser, viewport=DESK, **options):
    """An empty page that waits long enough."""
    page = browser.new_page(viewport=viewport, **options)
    page.set_default_timeout(1000 * PATIENCE)
    return page


def watched(page, origin, messages=("error", "warning")):
    """A list of what must stay empty: such `messages`, errors, dialogs and requests that leave `origin`."""
    wrong = []
    own = (origin, "data:", "blob:")
    page.on("console", lambda message: wrong.append(message.text) if message.type in messages else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: None if request.url.startswith(own) else wrong.append(request.url))
    return wrong
