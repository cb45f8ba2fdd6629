"""What `fracdnn train` leaves behind; in the folder of a run one training at a time, which loses nothing by mistake."""

import hashlib
import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from errno import EACCES, EAGAIN
from pathlib import Path
from typing import IO, Any

import typer

from fracdnn.cli.messages import fail, say, tell_facts, written
from fracdnn.cli.options import Settings
from fracdnn.cli.places import HELD_OUT, LOCK, Places, place_for
from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.table_model import TableModel, load
from fracdnn.exceptions import FileContentError
from fracdnn.files import write_whole
from fracdnn.parameters import LOCAL_PARAMETERS
from fracdnn.report.texts import SCORES, number
from fracdnn.tables.cells import has_no_text
from fracdnn.tables.late import pl
from fracdnn.tables.reading import files_of as files_of_table
from fracdnn.tables.words import listed
from fracdnn.training.checkpoints import newest, previous_of

# What `write_whole` fills before it is put in its place.
_TEMPORARY = re.compile(r"\.(model|model\.ckpt|model\.interrupted|held-out)-\w{8}\.\w+")
# How a training ended that is to go on.
UNFINISHED = ("interrupted", "time limit")


def files_of(path: Path | str | None) -> list[Path]:
    """Return the checkpoint in a list, which is empty where there is none."""
    return [] if path is None or not Path(path).exists() else [Path(path)]


def check_checkpoint(path: str | None, *, resume: bool, start_over: bool) -> None:
    """One that is there is only gone on from or, with `start_over`, discarded."""
    files = files_of(path)
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


def say_resumed(path: str | None) -> None:
    """Say from where a resumed training continues."""
    files = files_of(path)
    if not files:
        why = f"{path} does not exist" if path else "--checkpoint-path is none"
        say(f"there is no checkpoint to --resume from ({why}); training starts from the beginning")
        return
    found = newest(files[-1])
    if found is not None:
        say(f"--resume continues after iteration {found.n_records}: {found.path}")


def training_record(source: str, settings: Settings) -> dict[str, Any]:
    """What tells a training from others, kept in its model: settings with defaults, and a hash of the table."""
    digest, own = hashlib.sha256(), asdict(settings)
    for file in files_of_table(source) if source != "-" else ():
        with Path(file).open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    own |= FractionalRegressor().get_params() | FractionalClassifier().get_params() | own.pop("parameters")
    others = ("timeout", "start_over", *LOCAL_PARAMETERS, "max_time")
    found = {name: value for name, value in own.items() if name not in others}
    return json.loads(json.dumps({"data": "-" if source == "-" else digest.hexdigest(), **found}, default=str))


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
    """Around a training into the folder, which holds the lock of a file; the system frees that of a killed process."""
    is_new, lock = not run.exists(), run / LOCK
    with written(run):
        run.mkdir(parents=True, exist_ok=True)
        opened = lock.open("a+", encoding="utf-8")
    with opened:
        if not _is_taken(opened, lock):
            opened.seek(0)
            who = opened.read() or "another process"
            fail(f"{run} is in use by the training of {who}; wait for it, or pass another --run")
        with written(run):
            opened.truncate(0)
            print(f"process {os.getpid()} on {socket.gethostname()}", end="", file=opened, flush=True)
            for file in run.iterdir():
                if _TEMPORARY.fullmatch(file.name):  # of a process that was killed
                    file.unlink(missing_ok=True)
        try:
            yield
        finally:
            with suppress(OSError):
                lock.unlink()
                if is_new:
                    run.rmdir()  # if nothing is in it


def _is_taken(file: IO[str], path: Path) -> bool:
    """Whether this process has the file's lock now, as far as the file system knows locks."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(file.fileno(), 1 << 30, os.SEEK_SET)  # a byte that nobody reads
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path.stat().st_ino == os.fstat(file.fileno()).st_ino  # else its holder has just removed it
    except FileNotFoundError:
        return False
    except OSError as error:
        return error.errno not in (EACCES, EAGAIN)


def write_results(model: TableModel, held_out: "pl.DataFrame", places: Places, remedy: str) -> dict[str, str]:
    """The paths by what is there; an interrupted training replaces no model, which is `kept` (see `place_for`).

    The model comes last: where it is, all is there. `remedy` is what to do where the disk is full.
    """
    paths, run, interrupted = {}, places.run, model.details["summary"]["status"] == "interrupted"
    if run is not None and not (interrupted and (run / HELD_OUT).exists()):  # those of the model that is kept
        with written(run, remedy):
            kept = held_out.select(column for column in held_out if not has_no_text(column.dtype))  # as text can be
            rows = kept.write_csv().encode()
            model.details["held_out"] = hashlib.sha256(rows).hexdigest()
            write_whole(run / HELD_OUT, lambda path: path.write_bytes(rows))
    for path in places.models:
        place = place_for(path, interrupted)
        with written(path, remedy):
            paths["model"] = str(model.save(place))
        if place != path:
            paths["kept"] = str(path)
    if run is not None:
        paths["run"] = str(run)
    return paths


def tell_results(summary: dict[str, Any], paths: dict[str, str], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**summary, **paths}))
        return
    if summary.get("verdict"):
        typer.echo(summary["verdict"])
    baseline, part = summary["baseline"], "test" if summary["test"] else "training"
    if part == "test":
        name, value = next(iter(summary["training"].items()))
        typer.echo(f"{SCORES[name]} on the training rows ({summary['rows']['training']:,}): {number(value)}")
    constants = {"RMSE": f"always the mean, {number(baseline.get('mean'))}", "log_loss": "class frequencies"}
    constants["accuracy"] = f"always {baseline.get('class')!r}"
    for place, (name, value) in enumerate(summary[part].items()):
        rows = f" ({summary['rows'][part]:,})" if place == 0 else ""
        compared = f"; baseline ({constants[name]}): {number(baseline[name])}" if name in baseline else ""
        typer.echo(f"{SCORES[name]} on the {part} rows{rows}: {number(value)}{compared}")
    typer.echo(f"order: {number(summary['order'])} ({'learned' if summary['order_learned'] else 'fixed'})")
    if summary["left_out"]:
        typer.echo(f"columns left out: {listed(summary['left_out'])}")
    tell_facts(paths)
