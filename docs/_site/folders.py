"""Links to folders of the repository, which GitHub shows and a site does not have: to the gallery, else plain text."""

from pathlib import Path
from typing import Any

from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

# Folders that pages are made of.
_PAGES = {"examples/gallery": "gallery/index"}


class Folders(SphinxPostTransform):
    """Runs before MyST looks for documents of that name."""

    default_priority = 4

    def run(self, **_: Any) -> None:
        here, root = Path(self.env.doc2path(self.env.docname)).parent, Path(self.env.srcdir).parent
        pages = {(root / folder).resolve(): page for folder, page in _PAGES.items()}
        for link in list(self.document.findall(pending_xref)):
            if link.get("reftype") != "myst" or not (here / link["reftarget"]).is_dir():
                continue
            page = pages.get((here / link["reftarget"]).resolve())
            if page is None:
                link.replace_self(link.children)
            else:
                link.attributes |= {"refdomain": "std", "reftype": "doc", "reftarget": f"/{page}", "refexplicit": True}


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(Folders)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
