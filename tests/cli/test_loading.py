"""Commands import their modules when they run, with Ctrl-C deferred."""

import json
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_iris

import fracdnn.cli
from fracdnn.cli.app import loaded
from fracdnn.estimators.table_model import TableModel
from tests.cli.commands import run, run_light

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
        ([*TRAIN, "--n-layers", "many"], 2, "n_layers must be a whole number at least 1, got 'many'"),
        ([*TRAIN, "--n-members", "few"], 2, "n_members must be a whole number at least 1 or 'auto', got 'few'"),
        (
            [*TRAIN, "--activation", "sine", "--device", "cpu"],
            2,
            "activation must be 'gelu' or 'identity' or 'relu' or 'sigmoid' or 'silu' or 'tanh', got 'sine'",
        ),
    ],
)
def test_wrong_usage_of_train_is_told_before_anything_heavy_is_imported(arguments, code, message, tmp_path):
    (tmp_path / "t.csv").touch()
    done = without_heavy_imports(["train", *arguments], HEAVY, tmp_path)
    assert done.returncode == code
    assert message in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["train", "t.csv", "--target", "c", "--out", "m"],
            "the table must have the target column 'c'; it has 'a', 'b'",
        ),
        (
            ["train", "t.csv", "--target", "b", "--out", "."],
            "--out must be a file, got the folder .; pass a path in it",
        ),
        (["train", "t.csv", "--target", "b", "--run", "t.csv"], "--run must be a folder, got the file t.csv"),
        (
            ["train", "t.csv", "--target", "b", "--out", "t.csv"],
            "--out must not be an input, got t.csv, which is t.csv",
        ),
        (["predict", "t.csv", "t.csv"], "t.csv must be a model file, got a table; train a model first"),
        (["evaluate", ".", "t.csv"], ". must be a model file, got a folder; "),
    ],
)
def test_wrong_files_are_told_before_torch_is_imported(arguments, message, tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,y\n", encoding="utf-8")
    done = without_heavy_imports(arguments, HEAVY - {"polars", "numpy"}, tmp_path)
    assert done.returncode == 1
    assert message in done.stderr


def without_heavy_imports(arguments, heavy, folder):
    """Run a command, which must not import any of these."""
    done = run_light(*arguments, cwd=folder)
    assert "fracdnn.cli" in done.imported
    assert heavy & done.imported == set()
    return done


@pytest.mark.parametrize(
    "kind", [fracdnn.FractionalClassifier, pytest.param(fracdnn.FractionalRegressor, marks=pytest.mark.slow)]
)
def test_info_says_without_heavy_imports_what_the_model_is(kind, tmp_path):
    X, y = load_iris(return_X_y=True, as_frame=True)
    fitted = kind(max_iter=2, n_members=2, learn_order=True, random_state=0).fit(X.astype(float), y)
    TableModel(fitted, "species", {"summary": {"order": fitted.order_}}).save(tmp_path / "m.fracdnn")
    heavy = HEAVY - {"numpy"}
    document = json.loads(without_heavy_imports(["info", "m.fracdnn", "--json"], heavy, tmp_path).stdout)
    assert (document["estimator"], document["target"], document["members"]) == (kind.__name__, "species", 2)
    assert document["network"] == {**fitted.network_.options, "order": fitted.order_}
    assert document["columns"] == fitted.encoding_.state()
    assert document["classes"] == (y.unique().tolist() if kind is fracdnn.FractionalClassifier else None)
    assert document["temperature"] == fitted.temperature_
    history = {"iterations": fitted.n_iter_, "loss": fitted.loss_, "status": fitted.history_.status}
    assert document["training"] == history
    text = without_heavy_imports(["info", "m.fracdnn"], heavy, tmp_path).stdout
    assert f"order: {fitted.order_:g} (learned)\n" in text
    assert "layers of width 64, silu\n" in text
    done = without_heavy_imports(["info", "t.csv"], HEAVY - {"numpy"}, tmp_path)
    assert done.stderr.startswith("fracdnn: t.csv must be a model file, got none there; check the path, or train")


def test_info_takes_a_learned_order_from_the_networks_where_no_training_tells_it(tmp_path):
    X, y = load_iris(return_X_y=True)
    fitted = fracdnn.FractionalClassifier(max_iter=2, n_members=2, learn_order=True, random_state=0).fit(X, y)
    TableModel(fitted, "species", {}).save(tmp_path / "m.fracdnn")
    document = json.loads(run("info", "m.fracdnn", "--json", cwd=tmp_path).stdout)
    assert document["network"]["order"] == fitted.order_ != 0.5


def test_a_target_around_1e300(tmp_path):
    """Squares of such values are too large for a number."""
    a, b = np.random.default_rng(0).standard_normal((2, 120))
    pl.DataFrame({"a": a, "b": b, "y": 1e300 * (a + b)}).write_csv(tmp_path / "t.csv")
    command = [
        "train",
        "t.csv",
        "--target",
        "y",
        "--out",
        "m.fracdnn",
        "--max-iter",
        "30",
        "--n-members",
        "2",
        "--json",
    ]
    done = run(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["test"]["R2"] > 0.5
    assert 0 < told["test"]["RMSE"] < told["baseline"]["RMSE"] < 1e301
    assert "R² 0." in told["verdict"]
    done = run("report", "m.fracdnn", "--data", "t.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
