"""Long signatures as lists: Sphinx writes them as <dl> without terms, which screen readers cannot read out."""

import re
from typing import Any

from sphinx.application import Sphinx

_PARAMETERS = re.compile(r'(<span class="sig-paren">[(\[]</span>\s*)<dl>(.*?)</dl>', flags=re.DOTALL)


def as_list(found: re.Match[str]) -> str:
    items = found[2].replace("<dd>", "<li>").replace("</dd>", "</li>")
    return f'{found[1]}<ul class="parameters">{items}</ul>'


def _rewrite(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _document: Any) -> None:
    if "body" in context:
        context["body"] = _PARAMETERS.sub(as_list, context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", _rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
