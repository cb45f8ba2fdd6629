"""The places of a training: none of them is read, one training at a time, and what is there is not lost by mistake."""

import hashlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fracdnn.cli.checkpoints import files_of
from fracdnn.cli.messages import fail, say, written
from fracdnn.cli.outputs import check_output
from fracdnn.cli.results import HELD_OUT, MODEL, place_for
from fracdnn.exceptions import FileContentError
from fracdnn.tabular import TableModel, load
from fracdnn.tabular.reading import files_of as files_of_table

LOCK = "train.lock"
# How a training ended that is to go on.
UNFINISHED = ("interrupted", "time limit")


@dataclass(frozen=True)
class Places:
    """Where a training writes, and the TOML file of its settings."""

    out: Path | None
    run: Path | None
    config: Path | None = None

    @property
    def models(self) -> list[Path]:
        """One at least."""
        return [path for path in (self.out, self.run and self.run / MODEL) if path is not None]

    def check(self, source: str, checkpoint: Path | None) -> None:
        """Refuse places that are read, or are one another."""
        outputs = [("--out", self.out), ("--run", self.run and self.run / MODEL), ("--checkpoint", checkpoint)]
        outputs += [("--run", self.run and self.run / HELD_OUT), ("--run", self.run and self.run / LOCK)]
        outputs += [(option, path and place_for(path, True)) for option, path in outputs[:2]]
        for option, path in outputs:
            if path is not None:
                check_output(option, path, source, self.config)
        if checkpoint is not None and checkpoint.absolute() in [model.absolute() for model in self.models]:
            fail(f"--checkpoint must be another file than the model, got {checkpoint} for both; pass another place")


def check_checkpoint(path: Path | None, *, resume: bool, start_over: bool) -> None:
    """One that is there is only gone on from or, with `start_over`, discarded."""
    files = [] if path is None else files_of(path)
    if files and not (resume or start_over):
        fail(
            f"{files[-1]} must not be lost, got a training that would replace it; pass --resume to go on from it, "
            f"--start-over to discard it, or another place"
        )
    for file in files if start_over else ():
        file.unlink(missing_ok=True)


def training_record(source: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What tells a training from others, kept in its model: settings, and a hash of the table but from a pipe."""
    digest = hashlib.sha256()
    for file in files_of_table(source) if source != "-" else ():
        with Path(file).open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    data = "-" if source == "-" else digest.hexdigest()
    return json.loads(json.dumps({"data": data, **settings}, default=str))


def finished(path: Path, record: dict[str, Any]) -> TableModel | None:
    """The model of this training, if it came to its end; that of another one is refused.

    A file of an earlier version has no record: it counts as this training's.
    """
    try:
        model = load(path)
    except (FileNotFoundError, FileContentError):
        return None
    if not isinstance(model, TableModel) or (model.details.get("summary") or {}).get("status") in UNFINISHED:
        return None
    made = model.details.get("training", record)
    others = [name for name in record if made.get(name, record[name]) != record[name]]
    if others:
        fail(
            f"{path} must be of this training to --resume it, got a finished one with other {' and '.join(others)}; "
            f"pass --start-over to replace it, or another place"
        )
    return model


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Around a training into the folder: another one is refused, unless its process is gone.

    The lock is a file that only one process can make, with its host and number. It goes with the block; that of a
    process that was killed is taken over on its host, where one can tell that it is gone.
    """
    is_new, lock = not run.exists(), run / LOCK
    mine = {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}
    with written(run):
        run.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(run):
            _take_over(lock, mine["host"])
            try:
                number = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            except FileExistsError:
                _refuse(lock, mine["host"])
            with os.fdopen(number, "w", encoding="utf-8") as file:
                json.dump(mine, file)
    try:
        yield
    finally:
        if _holder(lock) == mine:
            lock.unlink(missing_ok=True)
        if is_new:
            with suppress(OSError):  # something is in it
                run.rmdir()


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Of two that find the lock of a process that is gone, one takes it over; where the system knows no such locks,
    both might.
    """
    number = None
    with suppress(ImportError, OSError):
        import fcntl

        number = os.open(folder, os.O_RDONLY)
        fcntl.flock(number, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if number is not None:
            os.close(number)


def _take_over(lock: Path, host: Any) -> None:
    holder = _holder(lock)
    if holder is not None and holder.get("host") == host and not _is_alive(holder):
        say(f"the lock of process {holder['pid']}, which is gone, is taken over: {lock}")
        lock.unlink(missing_ok=True)


def _refuse(lock: Path, host: Any) -> NoReturn:
    holder = _holder(lock) or {}
    who = f"process {holder.get('pid', '?')} on {holder.get('host', 'an unknown host')}"
    remedy = "wait for it" if holder.get("host") == host else f"wait for it, or if it is gone, remove {lock}"
    fail(f"{lock.parent} must be of one training at a time, got that of {who}; {remedy}, or pass another --run")


def _holder(lock: Path) -> dict[str, Any] | None:
    """None where there is no lock; empty where it cannot be read."""
    try:
        found = json.loads(lock.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("pid"), int) else {}


def _is_alive(holder: dict[str, Any]) -> bool:
    try:
        os.kill(holder["pid"], 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        pass
    return holder.get("started") in (None, _started(holder["pid"]))


def _started(pid: int) -> str | None:
    """When a process began, which a later one of the same number did not; None where the system does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
