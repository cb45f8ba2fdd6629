"""Files that are either whole or absent."""

import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a temporary file beside `path`, then rename it: even a crash of the machine leaves no half file.

    A device or a pipe, such as /dev/null, is written to as it is.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        write(path)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{path.suffix}")
    try:
        write(temporary)
        _sync(temporary)
        temporary.replace(path)
        with suppress(OSError):  # a system that opens no folders, or cannot sync them
            _sync(path.parent)
    except OSError as error:
        if error.errno is not None and error.filename in (None, os.fspath(temporary)):  # which nobody knows
            error.filename = os.fspath(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _sync(path: Path) -> None:
    """Wait until the disk has it, so that a machine that loses power has the old file or the new one."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def os_error(error: Exception, path: str | os.PathLike) -> OSError | None:
    """What the system said, where a library of Rust tells it in an error of its own."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    return OSError(int(number[1]), os.strerror(int(number[1])), os.fspath(path)) if number else None
