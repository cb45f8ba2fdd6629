"""The page of results: its words stand in docs/transformers.md and are written by hand; what stands between
`<!-- gpt NAME -->` and `<!-- end -->`, the verdict among it, and the pictures are made from results/gpt.json.
"""

from collections.abc import Iterable
from pathlib import Path

from examples.gpt.comparison import comparisons
from examples.gpt.figures import FIGURES
from examples.gpt.records import NAME, Record, read_runs
from examples.gpt.tables import NOT_MEASURED, PARTS
from fracdnn import files
from fracdnn.report.figures import save_figure

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "transformers.md"


def filled(text: str, runs: Iterable[Record]) -> str:
    """The page with every part made anew."""
    found = comparisons(runs)
    return files.filled(text, "gpt", lambda name: PARTS[name](found) if found else NOT_MEASURED)


def make_page(folder: Path = DOCS) -> Path:
    """Write page and pictures of the results in a folder; the words are always those of docs/transformers.md."""
    runs = list(read_runs(folder / "results" / NAME).values())
    text = filled((DOCS / PAGE).read_text(encoding="utf-8"), runs)
    page = files.write_whole(folder / PAGE, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    found = comparisons(runs)
    for name, draw in FIGURES.items() if found else ():
        save_figure(folder / "images" / f"gpt-{name}.png", draw(found))
    return page
