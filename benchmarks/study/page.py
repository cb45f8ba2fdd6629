"""docs/study.md and its picture: `python -m benchmarks.study.page [FILE …]`.

With files of `python -m benchmarks.study`, docs/results/study.json is made of them first. The words of the page are
written by hand; what stands between `<!-- study WORDS -->` and `<!-- end -->` is made from the results.
"""

import argparse
import json
from pathlib import Path

from benchmarks.study.figure import figure
from benchmarks.study.models import sources_hash
from benchmarks.study.parts import Results
from benchmarks.study.records import read_records
from benchmarks.study.runs import Record
from fracdnn import files
from fracdnn.experiments.records import line_of
from fracdnn.report.figures import save_figure

DOCS = Path(__file__).parents[2] / "docs"


def read_results(path: Path) -> list[Record]:
    return json.loads(path.read_text(encoding="utf-8"))


def write_results(path: Path, records: list[Record]) -> None:
    """A list in JSON, one line a record."""
    text = "[\n" + ",\n".join(line_of(record) for record in records) + "\n]\n"
    files.write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def filled(text: str, records: list[Record], sources: str) -> str:
    """The page with every marked place made anew; `sources` is the hash of ours that is not old."""
    return files.filled(text, "study", Results(records, sources).part)


def make_page(folder: Path = DOCS) -> Path:
    """From FOLDER/results/study.json, with the words of docs."""
    records = read_results(folder / "results" / "study.json")
    text = filled((DOCS / "study.md").read_text(encoding="utf-8"), records, sources_hash())
    drawing = figure(records)
    if drawing is not None:
        save_figure(folder / "images" / "study.png", drawing)
    return files.write_whole(folder / "study.md", lambda temporary: temporary.write_text(text, encoding="utf-8"))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="of two records of one run, the later")
    parser.add_argument("--docs", type=Path, default=DOCS, help="a folder for page, results and picture (docs)")
    told = parser.parse_args(argv)
    if told.files:
        records = {run: record for path in told.files for run, record in read_records(path).items()}
        write_results(told.docs / "results" / "study.json", [records[run] for run in sorted(records)])
    print(make_page(told.docs))


if __name__ == "__main__":
    main()
