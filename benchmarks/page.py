"""The pages of results: `python -m benchmarks.page [FOLDER]` makes them from FOLDER/results/benchmarks.json (docs).

Their words stand in docs/benchmarks.md and docs/gpu.md and are written by hand; their tables, between
`<!-- benchmark NAME -->` and `<!-- end -->`, and the pictures are made from the results.
"""

import sys
from pathlib import Path

from benchmarks.figures import FIGURES
from benchmarks.measures import Record
from benchmarks.results import read_results
from benchmarks.tables import TABLES
from fracdnn import files
from fracdnn.report.figures import save_figure

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("gpu.md", "benchmarks.md")


def filled(text: str, records: list[Record]) -> str:
    """The page with every table made anew."""
    return files.filled(text, "benchmark", lambda name: TABLES[name](records))


def make_page(folder: Path = DOCS) -> Path:
    """Write pages and pictures of the results in a folder, with the words of docs; returns the main page."""
    records = list(read_results(folder / "results" / "benchmarks.json").values())
    page = folder
    for name in PAGES:
        text = filled((DOCS / name).read_text(encoding="utf-8"), records)
        page = files.write_whole(
            folder / name, lambda temporary, text=text: temporary.write_text(text, encoding="utf-8")
        )
    for name, draw in FIGURES.items():
        save_figure(folder / "images" / f"benchmark_{name}.png", draw(records))
    return page


if __name__ == "__main__":
    print(make_page(*(Path(argument) for argument in sys.argv[1:2])))
