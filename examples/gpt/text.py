"""Source code as bytes: the Python files of the running interpreter, its standard library and its packages.

Nothing is downloaded. Files are sorted, of those with the same content the first is taken, and a hash of its
path says whether a file is held out, so that no held-out file is in the training text.
"""

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LIMIT = 64 * 10**6
# Of 256 values of a hash's first byte, those that hold a file out: 5 %.
_HELD_OUT = 13
# Between two files, and in no Python file.
_END = b"\0"


@dataclass(frozen=True)
class Part:
    """Files one after the other, with a zero byte after each."""

    names: tuple[str, ...]
    content: bytes

    def described(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.content).hexdigest()
        return {"files": len(self.names), "bytes": len(self.content), "sha256": digest}


@dataclass(frozen=True)
class Text:
    training: Part
    held_out: Part

    @property
    def parts(self) -> tuple[Part, Part]:
        return self.training, self.held_out

    def described(self) -> dict[str, Any]:
        """Files, bytes and digest of both parts, for the record."""
        return {"training": self.training.described(), "held_out": self.held_out.described()}


def python_text(limit: int = LIMIT) -> Text:
    """The text of this interpreter, of at most `limit` bytes."""
    library, *packages = (Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))
    return read_text({"library": library, **{f"packages{k}": path for k, path in enumerate(packages)}}, limit)


def read_text(folders: dict[str, Path], limit: int = LIMIT) -> Text:
    """Of all .py files in the folders, by name; a file that no longer fits ends the text."""
    parts: dict[bool, list[tuple[str, bytes]]] = {False: [], True: []}
    known: set[bytes] = set()
    size = 0
    for name, content in _files(folders):
        digest = hashlib.sha256(content).digest()
        if digest in known:
            continue
        known.add(digest)
        size += len(content) + len(_END)
        if size > limit:
            break
        parts[is_held_out(name)].append((name, content))
    return Text(*(_joined(parts[held_out]) for held_out in (False, True)))


def is_held_out(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] < _HELD_OUT


def _files(folders: dict[str, Path]) -> Iterator[tuple[str, bytes]]:
    """Name and content, folder by folder; packages may lie inside the library's folder, and are left for their own."""
    for place, folder in folders.items():
        others = set(folders.values()) - {folder}
        for path in _python_files(folder, others):
            content = path.read_bytes()
            if content.strip() and _END not in content:
                # With forward slashes, names hash alike everywhere.
                yield f"{place}/{path.relative_to(folder).as_posix()}", content


def _python_files(folder: Path, others: set[Path]) -> Iterator[Path]:
    """Sorted, those of a folder before those of the folders in it; one at a time, since the text may end early."""
    for parent, inner, names in os.walk(folder):
        inner[:] = sorted(name for name in inner if Path(parent, name) not in others)
        yield from (path for name in sorted(names) if name.endswith(".py") and (path := Path(parent, name)).is_file())


def _joined(files: list[tuple[str, bytes]]) -> Part:
    return Part(tuple(name for name, _ in files), b"".join(content + _END for _, content in files))
