"""Docstrings as reStructuredText. They are written to be read in a terminal: `code` in single backticks, formulas
with |u|, E_α and x_ as they are, blocks by indentation, numpydoc's sections.
"""

import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

_SECTION = re.compile(r"-{3,}$")
_ENTRY = re.compile(r"(\w+) : (.+)$")


def as_rst(lines: list[str]) -> Iterator[str]:
    in_section, before = False, ""
    for line, after in zip(lines, [*lines, ""][1:], strict=True):
        if _SECTION.match(after) and len(after) == len(line):
            in_section, before = True, ""
            yield from (f".. rubric:: {line}", "")
        elif _SECTION.match(line):
            yield ""
        elif in_section:
            entry = _ENTRY.match(line)
            yield f"``{entry[1]}`` : ``{entry[2]}``" if entry else _inline(line)
        elif line.startswith("    ") or (before.startswith("    ") and not line):
            if not before.startswith("    "):
                yield from ("::", "")
            yield line
            before = line or before
        else:
            if before.startswith("    ") and line:
                yield ""
            yield _inline(line)
            before = line


def _inline(line: str) -> str:
    """Code as literals, everything else as it stands."""
    parts = re.split(r"(``?)(.+?)\1", line)
    texts, codes = parts[::3], parts[2::3]
    escaped = [re.sub(r"([*|_\\])", r"\\\1", text) for text in texts]
    pieces = [escaped[0]]
    for code, text in zip(codes, escaped[1:], strict=True):
        pieces.append(f"\\ ``{code}``\\ {text}")
    return "".join(pieces)


def _process(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = list(as_rst(lines))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
