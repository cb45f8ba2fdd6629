"""`fracdnn info --system`, the block that bug reports start with."""

import json
import platform
from importlib import metadata

import torch

import fracdnn
from tests.cli.commands import run
from tests.test_extras import OURS, without

MAIN = "import os; os.environ['FRACDNN_CACHE'] = '/home/somebody'\nfrom fracdnn.cli import main; main()"


def test_versions_devices_kernels_and_settings_in_one_block(tmp_path):
    document = json.loads(run("info", "--system", "--json", cwd=tmp_path).stdout)
    assert document["fracdnn"] == fracdnn.__version__
    assert document["python"] == platform.python_version()
    assert document["packages"]["scikit-learn"] == metadata.version("scikit-learn")
    assert len(document["devices"]) == 1 + torch.cuda.device_count()
    assert document["kernels"] == (["triton"] if torch.cuda.is_available() else ["none"])
    text = run("info", "--system", cwd=tmp_path).stdout
    assert [line.partition(": ")[0] for line in text.splitlines()] == list(document)


def test_it_needs_no_extra_and_names_no_folder():
    done = without(OURS, MAIN, "info", "--system")
    assert done.returncode == 0, done.stderr
    kernels = "triton" if torch.cuda.is_available() else "none"  # Triton comes with torch's builds for GPUs
    assert f"kernels: {kernels}\n" in done.stdout
    assert "FRACDNN_CACHE (set)" in done.stdout
    assert "somebody" not in done.stdout


def test_a_broken_torch_is_reported():
    done = without([*OURS, "torch"], MAIN, "info", "--system")
    assert "devices: torch cannot be imported: " in done.stdout


def test_a_model_or_the_system(tmp_path):
    for arguments in (["info"], ["info", "model.fracdnn", "--system"]):
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert "pass either a model file or --system" in done.stderr
