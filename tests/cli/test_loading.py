"""Commands import their modules when they run, with Ctrl-C deferred."""

import signal
import subprocess
import sys

import pytest

import fracdnn.cli
from fracdnn.cli.app import loaded

HEAVY = {"torch", "numpy", "sklearn", "scipy", "polars", "joblib", "numba"}
TRAIN = ["t.csv", "--target", "b", "--out", "m"]
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


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--help-all"], 0, "--outlier-limit"),
        (["t.csv", "--nosuch", "3"], 2, "No such option: --nosuch"),
        (["nofile.csv", "--target", "b", "--out", "m"], 1, "nofile.csv: No such file or directory"),
        (["t.csv", "--target", "b"], 2, "pass --out MODEL or --run FOLDER"),
        (["t.csv", "--out", "m"], 2, "pass --target COLUMN: the column to predict"),
        ([*TRAIN, "--n-layers", "many"], 2, "Invalid value for '--n-layers'"),
        ([*TRAIN, "--n-members", "few"], 2, "'few' is neither a whole number nor 'auto'"),
        ([*TRAIN, "--memory-limit", "much"], 2, "memory_limit must be a number of bytes"),
        (
            [*TRAIN, "--activation", "sine", "--device", "cpu"],
            2,
            "activation must be 'gelu' or 'identity' or 'relu' or 'sigmoid' or 'silu' or 'tanh', got 'sine'",
        ),
    ],
)
def test_wrong_usage_of_train_is_told_before_anything_heavy_is_imported(arguments, code, message, tmp_path):
    (tmp_path / "t.csv").touch()
    program = f"""
import atexit, sys
atexit.register(lambda: print("loaded:", *{HEAVY} & sys.modules.keys(), file=sys.stderr))
from fracdnn.cli import main
sys.argv[1:] = ["train", *{arguments}]
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, "loaded:")
    assert message in done.stdout + done.stderr


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
