"""docs/reproduction.md, made from docs/results.

A table stands between `<!-- table NAME INDEX -->` and `<!-- end -->` and is made from NAME.json among the results; the
ones called "claims" and "six" are made from all of them. A number in a sentence is between `<!-- value NAME KEY -->`
and `<!-- /value -->`.
"""

import re
from functools import cache, partial
from pathlib import Path

from records import pages
from reproduction.claims import all_claims, claims_table, six_table
from reproduction.parts import PARTS
from reproduction.running import read_numbers

DOCS = Path(__file__).parents[1] / "docs"


def filled(text: str, results: Path) -> str:
    """The page with every table and value made anew."""

    def table(name: str, index: str) -> str:
        if name in ("claims", "six"):
            found = (claims_table if name == "claims" else six_table)(all_claims(results))
        else:
            found = PARTS[name].tables(read_numbers(results / f"{name}.json"))[int(index)]
        return f"{found.title}:\n\n{found.markdown()}"

    @cache
    def values(name: str) -> dict[str, str]:
        return PARTS[name].values(read_numbers(results / f"{name}.json"))

    def value(match: re.Match[str]) -> str:
        opening, name, key, closing = match.groups()
        return f"{opening}{values(name)[key]}{closing}"

    text = pages.filled(text, "table", table)
    return re.sub(r"(<!-- value (\S+) (\S+) -->)[^<]*(<!-- /value -->)", value, text)


def make_page() -> Path:
    return pages.fill_page(DOCS / "reproduction.md", partial(filled, results=DOCS / "results"))
