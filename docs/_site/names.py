"""Public names: where each is described, and links to there from every `name` that a page or docstring mentions."""

from functools import lru_cache
from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

import fracdnn

# Folders of the package whose `__all__` is public; what `fracdnn` itself offers is described under that name.
ROOMS = ("caputo", "datasets", "estimators", "fitting", "memory", "nn", "optim", "solver", "tables", "training")
FRONT = tuple(name for name in fracdnn.__all__ if name not in (*ROOMS, "__version__"))


def described() -> dict[str, str]:
    """The name in the reference by the name as it is imported, `fracdnn.solver.fdeint` by `fracdnn.fdeint`."""
    front = {id(getattr(fracdnn, name)): f"fracdnn.{name}" for name in FRONT}
    found = {home: home for home in front.values()}
    for room in (*ROOMS, "exceptions"):
        module = import_module(f"fracdnn.{room}")
        for name in getattr(module, "__all__", [name for name in vars(module) if name[0].isupper()]):
            home = f"fracdnn.{room}.{name}"
            found[home] = front.get(id(getattr(module, name)), home)
    return found


# Where a name may be a link: not in titles, nor in links already.
_TEXT = (nodes.paragraph, nodes.entry, nodes.strong, nodes.term)


@lru_cache(maxsize=1)
def mentions() -> dict[str, str]:
    """The name in the reference by every way to write it: whole, or its last part where only one has it."""
    homes = described()
    short: dict[str, set[str]] = {}
    for name, home in homes.items():
        short.setdefault(name.rpartition(".")[2], set()).add(home)
    return {name: min(home) for name, home in short.items() if len(home) == 1} | homes


class Mentioned(SphinxPostTransform):
    """`FractionalStack` in a text becomes a link to the reference."""

    default_priority = 5

    def run(self, **_: Any) -> None:
        names = mentions()
        for literal in list(self.document.findall(nodes.literal)):
            home = names.get(literal.astext())
            if home and isinstance(literal.parent, _TEXT) and not _in_card(literal):
                link = pending_xref("", refdomain="py", reftype="obj", reftarget=home, refexplicit=True, refwarn=True)
                literal.replace_self(link)
                link += literal


def _in_card(node: nodes.Element) -> bool:
    """A card is a link as a whole."""
    return "sd-card-body" in node.parent.parent.get("classes", [])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(Mentioned)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
