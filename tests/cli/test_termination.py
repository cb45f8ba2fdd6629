"""SIGTERM: a real signal to a real process in the midst of its work, which leaves nothing half-done behind."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

from tests.cli.commands import run
from tests.slow import slow_but


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("terminated")
    a, b = np.random.default_rng(0).standard_normal((2, 200))
    pl.DataFrame({"a": a, "b": b, "y": a - b}).write_csv(folder / "t.csv")
    done = run("train", "t.csv", "--target", "y", "--run", "run", "--max-iter", "2", "--n-members", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def started(*arguments, cwd, **options):
    command = [sys.executable, "-m", "fracdnn", *map(str, arguments)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=cwd, env={**os.environ, "OMP_NUM_THREADS": "1"}, **streams, **options)


def wait_for(condition, process, seconds=120):
    ends = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < ends
        time.sleep(0.05)


def ignore_ctrl_c():
    """As a shell starts jobs in the background."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


VARIANTS = [(rows, ending) for rows in (0, 600_000) for ending in ("csv", "parquet")]


@pytest.mark.parametrize(("rows", "ending"), slow_but([(0, "csv"), (600_000, "parquet")], VARIANTS))
def test_predictions_leave_no_temporary_file(rows, ending, place, tmp_path):
    """The table comes from a pipe that stays open. The command takes 8 MB of it at a time: when it has taken 12 MB, it
    has written the first part, and waits for the rest of the second.
    """
    path = place / "run" / "model.fracdnn"
    ignoring = {"preexec_fn": ignore_ctrl_c} if rows == 0 else {}
    with started("predict", path, "-", "--out", tmp_path / f"p.{ending}", cwd=tmp_path, **ignoring) as process:
        process.stdin.write("a,b\n" + "1.2345678,2.3456789\n" * rows)
        process.stdin.flush()
        wait_for(lambda: any(tmp_path.iterdir()), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        told = process.stderr.read()
    assert told == "fracdnn: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_training_keeps_the_best_model_and_its_checkpoint_and_no_lock(place, tmp_path):
    command = ["train", place / "t.csv", "--target", "y", "--run", "run", "--max-iter", "100000", "--n-members", "1"]
    command += ["--checkpoint-every", "5", "--no-early-stopping", "--n-iter-no-change", "100000"]
    with started(*command, cwd=tmp_path) as process:
        wait_for((tmp_path / "run" / "model.ckpt").exists, process)
        assert (tmp_path / "run" / "train.lock").exists()
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 143, told
    assert "training was interrupted; the model is the best so far" in told
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["held-out.csv", "model.ckpt", "model.fracdnn"]
