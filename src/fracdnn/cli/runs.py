"""The folder of a run: one training at a time, and no checkpoint or finished model is lost by mistake."""

import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fracdnn.cli.messages import fail, say, written
from fracdnn.cli.places import LOCK
from fracdnn.exceptions import FileContentError
from fracdnn.tabular import TableModel, load
from fracdnn.tabular.reading import files_of as files_of_table
from fracdnn.training import together
from fracdnn.training.checkpoints import newest, previous_of

# What `write_whole` fills before it is put in its place.
_TEMPORARY = re.compile(r"\.(model|model\.ckpt|model\.interrupted|held-out)-\w{8}\.\w+")
# How a training ended that is to go on.
UNFINISHED = ("interrupted", "time limit")


def files_of(path: Path) -> list[Path]:
    """Those there are: one for all members, or NAME, NAME.2, … for members that were trained one after the other."""
    pattern = re.compile(re.escape(path.name) + r"\.(\d+)")
    others = {int(found[1]): each for each in path.parent.glob("*") if (found := pattern.fullmatch(each.name))}
    return [*([path] if path.exists() else []), *(others[number] for number in sorted(others))]


def check_checkpoint(path: Path | None, *, resume: bool, start_over: bool) -> None:
    """One that is there is only gone on from or, with `start_over`, discarded."""
    files = [] if path is None else files_of(path)
    if files and not (resume or start_over):
        fail(
            f"{files[-1]} is the checkpoint of an unfinished training; pass --resume to continue it, --start-over to "
            f"discard it, or another path"
        )
    remove(files if start_over else [])


def remove(files: list[Path]) -> None:
    """Both generations."""
    for file in files:
        file.unlink(missing_ok=True)
        previous_of(file).unlink(missing_ok=True)


def say_resumed(estimator: Any) -> None:
    """Whether there is something to go on from, and from where."""
    if not estimator.resume:
        return
    path = estimator.checkpoint_path and Path(estimator.checkpoint_path)
    files = together.texts("\n".join(map(str, files_of(path) if path else [])), "the checkpoints")
    last = max(files, key=lambda lines: (lines != "", lines.count("\n"))).rpartition("\n")[
        2
    ]  # that of the last member, on any rank
    if not last:
        why = f"{path} does not exist" if path else "--checkpoint-path is none"
        say(f"there is no checkpoint to --resume from ({why}); training starts from the beginning")
        return
    found = newest(last)
    assert found is not None  # on some rank
    member = "" if Path(last) == path else f" of member {Path(last).suffix[1:]}"
    where = f", as rank {found.rank} has it" if found.rank else ""
    say(f"--resume continues after iteration {found.progress[0]}{member}: {found.path}{where}")


def training_record(source: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What tells a training from others, kept in its model: settings, and a hash of the table but from a pipe."""
    digest = hashlib.sha256()
    for file in files_of_table(source) if source != "-" else ():
        with Path(file).open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    data = "-" if source == "-" else digest.hexdigest()
    return json.loads(json.dumps({"data": data, **settings}, default=str))


def finished(path: Path, record: dict[str, Any]) -> TableModel | None:
    """The model of this training, if it came to its end; that of another one is refused."""
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
            f"{path} is the model of a finished training with different {' and '.join(others)}, which --resume cannot "
            f"continue; pass --start-over to replace it, or another path"
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
            holder = _holder(lock)
            if holder and holder.get("host") == mine["host"] and not _is_alive(holder):
                say(f"process {holder['pid']} is gone: this training takes over its lock, {lock}", always=True)
                lock.unlink(missing_ok=True)
            try:
                with lock.open("x", encoding="utf-8") as made:
                    json.dump(mine, made)
                for file in run.iterdir():
                    if _TEMPORARY.fullmatch(file.name):  # of a process that was killed
                        file.unlink(missing_ok=True)
            except FileExistsError:
                holder = _holder(lock) or {}
                who = f"process {holder.get('pid', '?')} on {holder.get('host', 'an unknown host')}"
                gone = "" if holder.get("host") == mine["host"] else f", remove {lock} if it is gone"
                fail(f"{run} is in use by the training of {who}; wait for it{gone}, or pass another --run")
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
