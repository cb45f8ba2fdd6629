"""Frames a second of the playground while it trains, in Chromium: `python -m benchmarks.playground [SETTINGS …]`.

SETTINGS are parts of addresses such as `layers=35&width=4`. A frame is one call that the browser makes to draw. On a
busy machine frames wait for others: what a frame takes of the page's own thread says what an idle machine could do.
"""

import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

PAGE = (Path(__file__).parents[1] / "docs" / "playground" / "index.html").as_uri()
CASES = (
    "layers=35&width=4&points=300&speed=0",
    "layers=35&width=4&points=300&speed=0&learn=1",
    "layers=35&width=4&points=300&speed=0&compare=residual",
    "layers=60&width=8&points=300&speed=0",
)
COUNT = """async (milliseconds) => {
    const before = playground.arms[0].steps, waits = [];
    let last = performance.now();
    const end = last + milliseconds;
    while (last < end) {
        const now = await new Promise((resolve) => requestAnimationFrame(() => resolve(performance.now())));
        waits.push(now - last);
        last = now;
    }
    waits.sort((a, b) => a - b);
    return [waits.length, playground.arms[0].steps - before, waits[Math.floor(0.95 * waits.length)]];
}"""


class Measured(NamedTuple):
    """By second: frames and steps; then milliseconds: the wait that one frame in twenty exceeds, the thread's time."""

    frames: float
    steps: float
    wait: float
    thread: float


def measured(page: Any, settings: str, seconds: float = 5.0) -> Measured:
    page.goto("about:blank")
    page.goto(f"{PAGE}#{settings}")
    page.wait_for_selector("#scores tbody tr")
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def thread_seconds() -> float:
        metrics = tools.send("Performance.getMetrics")["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    page.click("#play")
    page.wait_for_timeout(2000)  # until the browser has compiled it
    before = thread_seconds()
    frames, steps, wait = page.evaluate(COUNT, 1000 * seconds)
    thread = 1000 * (thread_seconds() - before) / frames
    tools.detach()
    return Measured(frames / seconds, steps / seconds, wait, thread)


def main(cases: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 960})
        print("frames/s  steps/s  95 % within, ms  thread, ms a frame")
        for settings in cases:
            found = measured(page, settings)
            print(f"{found.frames:8.1f} {found.steps:8.1f} {found.wait:16.1f} {found.thread:19.1f}    {settings}")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:] or list(CASES))
