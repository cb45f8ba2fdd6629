import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fracdnn.container import read_document, write_document
from fracdnn.exceptions import FileContentError
from fracdnn.training import AdamTraining, Checkpoints, EarlyStopping
from tests.slow import each_once
from tests.training.test_loops import TRAININGS, level_set_task

# Seven records between checkpoints: one falls inside a mini-batch of ten iterations, one at its end (70).
EVERY = 7
ROOT = Path(__file__).parents[2]


def trained(training, task):
    history = training.fit(task)
    return history, [p.detach().clone() for p in task.network.parameters()], task.generator.get_state()


def stop_at(number):
    def watch(record):
        if record.iteration == number:
            raise KeyboardInterrupt

    return watch


@pytest.mark.parametrize(("training", "stop"), each_once(TRAININGS, [5, 7, 11, 20, 29]), ids=repr)
def test_a_resumed_run_ends_at_the_same_bits(training, stop, tmp_path):
    history, parameters, random_state = trained(training, level_set_task())
    checkpoints = Checkpoints(tmp_path / "run.ckpt", every=EVERY)
    interrupted = level_set_task()
    interrupted.watch = stop_at(stop)
    replace(training, checkpoints=checkpoints, keep_interrupted=True).fit(interrupted)
    # Another start and another state of the generator: both must come from the file, that of the interrupt.
    other = level_set_task(seed=1)
    other.x, other.target = interrupted.x, interrupted.target
    resumed = trained(replace(training, checkpoints=replace(checkpoints, resume=True)), other)
    assert resumed[0] == history
    for ours, theirs in zip(resumed[1], parameters, strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(resumed[2], random_state)


def test_a_run_with_frozen_parameters_is_resumed(tmp_path):
    training = AdamTraining(0.02, 16, 8)
    tasks = [level_set_task() for _ in range(3)]
    for task in tasks:
        task.network.W.requires_grad_(False)
    history, parameters, _ = trained(training, tasks[0])
    checkpoints = Checkpoints(tmp_path / "run.ckpt", every=4, resume=True)
    replace(training, max_time=1e-9, checkpoints=checkpoints).fit(tasks[1])
    resumed = trained(replace(training, checkpoints=checkpoints), tasks[2])
    assert resumed[0] == history
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(resumed[1], parameters, strict=True))
    assert torch.equal(tasks[2].network.W, level_set_task().network.W)


@pytest.mark.parametrize("training", TRAININGS[:2], ids=repr)
def test_a_finished_run_goes_on_with_a_larger_limit(training, tmp_path):
    checkpoints = Checkpoints(tmp_path / "run.ckpt", every=5, resume=True)
    short, longer = (replace(training, **{training._limit: limit}) for limit in (10, 18))
    _, parameters, _ = trained(longer, level_set_task())
    replace(short, checkpoints=checkpoints).fit(level_set_task())
    assert len(read_document(checkpoints.path, "checkpoint")["members"][0]["history"]["records"]) == 10
    _, resumed, _ = trained(replace(longer, checkpoints=checkpoints), level_set_task())
    assert all(torch.equal(a, b) for a, b in zip(parameters, resumed, strict=True))


def test_a_run_that_stopped_early_is_over_when_it_is_resumed(tmp_path):
    task = level_set_task(n=40, width=32)
    task.target = torch.randint(2, (40,), generator=torch.Generator().manual_seed(5))  # nothing to learn
    checkpoints = Checkpoints(tmp_path / "run.ckpt", every=1, resume=True)
    training = AdamTraining(
        0.05, 8, 300, early_stopping=EarlyStopping(0.5, n_iter_no_change=5), checkpoints=checkpoints
    )
    first, again = training.fit(task), training.fit(task)
    assert first == again
    assert again.status == "no improvement"


def test_the_last_checkpoint_of_a_run_that_was_not_finite_has_what_is_finite(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run.ckpt", every=1)
    task = level_set_task()
    task.watch = lambda record: task.x.fill_(torch.nan) if record.iteration == 3 else None
    history = AdamTraining(0.02, 16, 9, checkpoints=checkpoints).fit(task)
    assert (history.status, len(history.records)) == ("not finite", 3)
    (document,) = read_document(checkpoints.path, "checkpoint")["members"]
    assert document["position"]["epoch"] == 3
    assert all(bool(p.isfinite().all()) for p in task.network.parameters())


def test_a_smaller_limit_than_what_is_done(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run.ckpt", every=5, resume=True)
    replace(TRAININGS[0], max_iter=10, checkpoints=checkpoints).fit(level_set_task())
    history = replace(TRAININGS[0], max_iter=5, checkpoints=checkpoints).fit(level_set_task())
    assert len(history.records) == 10


def test_a_checkpoint_of_something_else_is_refused(tmp_path):
    path = tmp_path / "run.ckpt"
    training = replace(TRAININGS[0], checkpoints=Checkpoints(path, every=10, resume=True))
    training.fit(level_set_task())
    cases = [
        (training, level_set_task(seed=1), "other data"),
        (training, level_set_task(n_layers=6), "other network"),
        (replace(training, tolerance_grad=1e-3), level_set_task(), "other settings"),
        (replace(TRAININGS[3], checkpoints=training.checkpoints), level_set_task(), "other settings"),
    ]
    for other, task, message in cases:
        before = [p.detach().clone() for p in task.network.parameters()]
        with pytest.raises(FileContentError, match=f"must be a checkpoint of this training, got one with {message}"):
            other.fit(task)
        assert all(torch.equal(a, b) for a, b in zip(before, task.network.parameters(), strict=True))
    write_document(path, "model", {})
    with pytest.raises(FileContentError, match="must be a fracdnn checkpoint, got a model"):
        training.fit(level_set_task())


CHECKPOINT_FORGERIES = [
    (0, lambda d: d.pop("identity")),
    (0, lambda d: d.pop("generator")),
    (0, lambda d: d.update(generator=d["generator"].to(torch.int64))),
    (0, lambda d: d["identity"]["network"].update(n_layers=torch.zeros(2))),
    (0, lambda d: d.update(position={})),
    (0, lambda d: d["position"].update(iteration=-1)),
    (0, lambda d: d["position"]["optimizer"]["state"].update(steps=torch.zeros(2))),
    (0, lambda d: d["position"]["optimizer"]["state"].pop("steps")),
    (1, lambda d: d["position"]["optimizer"]["state"].update(matrix=torch.eye(3, dtype=torch.float64))),
    (0, lambda d: d["network"].update(K=d["network"]["K"][:2])),
    (0, lambda d: d.update(best=3)),
    (0, lambda d: d.update(held_out=torch.tensor([0]))),
    (0, lambda d: d["history"]["records"][0].update(surprise=1)),
    (0, lambda d: d["history"]["records"][0].update(loss="low")),
    (2, lambda d: d["position"].pop("drawn_from")),
    (2, lambda d: d["position"].update(batch="first")),
    (4, lambda d: d["position"].update(epoch=None)),
    (4, lambda d: d["position"]["optimizer"].pop("0")),
    (4, lambda d: d["position"]["optimizer"]["0"].update(exp_avg=torch.zeros(2))),
    (4, lambda d: d["position"]["optimizer"]["0"].update(step=torch.tensor(1))),
    (4, lambda d: d.update(waited=-1)),
    (4, lambda d: d.update(best_score="low")),
    (4, lambda d: d.update(held_out=None)),
    (4, lambda d: d.update(held_out=d["held_out"] + 300)),
    (4, lambda d: d.update(held_out=d["held_out"].double())),
    (4, lambda d: d["best"].pop("W")),
]


@pytest.mark.parametrize(("which", "forge"), CHECKPOINT_FORGERIES)
def test_a_checkpoint_that_lies_is_refused(which, forge, tmp_path):
    """Whole by its checksum and of this training: what is inconsistent is still the file's fault."""
    path = tmp_path / "run.ckpt"
    limit = {name: 4 for name in ("max_iter", "max_epochs") if hasattr(TRAININGS[which], name)}
    training = replace(TRAININGS[which], **limit, checkpoints=Checkpoints(path, every=3, resume=True))
    training.fit(level_set_task())
    document = read_document(path, "checkpoint")
    forge(document["members"][0])
    write_document(path, "checkpoint", document)
    with pytest.raises(FileContentError, match="must hold a whole checkpoint, got an inconsistent document"):
        training.fit(level_set_task())


def test_a_run_killed_three_times_ends_at_the_same_bits(tmp_path):
    """On the full batch, on mini-batches, by Adam.

    Real processes and a real SIGKILL, also in the middle of writing a checkpoint; records say when, not a clock.
    """
    command = [sys.executable, "-m", "tests.training.killed_runs", str(tmp_path), "0", "2", "3"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {which: [*[-signal.SIGKILL] * 3, 0] for which in "023"}
    for folder in (tmp_path / which for which in "023"):
        whole, killed = ((folder / f"{name}.json").read_text(encoding="utf-8") for name in ("whole", "killed"))
        assert whole == killed
        for ours, theirs in zip(torch.load(folder / "killed.pt"), torch.load(folder / "whole.pt"), strict=True):
            assert torch.equal(ours, theirs)
        # What a kill in the middle of a write leaves is a file beside the checkpoint, never half a checkpoint.
        assert len(list(folder.glob(".killed-*.ckpt"))) == 1
