"""Where `fracdnn train` keeps its checkpoints, how often it writes them, and what `--resume` finds."""

import re
from pathlib import Path
from typing import Any

from fracdnn.cli.messages import say
from fracdnn.container import checked, read_document
from fracdnn.estimators.recipe import settled

# At most this many iterations are lost, and a training writes some twenty checkpoints.
MOST_BETWEEN, SHARE = 50, 20


def choose_checkpoint(parameters: dict[str, Any], out: Path | None, run: Path | None) -> Path | None:
    """Put one beside the model into the estimator's parameters: for a run always, else where it is asked for.

    Returns its path if it is ours to remove.
    """
    asked = run is not None or "checkpoint_every" in parameters or parameters.get("resume")
    if "checkpoint" in parameters or not asked:
        return None
    path = run / "model.ckpt" if run is not None else out.with_suffix(".ckpt") if out is not None else None
    if path is not None:
        parameters["checkpoint"] = str(path)
    return path


def space_checkpoints(estimator: Any, n_rows: int, n_features: int) -> None:
    """Let a training of so many rows write them a twentieth of its iterations apart."""
    iterations = settled(estimator, n_rows, n_features).iterations
    estimator.checkpoint_every = min(MOST_BETWEEN, max(1, iterations // SHARE))


def files_of(path: Path) -> list[Path]:
    """Those there are: one for all members, or NAME, NAME.2, … for members that were trained one after the other."""
    pattern = re.compile(re.escape(path.name) + r"\.(\d+)")
    others = {int(found[1]): each for each in path.parent.glob("*") if (found := pattern.fullmatch(each.name))}
    return [*([path] if path.exists() else []), *(others[number] for number in sorted(others))]


def say_resumed(estimator: Any, quiet: bool) -> None:
    """Whether there is something to go on from, and from where."""
    if not estimator.resume:
        return
    if estimator.checkpoint is None:
        say("--resume finds nothing to go on from: --checkpoint is none; training begins anew", quiet)
        return
    path = Path(estimator.checkpoint)
    files = files_of(path)
    if not files:
        say(f"--resume finds nothing to go on from: there is no {path}; training begins anew", quiet)
        return
    last = files[-1]
    document = read_document(last, "checkpoint")
    with checked(last, "checkpoint"):
        done = max(len(each["history"]["records"]) for each in document.get("members", [document]))
    member = "" if last == path else f" of member {last.suffix[1:]}"
    say(f"--resume goes on after iteration {done}{member}: {last}", quiet)
