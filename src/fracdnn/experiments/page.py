"""Tables of results in a page of text: `python -m fracdnn.experiments.page PAGE RESULTS` fills them in.

A table stands between `<!-- table NAME INDEX -->` and `<!-- end -->`; it is made from NAME.json among the results.
"""

import json
import sys
from pathlib import Path

from fracdnn import files
from fracdnn.experiments.parts import PARTS


def filled(text: str, results: Path) -> str:
    """The page with every table made anew."""

    def table(name: str, index: str) -> str:
        numbers = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))["numbers"]
        found = PARTS[name].tables(numbers)[int(index)]
        return f"{found.title}:\n\n{found.markdown()}"

    return files.filled(text, "table", table)


def main(page: Path, results: Path) -> None:
    text = filled(page.read_text(encoding="utf-8"), results)
    files.write_whole(page, lambda temporary: temporary.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:3]))
