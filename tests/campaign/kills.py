"""`python -m tests.campaign.kills WHICH FOLDER SEED`: a training that is ended by signals at random moments.

One of `TRAININGS`, or the command `fracdnn train` for "command". It runs undisturbed first. Then processes of their own
begin and resume it, each sent SIGKILL or SIGINT after a random time, until one ends by itself. After each the files
under final names must be whole. Prints the signals as JSON.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

import fracdnn
from fracdnn.cli import main as command
from fracdnn.container import read_document
from fracdnn.datasets import make_level_set
from tests.training.killed_runs import train

MOST_SIGNALS = 6


def train_by_command(folder, name):
    sys.argv = [
        "fracdnn",
        "train",
        str(folder / "table.csv"),
        "--target",
        "y",
        "--out",
        str(folder / f"{name}.fracdnn"),
    ]
    sys.argv += ["--quiet", "--resume", "--max-iter", "150", "--optimizer", "lbfgs"]
    sys.argv += ["--width", "6", "--activation", "tanh"]
    try:
        command()
    except SystemExit as done:
        return done.code or 0
    return 0


def work(which, folder, name):
    """The training in this process; its exit code."""
    if which == "command":
        return train_by_command(folder, name)
    train(int(which), folder, name, None)
    return 0


def started(which, folder, name):
    """The same in a process of its own, which has nothing to import any more."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            code = work(which, folder, name)
        except KeyboardInterrupt:
            code = 130
        finally:
            os._exit(code)
    return pid


def check_whole(folder):
    """Every file under a final name can be read; what a kill left half-written has a name with a dot before it."""
    for path in folder.iterdir():
        if not path.name.startswith(".") and path.suffix in (".ckpt", ".fracdnn"):
            read_document(path, "checkpoint" if path.suffix == ".ckpt" else "model")


def same(ours, theirs):
    """Equal documents, tensors to the last bit."""
    if isinstance(ours, torch.Tensor):
        return torch.equal(ours, theirs)
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(same(ours[name], theirs[name]) for name in ours)
    if isinstance(ours, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


def disturb(which, folder, chosen, seconds):
    """The training under name "killed" to its end, with signals on the way; the signals and exit codes."""
    told = []
    while True:
        pid = started(which, folder, "killed")
        number = chosen.choice([signal.SIGKILL, signal.SIGINT]) if len(told) < MOST_SIGNALS else None
        if number is not None:
            time.sleep(chosen.uniform(0.0, seconds))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        check_whole(folder)
        told.append([None if number is None else number.name, code])
        if code == 0:
            return told
        if code not in (130, -signal.SIGKILL):
            raise SystemExit(f"ended with {code} after {told}")


def main(which, folder, seed):
    torch.set_num_threads(1)
    if which == "command":
        X, y = make_level_set(200, random_state=0)
        # By hand: Polars must not have worked before a fork.
        rows = [f"{a},{b},{label}" for (a, b), label in zip(X, y, strict=True)]
        (folder / "table.csv").write_text("a,b,y\n" + "\n".join(rows), encoding="utf-8")
        fracdnn.FractionalClassifier(max_iter=1, width=6, activation="tanh", optimizer="lbfgs").fit(X, y)  # imports all
    start = time.monotonic()
    code = os.waitstatus_to_exitcode(os.waitpid(started(which, folder, "whole"), 0)[1])
    seconds = time.monotonic() - start
    if code:
        raise SystemExit(f"the undisturbed run ended with {code}")
    print(json.dumps(disturb(which, folder, random.Random(seed), seconds)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
