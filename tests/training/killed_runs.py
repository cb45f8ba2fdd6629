"""`python -m tests.training.killed_runs FOLDER WHICH …`: trainings in one go, and the same with three kills on the way.

The killed runs are processes of their own. Each sends itself SIGKILL at a record that a seed has chosen: twice after
the record is noted, once when its checkpoint is written but not yet in place. The next run resumes. Their exit codes
are printed as JSON.
"""

import json
import os
import random
import signal
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch

from fracdnn.container import read_document
from fracdnn.training import Checkpoints
from tests.training.test_loops import TRAININGS, level_set_task

EVERY = 3


def train(which, folder, name, kill_at):
    """A run to its end, or to the record `kill_at`; checkpoints come before the record is told of."""
    checkpoints = Checkpoints(folder / f"{name}.ckpt", every=EVERY, resume=True)
    task, move = level_set_task(), Path.replace

    def die_at(number):
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def into_place(temporary, path):
        die_at(len(read_document(temporary, "checkpoint")["members"][0]["history"]["records"]))
        return move(temporary, path)

    task.watch = lambda record: die_at(record.iteration)
    with patch.object(Path, "replace", into_place):
        history = replace(TRAININGS[which], checkpoints=checkpoints).fit(task)
    torch.save([p.detach() for p in task.network.parameters()], folder / f"{name}.pt")
    (folder / f"{name}.json").write_text(json.dumps(history.to_dict()), encoding="utf-8")


def run(*arguments):
    """`train` in a process of its own; its exit code."""
    pid = os.fork()
    if pid == 0:
        train(*arguments)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def moments(n_records, seed):
    """Three records in order: one with a checkpoint that follows another, two without."""
    chosen = random.Random(seed)
    writing = [number for number in range(2 * EVERY, n_records) if number % EVERY == 0]
    others = [number for number in range(1, n_records) if number % EVERY]
    return sorted([chosen.choice(writing), *chosen.sample(others, 2)])


def killed_and_whole(which, folder):
    """The exit codes of the killed runs, and of the last."""
    folder.mkdir()
    train(which, folder, "whole", None)  # in this process, so that the others find all imported
    records = json.loads((folder / "whole.json").read_text(encoding="utf-8"))["records"]
    kills = moments(len(records), seed=which)
    return [run(which, folder, "killed", kill_at) for kill_at in (*kills, None)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({which: killed_and_whole(int(which), Path(sys.argv[1]) / which) for which in sys.argv[2:]}))
