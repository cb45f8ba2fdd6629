"""Pages whose words are written by hand, with marked places for what is made from results."""

import re
from collections.abc import Callable
from pathlib import Path

from fracdnn.files import write_whole


def filled(text: str, mark: str, make: Callable[..., str]) -> str:
    """The text with what stands between `<!-- MARK WORDS -->` and `<!-- end -->` made anew of the words."""

    def place(match: re.Match[str]) -> str:
        opening, words, closing = match.groups()
        return f"{opening}\n{make(*words.split())}\n\n{closing}"

    return re.sub(rf"(<!-- {mark} ([^\n]+?) -->\n).*?(<!-- end -->)", place, text, flags=re.DOTALL)


def fill_page(page: Path, fill: Callable[[str], str], target: Path | None = None) -> Path:
    """Write what `fill` makes of a page's text, in its place or as another page."""
    text = fill(page.read_text(encoding="utf-8"))
    return write_whole(target or page, lambda temporary: temporary.write_text(text, encoding="utf-8"))
