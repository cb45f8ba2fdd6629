"""`python docs/check_links.py site`: each link from page to page of the site leads to a file, and a place in it."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Made by the theme for pages that are searched, not written.
_GENERATED = ("genindex.html", "search.html", "py-modindex.html")


class Page(HTMLParser):
    """Where a page links to, and the places in it that can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places |= {place for place in (found.get("id"), found.get("name")) if place}
        self.links += [target for target in (found.get("href"), found.get("src")) if target]


def broken_links(site: Path) -> list[str]:
    found = (path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts)
    pages = {path.resolve(): Page(path) for path in found}
    return [
        f"{path.relative_to(site.resolve())}: {link}"
        for path, page in pages.items()
        for link in dict.fromkeys(page.links)
        if not _leads_somewhere(path, link, pages)
    ]


def _leads_somewhere(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True  # elsewhere
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file() or not parts.fragment or target.name in _GENERATED or target not in pages:
        return target.is_file()
    return "=" in parts.fragment or unquote(parts.fragment) in pages[target].places  # else settings


def main(site: Path) -> None:
    if not (site / "index.html").is_file():
        sys.exit(f"{site} holds no index.html: build the site first")
    broken = broken_links(site)
    if broken:
        sys.exit("links that lead nowhere:\n" + "\n".join(broken))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
