"""Checkpoint files, of which the one before is kept."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fracdnn.container import DamagedFileError, checked, document_bytes, read_document
from fracdnn.files import write_whole
from fracdnn.validation import check_count


@dataclass(frozen=True)
class Checkpoints:
    """Write the whole state of the training to `path` after every `every` records; with `resume`, go on from there.

    A run that is killed and resumed is bit-identical to an uninterrupted one. Without a file, `resume` starts from the
    beginning. A file of other data, another network or other settings is refused. The previous file is kept as
    NAME.previous, and is used, with a warning, if the last one is damaged.
    """

    path: str | Path
    every: int = 50
    resume: bool = False

    def __post_init__(self) -> None:
        check_count(self.every, "every", minimum=1)


@dataclass(frozen=True)
class Found:
    """A checkpoint that was read, and what is wrong with a newer one that it replaces."""

    path: Path
    document: dict[str, Any]
    damage: str = ""

    @property
    def n_records(self) -> int:
        """The most records of a member."""
        with checked(self.path, "checkpoint"):
            return max(len(each["history"]["records"]) for each in self.document["members"])


def previous_of(path: str | Path) -> Path:
    return Path(f"{path}.previous")


def write_checkpoint(path: str | Path, document: dict[str, Any]) -> None:
    """Write the whole file or nothing; keep the existing one as the previous one."""
    content, path, previous = document_bytes("checkpoint", document), Path(path), previous_of(path)

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)
        if path.is_file():
            previous.unlink(missing_ok=True)
            try:
                os.link(path, previous)
            except OSError:  # Some file systems have no links.
                shutil.copyfile(path, previous)

    write_whole(path, write)


def newest(path: str | Path) -> Found | None:
    """Return the checkpoint at `path`, or the previous one if it is damaged; None without a file."""
    damage: DamagedFileError | None = None
    for file in (Path(path), previous_of(path)) if Path(path).exists() else ():
        try:
            return Found(file, read_document(file, "checkpoint"), str(damage or ""))
        except DamagedFileError as error:
            damage = damage or error
        except FileNotFoundError:
            pass
    if damage is not None:
        raise damage
    return None
