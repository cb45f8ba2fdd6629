"""The page of results: its words stand in docs/transformers.md and are written by hand; what stands between
`<!-- gpt NAME -->` and `<!-- end -->` is made from results/gpt.json.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from examples.gpt.comparison import comparisons
from examples.gpt.tables import NOT_MEASURED, PARTS
from examples.gpt.training import NAME, Record
from records import pages
from records.keeping import read_file

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "transformers.md"


def filled(text: str, runs: Iterable[Record]) -> str:
    """The page with every part made anew."""
    found = comparisons(runs)
    return pages.filled(text, "gpt", lambda name: PARTS[name](found) if found else NOT_MEASURED)


def make_page(folder: Path = DOCS) -> Path:
    """Write the page of the results in a folder; the words are always those of docs/transformers.md."""
    runs = read_file(folder / "results" / NAME)[1]
    return pages.fill_page(DOCS / PAGE, partial(filled, runs=runs), folder / PAGE)
