"""SIGTERM: a real signal to a real process in the midst of its work, which leaves nothing half-done behind."""

import json
import os
import re
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


@pytest.mark.parametrize(("rows", "ending"), slow_but([(0, "csv")], VARIANTS))
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
    """The checkpoint is of the last epoch, whenever checkpoints are due, and goes on to the same bits.

    In a job in the background, which Ctrl-C does not reach, too; no line of metrics is lost.
    """
    command = ["train", place / "t.csv", "--target", "y", "--max-iter", "80", "--n-members", "1"]
    command += ["--no-early-stopping", "--run"]
    shown = ["predict", "run/model.fracdnn", place / "t.csv"]
    assert run(*command, "run", "--quiet", cwd=place).returncode == 0
    whole = run(*shown, cwd=place).stdout
    command.append("run")
    with started(*command, cwd=tmp_path, preexec_fn=ignore_ctrl_c) as process:
        wait_for((tmp_path / "run" / "model.ckpt").exists, process)
        assert (tmp_path / "run" / "train.lock").exists()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 143, told
    assert "training was interrupted; the best model so far" in told
    names = {path.name for path in (tmp_path / "run").iterdir()} - {"model.ckpt.previous"}
    assert names == {"held-out.csv", "metrics.jsonl", "model.ckpt", "model.fracdnn"}
    done = run(*command, "--resume", cwd=tmp_path)
    last = re.search(r"the best model so far \(iteration (\d+)\)", told)[1]
    assert f"--resume continues after iteration {last}: run/model.ckpt" in done.stderr
    assert run(*shown, cwd=tmp_path).stdout == whole
    metrics = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [each["step"] for each in metrics] == list(range(1, 81))
    assert all(each["loss"] > 0 and each["rows_per_second"] > 0 and each["held_out_loss"] is None for each in metrics)
    assert re.search(r"fracdnn: iteration 80 of 80: loss \S+, \S+ rows/s, last checkpoint \d\d\n", done.stderr)


def test_before_the_command_begins(tmp_path):
    """The exit code is the same where Typer still reads the arguments."""
    program = "import os, signal; from fracdnn.cli import app, main; "
    program += "app._Train.parse_args = lambda *_: os.kill(os.getpid(), signal.SIGTERM); main()"
    (tmp_path / "t.csv").write_text("a,y\n1,2\n")
    done = subprocess.run([sys.executable, "-c", program, "train", "t.csv"], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (143, b"")


def test_a_process_whose_torchrun_is_gone_ends_with_its_checkpoint(place, tmp_path):
    """The launcher is a real process that gets SIGKILL; what it started stands for a rank of torchrun's."""
    launcher = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'fracdnn', *sys.argv[1:]])"
    command = ["train", place / "t.csv", "--target", "y", "--max-iter", "100000", "--n-members", "1"]
    command += ["--no-early-stopping", "--run", "run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "1", "LOCAL_RANK": "0"}
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", launcher, *map(str, command)]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, **streams) as process:
        wait_for((tmp_path / "run" / "model.ckpt").exists, process)
        process.kill()
        told = process.stderr.read()  # until the other process has ended, too
    assert "fracdnn: torchrun is gone, so this training ends\n" in told
    assert "training was interrupted; the best model so far" in told
    assert not (tmp_path / "run" / "train.lock").exists()
    assert (tmp_path / "run" / "model.ckpt").exists()
