"""The places of a command: nothing it reads is written, one training at a time, and no checkpoint lost by mistake."""

import hashlib
import json
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

from fracdnn.cli.messages import fail, say, written
from fracdnn.exceptions import FileContentError
from fracdnn.tabular import TableModel, load
from fracdnn.tabular.reading import files_of as files_of_table
from fracdnn.training import together
from fracdnn.training.checkpoints import newest, previous_of

MODEL, HELD_OUT, LOCK, METRICS = "model.fracdnn", "held-out.csv", "train.lock", "metrics.jsonl"
# What `write_whole` fills before it is put in its place.
_TEMPORARY = re.compile(r"\.(model|model\.ckpt|model\.interrupted|held-out)-\w{8}\.\w+")
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
        return [path for path in (self.out, self.run and self.run / MODEL) if path is not None]

    def check(self, source: str, checkpoint: Path | None) -> None:
        """Refuse places that are read, or are one another."""
        outputs = [("--out", self.out), ("--run", self.run and self.run / MODEL), ("--checkpoint-path", checkpoint)]
        outputs += [("--run", self.run and self.run / name) for name in (HELD_OUT, LOCK, METRICS)]
        outputs += [(option, path and place_for(path, True)) for option, path in outputs[:2]]
        for option, path in outputs:
            if path is not None:
                check_output(option, path, source, self.config)
        if checkpoint is not None and checkpoint.absolute() in [model.absolute() for model in self.models]:
            fail(f"--checkpoint-path must be another file than the model, got {checkpoint} for both; pass another")


def check_output(option: str, out: str | Path, *sources: str | Path | None) -> None:
    """Refuse an output that is a source, by another path, a link or in other case, or lies in a folder of parts.

    A source is a file or a folder with the parts of a table; "-" is standard input, and as output standard output.
    """
    written = _status(out, 1)
    for source in (each for each in sources if each is not None):
        is_folder = source != "-" and Path(source).is_dir()
        below = filter(Path.is_file, Path(source).rglob("*"))
        for file in below if is_folder else files_of_table(str(source)):
            read = _status(file, 0)
            if written and read and S_ISREG(written.st_mode) and os.path.samestat(written, read):
                what = "what is read from standard input" if file == "-" else str(file)
                fail(f"{option} must be no file that is read, got {out}, which is {what}; pass another place")
        if is_folder and out != "-" and _would_be_part(Path(out), Path(source)):
            fail(f"{option} must lie outside of the table's folder {source}, got {out}; pass another place")


def _status(path: str | Path, number: int) -> os.stat_result | None:
    """Of a file, or of standard input (0) or output (1) where it is one."""
    try:
        return os.fstat(number) if path == "-" else Path(path).stat()
    except OSError:  # it is not there, or closed
        return None


def _would_be_part(out: Path, folder: Path) -> bool:
    """Whether a reader of the folder would meet it: all but names that begin with . or _."""
    path = out.resolve()
    for inner, outer in zip((path, *path.parents), path.parents, strict=False):
        if outer.exists() and outer.samefile(folder):
            return not inner.name.startswith((".", "_"))
    return False


def place_for(path: Path, interrupted: bool) -> Path:
    """Where to write a model: beside one that is there, NAME.interrupted.fracdnn, unless the training was finished."""
    if interrupted and path.is_file():
        return path.with_name(f"{path.stem}.interrupted{path.suffix}")
    return path


def choose_checkpoint(parameters: dict[str, Any], places: Places) -> Path | None:
    """Put one beside the model into the estimator's parameters: for a run always, else on request.

    Returns its path if it is ours to remove.
    """
    names = ("checkpoint_every", "max_time")
    requested = places.run is not None or any(name in parameters for name in names) or parameters.get("resume")
    if "checkpoint_path" in parameters or not requested:
        return None
    path = places.models[-1].with_suffix(".ckpt")  # that of the run, where there is one
    parameters["checkpoint_path"] = str(path)
    return path


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
            f"{files[-1]} must not be lost, got a training that would replace it; pass --resume to go on from it, "
            f"--start-over to discard it, or another place"
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
        why = f"there is no {path}" if path else "--checkpoint-path is none"
        say(f"--resume finds nothing to go on from: {why}; training begins anew")
        return
    found = newest(last)
    assert found is not None  # on some rank
    member = "" if Path(last) == path else f" of member {Path(last).suffix[1:]}"
    where = f", as rank {found.rank} has it" if found.rank else ""
    say(f"--resume goes on after iteration {found.progress[0]}{member}: {found.path}{where}")


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
            holder = _holder(lock)
            if holder and holder.get("host") == mine["host"] and not _is_alive(holder):
                gone = f"the lock of process {holder['pid']}, which is gone, is taken over: {lock}"
                say(gone, always=True)
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
                gone = "" if holder.get("host") == mine["host"] else f", or if it is gone, remove {lock}"
                fail(
                    f"{run} must be of one training at a time, got that of {who}; wait for it{gone}, or pass "
                    f"another --run"
                )
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
