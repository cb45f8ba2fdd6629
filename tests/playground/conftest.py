"""Chromium for the playground's tests."""

from tests.browser.chromium import browser, playwright

__all__ = ["browser", "playwright"]
