"""Frames a second of the playground while it trains, in Chromium: `python -m benchmarks.playground [SETTINGS …]`.

SETTINGS are addresses' parts such as `layers=35&width=4`. A frame is one call that the browser makes to draw; the last
column is the longest wait between two that one in twenty exceeds.
"""

import shutil
import sys
from threading import Thread

from fracdnn.playground import Server

CASES = (
    "layers=35&width=4&points=300&speed=0",
    "layers=35&width=4&points=300&speed=0&learn=1",
    "layers=35&width=4&points=300&speed=0&compare=residual",
    "layers=60&width=8&points=300&speed=0",
)
COUNT = """async (milliseconds) => {
    const { playground } = await import("/main.js");
    const before = playground.arms[0].steps, waits = [];
    let last = performance.now();
    const end = last + milliseconds;
    while (last < end) {
        const now = await new Promise((resolve) => requestAnimationFrame(() => resolve(performance.now())));
        waits.push(now - last);
        last = now;
    }
    waits.sort((a, b) => a - b);
    const seconds = waits.reduce((sum, wait) => sum + wait) / 1000;
    const steps = (playground.arms[0].steps - before) / seconds;
    return [waits.length / seconds, steps, waits[Math.floor(0.95 * waits.length)]];
}"""


def measured(page, address, settings, seconds=5.0):
    """Frames a second, steps a second, and the wait in milliseconds that one frame in twenty exceeds."""
    page.goto("about:blank")
    page.goto(f"{address}#{settings}")
    page.wait_for_function("document.getElementById('status').textContent !== ''")
    page.click("#play")
    page.wait_for_timeout(1500)  # until the browser has compiled it
    return page.evaluate(COUNT, 1000 * seconds)


def main(cases):
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with Server(port=0) as server, sync_playwright() as playwright:
        Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 960})
        print("frames/s  steps/s  95 % of frames within, ms")
        for settings in cases:
            frames, steps, wait = measured(page, server.address, settings)
            print(f"{frames:8.1f} {steps:8.1f} {wait:12.1f}    {settings}")
        browser.close()
        server.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:] or CASES)
