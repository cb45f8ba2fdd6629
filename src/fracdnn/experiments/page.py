"""Results in a page of text: `python -m fracdnn.experiments.page PAGE RESULTS` fills them in.

A table stands between `<!-- table NAME INDEX -->` and `<!-- end -->` and is made from NAME.json among the results; the
one called "claims" is made from all of them. A number in a sentence stands between `<!-- value NAME KEY -->` and
`<!-- /value -->`.
"""

import re
import sys
from functools import cache
from pathlib import Path

from fracdnn import files
from fracdnn.experiments.claims import all_claims, claims_table
from fracdnn.experiments.parts import PARTS
from fracdnn.experiments.results import read_result


def filled(text: str, results: Path) -> str:
    """The page with every table and value made anew."""

    def table(name: str, index: str) -> str:
        if name == "claims":
            found = claims_table(all_claims(results))
        else:
            found = PARTS[name].tables(read_result(results / f"{name}.json")["numbers"])[int(index)]
        return f"{found.title}:\n\n{found.markdown()}"

    @cache
    def values(name: str) -> dict[str, str]:
        return PARTS[name].values(read_result(results / f"{name}.json")["numbers"])

    def value(match: re.Match[str]) -> str:
        opening, name, key, closing = match.groups()
        return f"{opening}{values(name)[key]}{closing}"

    text = files.filled(text, "table", table)
    return re.sub(r"(<!-- value (\S+) (\S+) -->)[^<]*(<!-- /value -->)", value, text)


def main(page: Path, results: Path) -> None:
    text = filled(page.read_text(encoding="utf-8"), results)
    files.write_whole(page, lambda temporary: temporary.write_text(text, encoding="utf-8"))


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:3]))
