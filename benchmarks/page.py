"""The pages of results: `python -m benchmarks.page [FOLDER]` makes them from FOLDER/results/benchmarks.json (docs).

Their words stand in docs/benchmarks.md and docs/gpu.md and are written by hand; their tables, between
`<!-- benchmark NAME -->` and `<!-- end -->`, and the pictures are made from the results.
"""

import sys
from functools import partial
from pathlib import Path

from benchmarks.figures import FIGURES
from benchmarks.measures import Record
from benchmarks.tables import TABLES
from fracdnn.report.figures import save_figure
from records.keeping import read_file
from records.pages import fill_page
from records.pages import filled as filled_with

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("gpu.md", "benchmarks.md")


def filled(text: str, records: list[Record]) -> str:
    """The page with every table made anew."""
    return filled_with(text, "benchmark", lambda name: TABLES[name](records))


def make_page(folder: Path = DOCS) -> Path:
    """Write pages and pictures of the results in a folder, with the words of docs; returns the main page."""
    records = read_file(folder / "results" / "benchmarks.json")[1]
    for name in PAGES:
        fill_page(DOCS / name, partial(filled, records=records), folder / name)
    for name, draw in FIGURES.items():
        save_figure(folder / "images" / f"benchmark_{name}.png", draw(records))
    return folder / PAGES[-1]


if __name__ == "__main__":
    print(make_page(*(Path(argument) for argument in sys.argv[1:2])))
