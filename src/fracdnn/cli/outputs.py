"""What a command writes must be nothing that it reads, by whatever name."""

import os
from pathlib import Path
from stat import S_ISREG

from fracdnn.cli.messages import fail


def check_output(option: str, out: str | Path, *sources: str | Path | None) -> None:
    """Refuse an output that is a source, by another path, a link or in other case, or lies in a folder of parts.

    A source is a file or a folder with the parts of a table; "-" is standard input, and as output standard output.
    """
    for source in sources:
        if source is None:
            continue
        for file in _files(source):
            if _are_same(_status(out, 1), _status(file, 0)):
                what = "what is read from standard input" if file == "-" else str(file)
                fail(f"{option} must be no file that is read, got {out}, which is {what}; pass another place")
        if out != "-" and _would_be_part(Path(out), Path(source)):
            fail(f"{option} must lie outside of the table's folder {source}, got {out}; pass another place")


def _files(source: str | Path) -> list[str | Path]:
    folder = Path(source)
    return [source] if source == "-" or not folder.is_dir() else [file for file in folder.iterdir() if file.is_file()]


def _status(path: str | Path, number: int) -> os.stat_result | None:
    """Of a file, or of standard input (0) or output (1) where it is one."""
    try:
        return os.fstat(number) if path == "-" else Path(path).stat()
    except OSError:  # it is not there, or closed
        return None


def _are_same(one: os.stat_result | None, other: os.stat_result | None) -> bool:
    if one is None or other is None or not S_ISREG(one.st_mode):
        return False
    return os.path.samestat(one, other)


def _would_be_part(out: Path, folder: Path) -> bool:
    """Whether a reader of the folder would meet it: all but names that begin with . or _."""
    if not folder.is_dir():
        return False
    path = out.resolve()
    for inner, outer in zip((path, *path.parents), path.parents, strict=False):
        if outer.exists() and outer.samefile(folder):
            return not inner.name.startswith((".", "_"))
    return False
