"""Docstrings as reStructuredText. They are written to be read in a terminal: `code` in single backticks, formulas
with |u|, E_α and t^(1−γ), blocks by indentation, numpydoc's sections. Here indices and powers are typeset.
"""

import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

_SECTION = re.compile(r"-{3,}$")
_ENTRY = re.compile(r"(\w+) : (.+)$")
# A letter or a group in parentheses with an index, a power or both; n_features and classes_ are names, not formulas.
_INDEX = r"(?:_(?:\{[^{}]*\}|[^\W_]{1,2}(?![^\W_])))"
_POWER = r"(?:\^(?:\{[^{}]*\}|\([^()]*\)|[−-]?[^\W_]+(?:\.\d+)?))"
_FORMULA = re.compile(rf"(?<![\w^])([^\W\d_]|∫|\([^()]*\))(?:({_INDEX})({_POWER})?|({_POWER}))")
_LETTERS = {"Σ": r"\sum", "∫": r"\int", "−": "-", "·": r"\cdot ", "∞": r"\infty ", "≤": r"\le "}


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
    escaped = [_typeset(text) for text in texts]
    pieces = [escaped[0]]
    for code, text in zip(codes, escaped[1:], strict=True):
        pieces.append(f"\\ ``{code}``\\ {text}")
    return "".join(pieces)


def _typeset(text: str) -> str:
    """Indices and powers as formulas, everything else as it stands."""
    parts, end = [], 0
    for match in _FORMULA.finditer(text):
        parts += [_escaped(text[end : match.start()]), f"\\ :math:`{_tex(match)}`\\ "]
        end = match.end()
    return "".join([*parts, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return re.sub(r"([*|_\\])", r"\\\1", text)


def _tex(match: re.Match[str]) -> str:
    base, index, power, alone = match.groups(default="")
    tex = _words(base)
    for script in (index, power or alone):
        if script:
            inside = script[1:]
            tex += f"{script[0]}{{{_words(inside[1:-1] if inside[0] in '{(' else inside)}}}"
    return tex


def _words(text: str) -> str:
    """TeX of a plain formula: names of arguments upright, signs as TeX has them."""
    text = re.sub(r"[^\W\d_]{3,}", lambda word: rf"\mathrm{{{word[0]}}}", text)
    return "".join(_LETTERS.get(letter, letter) for letter in text)


def _process(_app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    lines[:] = list(as_rst(lines))


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
