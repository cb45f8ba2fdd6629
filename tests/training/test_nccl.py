"""Trainings whose sums NCCL makes, on a real GPU, started by torchrun."""

import ast
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="NCCL needs a CUDA device, and there is none")


def test_one_process_under_torchrun_ends_where_it_ends_without(tmp_path):
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1", "-m", "tests.training.nccl_run"]
    subprocess.run([*launch, str(tmp_path / "found")], check=True)
    found = ast.literal_eval((tmp_path / "found").read_text())
    for each in found.values():
        assert each["sums on the GPU"] >= 30
        assert each["apart"] <= 1e-10
        assert each["losses"] <= 1e-10
    assert set(found) == {"bfgs", "adam"}
