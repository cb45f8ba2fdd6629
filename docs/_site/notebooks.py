"""A notebook of each tutorial and of each script of the gallery, in notebooks/ of the site, with links that open it.

Links to Colab and Binder appear once pyproject.toml names the repository: both open notebooks from its branch gh-pages.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

INSTALL = "%pip install --quiet 'fracdnn[all]'"
PLACEHOLDER = "FILL-IN"
_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n?", flags=re.DOTALL | re.MULTILINE)


def notebook_of(page: str, address: str, folder: str) -> dict[str, Any]:
    """A tutorial's Markdown as a notebook: Python as it is, commands with `!`, links to the site at `address`."""
    cells, position = [_cell("code", INSTALL)], 0
    for block in _BLOCK.finditer(page):
        cells.append(_cell("markdown", _with_full_links(page[position : block.start()], address, folder)))
        code = block[2].strip("\n")
        commands = "\n".join(f"!{line}" if line.strip() else line for line in code.splitlines())
        cells.append(_cell("code", code if block[1] == "python" else commands))
        position = block.end()
    cells.append(_cell("markdown", _with_full_links(page[position:], address, folder)))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    kept = [cell for cell in cells if cell["source"]]
    return {"cells": kept, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}


def _cell(kind: str, text: str) -> dict[str, Any]:
    source = text.strip("\n").splitlines(keepends=True)
    return {"cell_type": kind, "metadata": {}, "source": source} | (
        {"execution_count": None, "outputs": []} if kind == "code" else {}
    )


def _with_full_links(text: str, address: str, folder: str) -> str:
    """Pictures as their descriptions, which notebooks elsewhere could not find; pages by their addresses."""
    text = re.sub(r"!\[([^\]]*)\]\([^)]+\)", r"*\1*", text)
    page = re.compile(r"\]\((?!https?:|#)([^)#]+?)(?:\.md)?(#[^)]*)?\)")
    return page.sub(lambda link: f"]({_page(address, folder, link[1])}{link[2] or ''})", text)


def _page(address: str, folder: str, target: str) -> str:
    """The address of a page that is named from a folder: `../examples/gallery` is the gallery."""
    if target.endswith("examples/gallery"):
        return f"{address}gallery/index.html"
    path = target.removeprefix("../") if target.startswith("../") else f"{folder}/{target}"
    return f"{address}{path}.html"


def links_of(name: str, urls: dict[str, str], version: str) -> dict[str, str]:
    """Where to open a notebook of the site: the file itself, and, where the repository has an address, others."""
    links = {"Download as a notebook": f"notebooks/{name}.ipynb"}
    if PLACEHOLDER in urls["Repository"]:
        return links
    repository = urls["Repository"].removeprefix("https://github.com/")
    place = f"{version}/notebooks/{name}.ipynb"
    links["Open in Colab"] = f"https://colab.research.google.com/github/{repository}/blob/gh-pages/{place}"
    links["Open in Binder"] = f"https://mybinder.org/v2/gh/{repository}/gh-pages?urlpath=lab/tree/{place}"
    return links


def _has_notebook(page: str) -> bool:
    folder, _, name = page.partition("/")
    return (folder == "tutorials" and name != "index") or (folder == "gallery" and name.startswith("plot_"))


def _show_links(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    if _has_notebook(pagename):
        found = links_of(pagename.partition("/")[2], app.config.notebook_urls, app.config.notebook_version)
        here = context["pathto"]
        context["notebook"] = {
            text: link if "://" in link else here(link, resource=True) for text, link in found.items()
        }


def _write(app: Sphinx, failed: Exception | None) -> None:
    if failed is not None or app.builder.format != "html":
        return
    target = Path(app.outdir) / "notebooks"
    target.mkdir(exist_ok=True)
    address = f"{app.config.notebook_urls['Documentation']}{app.config.notebook_version}/"
    for page in sorted((Path(app.srcdir) / "tutorials").glob("*.md")):
        if page.stem != "index":
            notebook = notebook_of(page.read_text(encoding="utf-8"), address, "tutorials")
            (target / f"{page.stem}.ipynb").write_text(json.dumps(notebook, indent=1), encoding="utf-8")
    for made in sorted((Path(app.srcdir) / "gallery").glob("plot_*.ipynb")):
        shutil.copy(made, target)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("notebook_urls", {}, "html")
    app.add_config_value("notebook_version", "dev", "html")
    app.connect("html-page-context", _show_links)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
