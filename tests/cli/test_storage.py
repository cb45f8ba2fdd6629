"""Disks that are full, files that are damaged, and machines that have the checkpoint where another one is the first."""

import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from tests.cli.commands import run

QUICK = ["train", "t.csv", "--target", "y", "--n-members", "1", "--max-iter", "12"]


def write_table(folder):
    a, b = np.random.default_rng(0).standard_normal((2, 200))
    pl.DataFrame({"a": a, "b": b, "y": a - b}).write_csv(folder / "t.csv")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 16 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", disk], capture_output=True).returncode:
        pytest.skip("mounting needs the rights of root")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.slow  # full disks are in `test_places.py`
def test_a_full_disk_is_one_line_and_torchrun_starts_nothing_again_in_earnest(small_disk, tmp_path):
    write_table(tmp_path)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "--max-restarts", "2"]
    torchrun += ["--monitor-interval", "0.1", "-m", "--", "fracdnn", *QUICK, "--run", small_disk / "run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, torchrun)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 1
    told = [line for line in done.stderr.splitlines() if line.startswith("fracdnn: ")]
    full = (
        f"cannot write to {small_disk}/run/model.ckpt: No space left on device; free some space, or pass another path"
    )
    assert told.count(f"fracdnn: {full}") == 1
    assert told[-2:] == [f"fracdnn: not retried, because it would fail again: {full}"] * 2
    assert sum("training on " in line for line in told) == 1
    assert [path.name for path in (small_disk / "run").iterdir()] == ["metrics.jsonl"]


def test_a_damaged_checkpoint_is_replaced_by_the_one_before_it_and_what_a_kill_left_is_removed(tmp_path):
    write_table(tmp_path)
    assert run(*QUICK, "--run", "whole", cwd=tmp_path).returncode == 0
    assert run(*QUICK, "--run", "run", cwd=tmp_path, moment="7").returncode == 130
    folder = tmp_path / "run"
    checkpoint, stale = folder / "model.ckpt", folder / ".model-abcd_123.ckpt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    stale.write_bytes(b"half")
    done = run(*QUICK, "--run", "run", "--resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--resume continues after iteration 6: run/model.ckpt.previous" in done.stderr
    assert "run/model.ckpt must be a fracdnn checkpoint, got a file that cannot be read as one" in done.stderr
    assert not stale.exists()
    assert not [path for path in folder.iterdir() if "ckpt" in path.name]
    one, two = (run("predict", f"{name}/model.fracdnn", "t.csv", cwd=tmp_path).stdout for name in ("run", "whole"))
    assert one == two
    assert one
