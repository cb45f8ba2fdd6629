"""Ctrl-C in the middle of a command: a real signal in a real process, at a moment that its own work decides."""

import json

import polars as pl
import pytest
from sklearn.datasets import load_iris

from tests.cli.commands import run
from tests.plain import PLAIN_OPTIONS
from tests.slow import slow_but


@pytest.mark.parametrize(
    ("moment", "command"),
    [
        pytest.param("90", ["demo"], id="training"),  # half of its iterations
        pytest.param("level-sets.png", ["demo"], id="picture", marks=pytest.mark.slow),
    ],
)
def test_a_command_ends_with_130_and_no_result(moment, command, tmp_path):
    done = run(*command, "--out", "out", cwd=tmp_path, moment=moment)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


def write_iris(folder):
    X, y = load_iris(return_X_y=True, as_frame=True)
    pl.from_pandas(X).with_columns(pl.Series("species", y.to_numpy()).cast(pl.String)).write_csv(folder / "iris.csv")


def test_training_keeps_the_best_model_and_goes_on(tmp_path):
    """At the 25th of a million iterations, five after a checkpoint: the model is usable, and `--resume` goes on."""
    write_iris(tmp_path)
    command = [
        "train",
        "iris.csv",
        "--target",
        "species",
        "--out",
        "early.fracdnn",
        "--optimizer",
        "lbfgs",
        *PLAIN_OPTIONS,
    ]
    options = ["--max-time", "1e6", "--max-iter"]
    done = run(*command, *options, "1000000", cwd=tmp_path, moment="25")
    assert done.returncode == 130, done.stderr
    assert "training was interrupted; the best model so far (iteration " in done.stderr
    assert (tmp_path / "early.ckpt").exists()
    document = json.loads(run("evaluate", "early.fracdnn", "iris.csv", "--json", cwd=tmp_path).stdout)
    assert document["accuracy"] > 0.9
    done = run(*command, *options, "40", "--resume", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["iterations"] == 40
    assert not (tmp_path / "early.ckpt").exists()  # done: no longer needed


@pytest.mark.parametrize(
    ("place", "model"),
    slow_but([("--run", "good/model.fracdnn")], [("--out", "good.fracdnn"), ("--run", "good/model.fracdnn")]),
)
def test_an_interrupted_training_replaces_no_model(place, model, tmp_path):
    """In the first epoch: what is there stays to the last byte, and the command says where both are."""
    write_iris(tmp_path)
    command = ["train", "iris.csv", "--target", "species", place, model.partition("/")[0]]
    assert run(*command, "--max-iter", "5", "-q", cwd=tmp_path).returncode == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "metrics.jsonl"]  # of the last one
    before = {path: path.read_bytes() for path in files}
    done = run(*command, "--max-iter", "1000", "--random-state", "7", "--json", cwd=tmp_path, moment="1")
    assert done.returncode == 130, done.stderr
    assert {path: path.read_bytes() for path in before} == before
    beside = model.replace(".fracdnn", ".interrupted.fracdnn")
    assert f"the best model so far (iteration 1, 8 members) is {beside}; {model} is unchanged; " in done.stderr
    paths = json.loads(done.stdout)
    assert (paths["model"], paths["kept"]) == (beside, model)
    assert run("info", beside, cwd=tmp_path).returncode == 0
    assert (
        run(*command, "--max-iter", "6", "-q", "--start-over", cwd=tmp_path).returncode == 0
    )  # one that is done does replace it
    assert (tmp_path / model).read_bytes() != before[tmp_path / model]


def test_a_run_can_be_resumed_without_having_asked_for_it(tmp_path):
    write_iris(tmp_path)
    command = ["train", "iris.csv", "--target", "species", "--run", "run", "--max-iter", "16"]
    assert run(*command, "--json", cwd=tmp_path, moment="9").returncode == 130
    done = run(*command, "--resume", "--json", cwd=tmp_path)
    assert "--resume continues after iteration 9: run/model.ckpt" in done.stderr
    assert json.loads(done.stdout)["iterations"] == 16
    resumed = run("predict", "run/model.fracdnn", "iris.csv", cwd=tmp_path).stdout
    (tmp_path / "run" / "model.fracdnn").unlink()
    done = run(*command, "--resume", cwd=tmp_path)
    assert (
        "there is no checkpoint to --resume from (run/model.ckpt does not exist); training starts from the beginning"
        in done.stderr
    )
    # The same training, never interrupted, to the last digit.
    assert run("predict", "run/model.fracdnn", "iris.csv", cwd=tmp_path).stdout == resumed
    (tmp_path / "run" / "model.fracdnn").unlink()
    done = run(*command, "--resume", "--checkpoint-path", "none", cwd=tmp_path)
    assert "there is no checkpoint to --resume from (--checkpoint-path is none)" in done.stderr
    assert not (tmp_path / "run" / "model.ckpt").exists()


def test_a_run_whose_time_is_over_can_be_resumed(tmp_path):
    """To the same digits as one that had the time; without checkpoints, the command says that it cannot."""
    write_iris(tmp_path)
    command = ["train", "iris.csv", "--target", "species", "--max-iter", "9"]
    done = run(*command, "--run", "run", "--max-time", "1e-6", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "training reached max_time=1e-06 s after " in done.stderr
    assert done.stderr.endswith("fracdnn: time limit reached; --resume continues from run/model.ckpt\n")
    assert json.loads(done.stdout)["status"] == "time limit"
    done = run(*command, "--run", "run", "--resume", "--json", cwd=tmp_path)
    assert "--resume continues after iteration 1: run/model.ckpt" in done.stderr
    assert json.loads(done.stdout)["iterations"] == 9
    assert not (tmp_path / "run" / "model.ckpt").exists()
    resumed = run("predict", "run/model.fracdnn", "iris.csv", cwd=tmp_path).stdout
    assert run(*command, "--out", "whole.fracdnn", cwd=tmp_path).returncode == 0
    assert run("predict", "whole.fracdnn", "iris.csv", cwd=tmp_path).stdout == resumed
    command += ["--out", "m.fracdnn", "--max-time", "1e-6"]
    done = run(*command, "--checkpoint-path", "none", cwd=tmp_path)
    assert "time limit reached; no checkpoint to --resume from exists" in done.stderr
    done = run(*command, cwd=tmp_path)
    assert done.stderr.endswith("fracdnn: time limit reached; --resume continues from m.ckpt\n")
    assert (tmp_path / "m.ckpt").exists()


def test_members_that_are_trained_one_after_the_other_are_resumed(tmp_path):
    """In the fifth of the second one's ten iterations; one checkpoint holds both."""
    write_iris(tmp_path)
    command = [
        "train",
        "iris.csv",
        "--target",
        "species",
        "--optimizer",
        "lbfgs",
        "--n-members",
        "2",
        "--max-iter",
        "10",
    ]
    command += ["--json"]
    done = run(*command, "--run", "run", cwd=tmp_path, moment="15")
    assert done.returncode == 130, done.stderr
    assert (tmp_path / "run" / "model.ckpt").exists()
    done = run(*command, "--run", "run", "--resume", cwd=tmp_path)
    assert "--resume continues after iteration 10: run/model.ckpt" in done.stderr
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "held-out.csv",
        "metrics.jsonl",
        "model.fracdnn",
    ]
    assert run(*command, "--run", "whole", cwd=tmp_path).returncode == 0
    one, two = (run("predict", f"{name}/model.fracdnn", "iris.csv", cwd=tmp_path).stdout for name in ("run", "whole"))
    assert one == two
