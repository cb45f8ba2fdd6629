"""Ctrl-C in the middle of a command: a real signal in a real process, at a moment that its own work decides."""

import json

import polars as pl
import pytest
from sklearn.datasets import load_iris

from tests.cli.commands import run


@pytest.mark.parametrize(
    ("moment", "command"),
    [
        ("90", ["demo"]),  # half of its iterations
        ("level-sets.png", ["demo"]),
        ("1", ["reproduce", "nonsmooth", "--quick"]),  # with runs in processes of their own under way
    ],
    ids=["training", "picture", "processes"],
)
def test_a_command_ends_with_130_and_no_result(moment, command, tmp_path):
    done = run(*command, "--out", "out", cwd=tmp_path, moment=moment)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_training_keeps_the_best_model_and_goes_on(tmp_path):
    """At the 25th of a million iterations, five after a checkpoint: the model is usable, and `--resume` goes on."""
    X, y = load_iris(return_X_y=True, as_frame=True)
    pl.from_pandas(X).with_columns(pl.Series("species", y.to_numpy()).cast(pl.String)).write_csv(tmp_path / "iris.csv")
    command = ["train", "iris.csv", "--target", "species", "--out", "early.fracdnn", "--solver", "lbfgs"]
    options = ["--tolerance", "0", "--checkpoint-every", "20", "--max-iter"]
    done = run(*command, *options, "1000000", cwd=tmp_path, moment="25")
    assert done.returncode == 130, done.stderr
    assert "training was interrupted; the model is the best so far" in done.stderr
    assert (tmp_path / "early.ckpt").exists()
    document = json.loads(run("evaluate", "early.fracdnn", "iris.csv", "--json", cwd=tmp_path).stdout)
    assert document["accuracy"] > 0.9
    done = run(*command, *options, "40", "--resume", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["iterations"] == 40
    assert not (tmp_path / "early.ckpt").exists()  # done: no longer needed
