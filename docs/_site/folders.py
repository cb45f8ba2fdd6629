"""A link to a folder of the repository, which GitHub shows and a site does not have, is plain text here."""

from pathlib import Path
from typing import Any

from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


class Folders(SphinxPostTransform):
    """Runs before MyST looks for documents of that name."""

    default_priority = 4

    def run(self, **_: Any) -> None:
        here = Path(self.env.doc2path(self.env.docname)).parent
        for link in list(self.document.findall(pending_xref)):
            if link.get("reftype") == "myst" and (here / link["reftarget"]).is_dir():
                link.replace_self(link.children)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(Folders)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
