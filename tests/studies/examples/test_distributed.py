"""Stacks trained by two processes that torchrun starts: the losses are those of one process, without a warning."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from examples.distributed import ddp, fsdp2

ROOT = Path(__file__).parents[3]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("example", [pytest.param(ddp, id="ddp"), pytest.param(fsdp2, id="fsdp2")])
def test_two_processes_have_the_losses_of_one(example):
    expected = example.trained(rank=0, size=1)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*TORCHRUN, example.__file__], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    found = re.findall(r"^step (\d): loss (\S+)$", done.stdout, flags=re.MULTILINE)
    assert [int(step) for step, _ in found] == list(range(example.STEPS))
    assert [float(loss) for _, loss in found] == pytest.approx(expected, rel=2e-6)
    assert expected[-1] < 0.5 * expected[0]


@pytest.mark.slow
def test_ray_runs_the_same_training():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'ray[train]'")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, ROOT / "examples" / "distributed" / "ray_train.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    found = [float(loss) for loss in re.findall(r"^step \d: loss (\S+)$", done.stdout, flags=re.MULTILINE)]
    assert found == pytest.approx(ddp.trained(rank=0, size=1), rel=2e-6)


@pytest.mark.slow
def test_processes_share_a_search_of_optuna(tmp_path):
    pytest.importorskip("optuna", reason="Optuna is not installed: pip install optuna")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, ROOT / "examples" / "distributed" / "optuna_search.py", f"sqlite:///{tmp_path}/s.db"]
    for _ in range(2):  # the second has nothing left to try
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=300)
        assert done.returncode == 0, done.stderr
        trials, accuracy = re.search(r"^(\d+) trials, best accuracy (\S+) with", done.stdout).groups()
        assert int(trials) == 8
        assert float(accuracy) > 0.9
