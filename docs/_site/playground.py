"""The playground is static files of the package: the site has a copy, and tells pages so by the tag `playground`."""

import shutil
from pathlib import Path

from sphinx.application import Sphinx

import fracdnn

STATIC = Path(fracdnn.__file__).parent / "playground" / "static"


def _copy(app: Sphinx, failed: Exception | None) -> None:
    if failed is None and STATIC.is_dir() and app.builder.format == "html":
        shutil.copytree(STATIC, Path(app.outdir) / "playground", dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    if STATIC.is_dir():
        app.tags.add("playground")
    app.connect("build-finished", _copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
