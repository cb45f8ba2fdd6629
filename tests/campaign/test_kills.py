"""Trainings with checkpoints under random signals: resumed, they end at the same bits; no file is half-written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fracdnn.container import read_document
from tests.campaign.budget import cases, full, say_tried, seed_of
from tests.campaign.kills import same
from tests.slow import slow_but

ROOT = Path(__file__).parents[2]
TRAININGS = ("0", "1", "3", "4", "5", "command")


def results(folder, name, which):
    if which == "command":
        return read_document(folder / f"{name}.fracdnn", "model")
    history = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return {"compress": history, **{str(k): p for k, p in enumerate(torch.load(folder / f"{name}.pt"))}}


@pytest.mark.parametrize("round_", range(cases(1, 4)))
@pytest.mark.parametrize("which", slow_but(TRAININGS if full() else (), TRAININGS[-cases(1, len(TRAININGS)) :]))
def test_a_disturbed_run_ends_at_the_same_bits(which, round_, tmp_path):
    seed = seed_of(f"kills {which} {round_}")
    command = [sys.executable, "-m", "tests.campaign.kills", which, str(tmp_path), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])  # above it, what the command prints
    say_tried(f"kills of {which}, round {round_}", len(told))
    assert told[-1][1] == 0
    assert same(results(tmp_path, "killed", which), results(tmp_path, "whole", which)), told


@pytest.mark.slow
def test_disturbed_runs_end_at_the_same_bits_or_with_a_line_and_never_train_twice(tmp_path):
    """One process and torchrun; signals, a full disk, a stopped process, a launcher that is gone."""
    if subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path], capture_output=True).returncode:
        pytest.skip("mounting needs the rights of root")
    try:
        count = cases(6, 60)
        command = [sys.executable, "-m", "tests.campaign.disturbances", str(count), str(tmp_path / "runs")]
        done = subprocess.run([*command, str(seed_of("disturbances"))], capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == count
        say_tried("disturbed runs", count)
    finally:
        subprocess.run(["umount", tmp_path], check=True)
