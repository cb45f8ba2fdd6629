"""`python docs/report_picture.py`: docs/images/report.png, the report of the run that docs/tutorials/table.md tells of.

Needs the extra dev (Playwright) and Chromium.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WIDTH, HEIGHT = 1280, 1000


def tutorial() -> tuple[str, list[str]]:
    """What the page writes the table with, and its commands."""
    text = (HERE / "tutorials" / "table.md").read_text(encoding="utf-8")
    table = re.findall(r"```python\n(.+?)```", text, re.DOTALL)[0]
    commands = [
        block for block in re.findall(r"```sh\n(.+?)```", text, re.DOTALL) if "train" in block or "report" in block
    ]
    return table, commands


def main(target: Path) -> None:
    from playwright.sync_api import sync_playwright

    table, commands = tutorial()
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        subprocess.run([sys.executable, "-c", table], cwd=folder, check=True)
        for command in commands:
            subprocess.run([sys.executable, "-m", *command.split()], cwd=folder, check=True)
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--enable-unsafe-swiftshader"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto((Path(folder) / "report.html").as_uri())
        page.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else HERE / "images" / "report.png")
