"""docs/study.md and its picture: `python -m benchmarks.study.page [FILE …]`.

With files of `python -m benchmarks.study`, docs/results/study.json is made of them first. The words of the page are
written by hand; what stands between `<!-- study WORDS -->` and `<!-- end -->` is made from the results.
"""

import argparse
from functools import partial
from pathlib import Path

from benchmarks.study.figure import figure
from benchmarks.study.parts import Results
from benchmarks.study.runs import Record, Run
from fracdnn.report.figures import save_figure
from records import pages
from records.keeping import read_file, write_file

DOCS = Path(__file__).parents[2] / "docs"


def filled(text: str, records: list[Record]) -> str:
    """The page with every marked place made anew."""
    return pages.filled(text, "study", Results(records).part)


def make_page(folder: Path = DOCS) -> Path:
    """From FOLDER/results/study.json, with the words of docs."""
    records = read_file(folder / "results" / "study.json")[1]
    drawing = figure(records)
    if drawing is not None:
        save_figure(folder / "images" / "study.png", drawing)
    return pages.fill_page(DOCS / "study.md", partial(filled, records=records), folder / "study.md")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="of two records of one run, the later")
    parser.add_argument("--docs", type=Path, default=DOCS, help="a folder for page, results and picture (docs)")
    told = parser.parse_args(argv)
    if told.files:
        records = {Run.of(record): record for path in told.files for record in read_file(path)[1]}
        write_file(told.docs / "results" / "study.json", {}, [records[run] for run in sorted(records)])
    print(make_page(told.docs))


if __name__ == "__main__":
    main()
