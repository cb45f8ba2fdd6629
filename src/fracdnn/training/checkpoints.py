"""Checkpoint files: two generations of each, and of several ranks, the one that has come furthest."""

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fracdnn.container import DamagedFileError, checked, document_bytes, read_document
from fracdnn.files import write_whole
from fracdnn.training import together
from fracdnn.validation import check_count


@dataclass(frozen=True)
class Checkpoints:
    """Write the whole state of the training to `path` every so many records; with `resume`, go on from there.

    A run that is killed and resumed ends at the same bits as one that was not. Where there is no file yet, `resume`
    starts from the beginning. A file of other data, another network or other settings is refused. The file before is
    kept as NAME.previous; where the last one is damaged, that is taken, with a warning.

    With `at_end` the last record is written too, so that a training that came to its end is not begun again.
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
    content: bytes
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


def newest_here(path: str | Path) -> Found | None:
    """The file, or where it is damaged the previous one; where both are, the error of the first."""
    damage: DamagedFileError | None = None
    for file in (Path(path), previous_of(path)) if Path(path).exists() else ():
        try:
            content = file.read_bytes()
            return Found(file, content, read_document(file, "checkpoint", content), str(damage or ""))
        except DamagedFileError as error:
            damage = damage or error
        except FileNotFoundError:
            pass
    if damage is not None:
        raise damage
    return None


def newest(path: str | Path) -> Found | None:
    """Of the files that ranks have at `path`, on disks of their own or on one, that which has come furthest, on all."""
    here, damage = None, None
    with together.joint("reading the checkpoint"):
        try:
            here = newest_here(path)
            progress = -1 if here is None else here.progress[0] * 1_000_000 + here.progress[1]
        except DamagedFileError as error:
            damage, progress = error, -1
    found = together.numbers(progress, "who has the newest checkpoint")
    if max(found) < 0:
        with together.joint("reading the checkpoint"):
            if damage is not None:
                raise damage
        return None
    source = found.index(max(found))
    if together.is_alone():
        return here
    octets = np.frombuffer(b"" if here is None else here.content, dtype=np.uint8).copy()
    content = together.from_rank(source, torch.from_numpy(octets), "the checkpoint").numpy().tobytes()
    damaged = here.damage if here is not None and source == together.rank() else ""
    return Found(Path(path), content, read_document(path, "checkpoint", content), damaged, source)
