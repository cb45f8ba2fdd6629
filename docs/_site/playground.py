"""Copy the playground, which is static files, into the site."""

import shutil
from pathlib import Path

from sphinx.application import Sphinx

STATIC = Path(__file__).parents[1] / "playground"


def _copy(app: Sphinx, failed: Exception | None) -> None:
    if failed is None and app.builder.format == "html":
        shutil.copytree(STATIC, Path(app.outdir) / "playground", dirs_exist_ok=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", _copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
