"""Checkpoint files: two generations of each, and of several ranks, the one that has come furthest."""

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fracdnn.container import DamagedFileError, checked, document_bytes, read_document
from fracdnn.files import write_whole
from fracdnn.training import together
from fracdnn.validation import check_count


@dataclass(frozen=True)
class Checkpoints:
    """Write the whole state of the training to `path` after every `every` records; with `resume`, go on from there.

    A run that is killed and resumed is bit-identical to an uninterrupted one. Without a file, `resume` starts from the
    beginning. A file of other data, another network or other settings is refused. The previous file is kept as
    NAME.previous, and is used, with a warning, if the last one is damaged.

    With `at_end` the last record is written too, so that a finished training is not started again.
    """

    path: str | Path
    every: int = 50
    resume: bool = False
    at_end: bool = False

    def __post_init__(self) -> None:
        check_count(self.every, "every", minimum=1)

    def of_member(self, number: int) -> "Checkpoints":
        """Those of one of several networks, which are trained one after the other: a file for each."""
        path = Path(self.path)
        name = path.name if number == 0 else f"{path.name}.{number + 1}"
        return replace(self, path=path.with_name(name), at_end=True)


@dataclass(frozen=True)
class Found:
    """A checkpoint, which rank has it, and what is wrong with the file that it is taken in place of."""

    path: Path
    document: dict[str, Any]
    damage: str = ""
    rank: int = 0

    @property
    def progress(self) -> tuple[int, int]:
        """Larger for one that has come further: records, and windows of the next one."""
        with checked(self.path, "checkpoint"):
            members = self.document["members"]
            windows = max(int(each["position"].get("within", {}).get("window", 0)) for each in members)
            return max(len(each["history"]["records"]) for each in members), windows


def previous_of(path: str | Path) -> Path:
    return Path(f"{path}.previous")


def write_checkpoint(path: str | Path, document: dict[str, Any]) -> None:
    """Write it whole; the one that is there is kept as the previous one."""
    content, path, previous = document_bytes("checkpoint", document), Path(path), previous_of(path)

    def write(temporary: Path) -> None:
        temporary.write_bytes(content)
        if path.is_file():
            previous.unlink(missing_ok=True)
            try:
                os.link(path, previous)
            except OSError:  # a file system without links
                shutil.copyfile(path, previous)

    write_whole(path, write)


def newest(path: str | Path) -> Found | None:
    """Of the files that ranks have at `path`, on disks of their own or on one, that which has come furthest, on all.

    In place of a damaged file it is the previous one; where all there is is damaged, the error of the first.
    """
    here, place, damage = None, (-1, 0), None
    with together.joint("reading the checkpoint"):
        for file in (Path(path), previous_of(path)) if Path(path).exists() else ():
            try:
                here = Found(file, read_document(file, "checkpoint"), str(damage or ""), together.rank())
                place = here.progress
                break
            except DamagedFileError as error:
                damage = damage or error
            except FileNotFoundError:
                pass
    places = together.from_each(place, "who has the newest checkpoint")
    found = together.from_rank(places.index(max(places)), here, "the checkpoint")
    with together.joint("reading the checkpoint"):
        if found is None and damage is not None:
            raise damage
    return found
