"""Commands import their modules when they run, with Ctrl-C deferred."""

import signal
import subprocess
import sys

import pytest

import fracdnn.cli
from fracdnn.cli.app import loaded

MODULE = """
import signal
signal.raise_signal(signal.SIGINT)
finished = True
"""


def test_ctrl_c_waits_for_an_import(tmp_path, monkeypatch):
    (tmp_path / "interrupted.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setattr(fracdnn.cli, "__path__", [*fracdnn.cli.__path__, str(tmp_path)])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            loaded("interrupted")
    finally:
        signal.signal(signal.SIGINT, before)
    assert sys.modules.pop("fracdnn.cli.interrupted").finished


def test_commands_that_train_are_ready_for_an_optimizer():
    code = """
import sys
from fracdnn.cli.app import loaded
loaded("messages")
print("torch" in sys.modules)
loaded("messages", trains=True)
import torch
before = set(sys.modules)
torch.optim.Adam([torch.ones(1, requires_grad=True)])
print("torch._dynamo" in before, {name for name in set(sys.modules) - before if name.startswith("torch._dynamo")})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\nTrue set()\n"


def test_warmup_names_every_dtype():
    done = subprocess.run([sys.executable, "-m", "fracdnn", "warmup"], capture_output=True, text=True, check=True)
    lines = [line.partition(" (")[0] for line in done.stdout.splitlines()]
    assert [line.partition(":")[0] for line in lines] == [f"small network, {dtype}" for dtype in ("float32", "float64")]
    assert {line.partition(": ")[2] for line in lines} <= {"compiled", "found on disk"}


def test_warmup_without_numba_says_what_is_slower():
    code = "import sys; sys.modules['numba'] = None; from fracdnn.cli import main; sys.argv[1:] = ['warmup']; main()"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "nothing to compile: numba is missing: run pip install 'fracdnn[fast]'",
        "until then small networks train on torch's operations, which is several times slower",
    ]
