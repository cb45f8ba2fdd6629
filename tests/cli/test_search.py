"""`fracdnn train --search`: what is tried, that it can be repeated, and Ctrl-C in the midst of it."""

import json
import re

import polars as pl
import pytest
from sklearn.datasets import load_diabetes, load_iris

import fracdnn
from fracdnn.cli.settings_search import FEW_SETTINGS, N_SETTINGS, SPACE, Trial, drawn_settings
from tests.cli.commands import run
from tests.slow import slow_but


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two tables; rows of the second are in the order of the target, as tables often are."""
    path = tmp_path_factory.mktemp("search")
    X, y = load_iris(return_X_y=True, as_frame=True)
    pl.from_pandas(X).with_columns(pl.Series("species", y.to_numpy()).cast(pl.String)).write_csv(path / "iris.csv")
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    pl.from_pandas(X).with_columns(pl.Series("y", y.to_numpy())).sort("y").write_csv(path / "diabetes.csv")
    return path


def searched(table, target, *options, folder, moment=None):
    command = ["train", table, "--target", target, "--out", "model.fracdnn", "--search", "--n-members", "1"]
    return run(*command, *options, cwd=folder, moment=moment)


@pytest.mark.slow
def test_processes_do_not_change_what_is_found(folder):
    """A given option is not searched; the model has the setting of the first row, and a file of its own."""
    options = ["--max-iter", "2", "--order", "0.9", "--json"]
    one, two = (searched("iris.csv", "species", *options, "--jobs", jobs, folder=folder) for jobs in ("1", "2"))
    assert one.returncode == two.returncode == 0, one.stderr + two.stderr
    assert one.stdout == two.stdout
    assert one.stderr == two.stderr
    trials = json.loads(one.stdout)["search"]
    best = max(sum(trial["scores"]) / 5 for trial in trials)
    assert f"40/40 fits, best accuracy {best:.4f} of 8 settings" in one.stderr
    settings = [{name: value for name, value in trial.items() if name != "scores"} for trial in trials]
    names = [name for name in SPACE if name != "order"]
    own = {name: fracdnn.FractionalClassifier().get_params()[name] for name in names}
    assert len(settings) == FEW_SETTINGS  # the table is small
    assert settings.count(own) == 1
    assert all(list(setting) == names for setting in settings)
    means = [sum(trial["scores"]) / 5 for trial in trials]
    assert means == sorted(means, reverse=True)
    first = re.search(r"│ +1 │(.*)│", one.stderr).group(1).split("│")
    assert [float(value) for value in first[:-1]] == pytest.approx([*settings[0].values(), means[0]], abs=1e-4)
    model = fracdnn.load(folder / "model.fracdnn").estimator
    assert model.order == 0.9
    assert {name: model.get_params()[name] for name in names} == settings[0]


def test_rows_in_the_order_of_the_target_are_shuffled(folder):
    """Else each fold would be predicted from values beside its own, with R² far below 0."""
    options = ["--n-layers", "2", "--width", "16", "--learning-rate-init", "0.01", "--order", "0.5", "--max-iter", "10"]
    done = searched("diabetes.csv", "y", *options, "--json", folder=folder)
    trials = json.loads(done.stdout)["search"]
    assert sorted(trial["alpha"] for trial in trials) == [1e-4, 3e-4, 1e-3, 1e-2]
    assert all(min(trial["scores"]) > 0.2 for trial in trials)


@pytest.mark.parametrize("jobs", slow_but(["1"], ["1", "2"]))
def test_ctrl_c_keeps_what_is_done(jobs, folder):
    """In the first fit of the fourth setting of 8; with two jobs, others are under way in other processes."""
    done = searched("iris.csv", "species", "--max-iter", "10", "--jobs", jobs, "--json", folder=folder, moment="19")
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "15/40 fits, best accuracy" in done.stderr
    assert "the search was interrupted after 3 of 8 settings; the best of them is trained now" in done.stderr
    document = json.loads(done.stdout)
    assert len(document["search"]) == 3
    assert document["iterations"] == 10
    assert document["test"]["accuracy"] > 0.8


def test_ctrl_c_before_anything_is_done_leaves_nothing(folder, tmp_path):
    (tmp_path / "iris.csv").write_bytes((folder / "iris.csv").read_bytes())
    done = searched("iris.csv", "species", "--max-iter", "1", folder=tmp_path, moment="1")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.endswith("fracdnn: interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["iris.csv"]


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_settings_are_drawn_by_the_seed_and_each_once(solver):
    estimator = fracdnn.FractionalClassifier(solver=solver)
    first, again, other = (drawn_settings(estimator, ["width"], seed) for seed in (0, 0, 1))
    assert first == again != other
    assert first[0] == other[0] == {name: estimator.get_params()[name] for name in first[0]}
    assert ("learning_rate_init" in first[0]) == (solver == "adam")
    assert len(first) == len({tuple(setting.items()) for setting in first}) == N_SETTINGS


def test_a_setting_that_came_to_nothing_is_the_worst():
    broken, bad = Trial({"order": 0.5}, [0.9, float("nan")]), Trial({"order": 0.7}, [-5.0, -6.0])
    assert broken.mean < bad.mean
    assert broken.to_dict() == {"order": 0.5, "scores": [0.9, None]}


GIVEN = ["--order", "0.5", "--n-layers", "2", "--width", "4", "--learning-rate-init", "0.1", "--alpha", "0.1"]


def small_table(folder, labels):
    rows = [f"{label},{number}" for number, label in enumerate(labels)]
    (folder / "t.csv").write_text("\n".join(["y,x", *rows]), encoding="utf-8")


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (
            "abab",
            [],
            "--search needs more rows, got 4 (Cannot have number of splits n_splits=5 greater than the number",
        ),
        (
            "abab",
            GIVEN,
            "--search has nothing left to try, because --order, --n-layers, --width, --learning-rate-init, "
            "--alpha are all given; leave one of them out",
        ),
    ],
)
def test_searches_that_are_refused(labels, options, message, tmp_path):
    small_table(tmp_path, labels)
    done = searched("t.csv", "y", "--test-fraction", "0", *options, folder=tmp_path)
    assert done.returncode == 1
    assert f"fracdnn: {message}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_class_of_fewer_rows_than_folds_is_told_of(tmp_path):
    small_table(tmp_path, "a" * 8 + "b")
    done = searched("t.csv", "y", "--test-fraction", "0", "--max-iter", "1", *GIVEN[:-2], folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fracdnn: warning: The least populated class in y has only 1 members" in done.stderr
    assert "fracdnn: 4 settings have the same accuracy; the one tried first is used\n" in done.stderr
