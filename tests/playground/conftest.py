"""The playground on a port of its own, while a module's tests run, and Chromium."""

from threading import Thread

import pytest

from fracdnn.playground import Server
from tests.browser.chromium import browser, playwright

__all__ = ["browser", "playwright", "served"]


@pytest.fixture(scope="module")
def served():
    with Server(port=0) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield server
        server.shutdown()
