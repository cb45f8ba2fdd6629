"""Where `fracdnn train` keeps its checkpoints, how often it writes them, and what `--resume` finds."""

from pathlib import Path
from typing import Any

from fracdnn.cli.messages import say
from fracdnn.container import checked, read_document
from fracdnn.estimators import FractionalClassifier

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
    if run is not None:
        max_iter = int(FractionalClassifier(**parameters).max_iter)
        parameters.setdefault("checkpoint_every", min(MOST_BETWEEN, max(1, max_iter // SHARE)))
    return path


def say_resumed(estimator: Any, quiet: bool) -> None:
    """Whether there is something to go on from, and from where."""
    if not estimator.resume:
        return
    if estimator.checkpoint is None:
        say("--resume finds nothing to go on from: --checkpoint is none; training begins anew", quiet)
        return
    path = Path(estimator.checkpoint)
    if not path.exists():
        say(f"--resume finds nothing to go on from: there is no {path}; training begins anew", quiet)
        return
    document = read_document(path, "checkpoint")
    with checked(path, "checkpoint"):
        done = len(document["history"]["records"])
    say(f"--resume goes on after iteration {done}: {path}", quiet)
