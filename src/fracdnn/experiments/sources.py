"""Which sources a number was made with: a hash of what they do, comments and docstrings left out."""

import ast
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def hash_of_files(paths: Iterable[Path], folder: Path = PACKAGE) -> str:
    digest = sha256()
    for path in sorted(paths):
        place = path.relative_to(folder).as_posix()
        digest.update(f"{place}\n{_without_words(path.read_text(encoding='utf-8'))}\n".encode())
    return digest.hexdigest()[:12]


@cache
def hash_of_module(module: str, package: Path = PACKAGE) -> str:
    """Of a module and of all that it imports from the package, wherever in it; the package's front door left out."""
    return hash_of_files(imported_files(module, package), package)


def imported_files(module: str, package: Path = PACKAGE) -> set[Path]:
    """The module's own file and those it imports from the package, directly or not."""
    found: set[Path] = set()
    waiting = [module]
    while waiting:
        for path in _files(waiting.pop(), package) - found:
            found.add(path)
            waiting += _imports(path.read_text(encoding="utf-8"))
    return found


def _files(name: str, package: Path) -> set[Path]:
    """A module's file and those of the folders it lies in; none for a name that is no module of the package."""
    parts = name.split(".")
    if parts[0] != package.name:
        return set()
    found, place = set(), package
    for part in parts[1:]:
        place = place / part
        found |= {path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()}
    return found


@cache
def _imports(text: str) -> tuple[str, ...]:
    names: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return tuple(names)


@cache
def _without_words(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            body[0] = ast.Pass()
    return _written(tree)


def _written(node: object) -> str:
    """The same in every Python: later ones know more fields, and some part the text of an f-string otherwise."""
    if isinstance(node, ast.JoinedStr):
        parts = (str(p.value) if isinstance(p, ast.Constant) else f"{{{_written(p)}}}" for p in node.values)
        return f"JoinedStr({''.join(parts)!r})"
    if isinstance(node, ast.AST):
        there = ((name, value) for name, value in ast.iter_fields(node) if value is not None and value != [])
        return f"{type(node).__name__}({', '.join(f'{name}={_written(value)}' for name, value in there)})"
    return f"[{', '.join(map(_written, node))}]" if isinstance(node, list) else repr(node)
