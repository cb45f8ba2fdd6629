"""Tables larger than the memory they may take: trained on, predicted and evaluated in pieces."""

import json
import os
import re
import sys

import numpy as np
import polars as pl
import pytest

import fracdnn
from fracdnn.cli import ranks, train
from tests.cli.commands import run, run_program
from tests.plain import PLAIN_OPTIONS
from tests.tables.tables import mixed, write, write_parts

SMALL = ["--width", "8", "--max-iter", "20", *PLAIN_OPTIONS]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Parts of each kind, the same rows in one file, and a streamed model of classes and one of values."""
    found = tmp_path_factory.mktemp("streamed")
    for name, classes in (("classes", True), ("values", False)):
        table = mixed(1500, classes=classes)
        write(table, found / f"{name}.csv")
        for ending in ("parquet", "csv"):
            write_parts(table, found / f"{name}-{ending}", ending, 4)
        options = ["--target", "y", "--run", name, "--memory-limit", "10kB", "--json", "--drop", "flag", *SMALL]
        done = run("train", f"{name}-parquet", *options, cwd=found)
        assert done.returncode == 0, done.stderr
        (found / f"{name}.json").write_text(done.stdout)
        (found / f"{name}.err").write_text(done.stderr)
    return found


def test_a_folder_is_streamed_and_says_so(place):
    told, found = (place / "classes.err").read_text(), json.loads((place / "classes.json").read_text())
    assert "streaming: classes-parquet would take about 864.0 kB in memory, more than 10.0 kB (--memory-limit)" in told
    assert "classification: 'y' holds 2 classes (--task overrides)" in told
    assert re.search(r"  day +date .*days since 2020-01-0\d, month, weekday", told)
    assert re.search(r"  id +left out .*it is text with (1,\d{3}) different values in \1 rows; group", told)
    assert re.search(r"  empty +left out +it is empty\n", told)
    assert "iteration 20 of 20" in told
    assert found["test"]["accuracy"] > 0.9
    known = mixed(1500)["y"].is_not_null().sum()
    assert sum(found["rows"].values()) == known
    assert f"{1500 - known} rows left out: the target is missing" in told
    assert abs(found["rows"]["test"] - 0.2 * known) < 60
    assert json.loads((place / "values.json").read_text())["test"]["R2"] > 0.9
    assert pl.read_csv(place / "classes" / "held-out.csv").height == found["rows"]["test"]


def test_a_table_is_read_whole_where_the_system_does_not_tell_its_memory(place, tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "_MEMORY", tmp_path / "none")
    monkeypatch.delattr(os, "sysconf")
    table = str(place / "classes.csv")
    assert not train._is_too_large(table, None)
    assert train._is_too_large(table, "10kB")


@pytest.mark.slow
def test_the_streamed_preparation_is_that_of_the_table_in_memory(place, tmp_path):
    models = []
    for limit in ("0", "1TB"):
        path = tmp_path / f"{limit}.fracdnn"
        options = ["--target", "y", "--out", path, "--memory-limit", limit, "--test-fraction", "0", "--max-iter", "1"]
        done = run("train", "classes-parquet", *options, cwd=place)
        assert done.returncode == 0, done.stderr
        assert ("streaming:" in done.stderr) == (limit == "0")
        models.append(fracdnn.load(path))
    assert models[0].encoding.columns == models[1].encoding.columns
    # The table in memory has its repeated rows merged, of which there are none.
    one, two = (model.estimator.standardization_ for model in models)
    np.testing.assert_allclose(one.mean, two.mean, rtol=1e-12)
    np.testing.assert_allclose(one.deviation, two.deviation, rtol=1e-12)


def test_full_batches_learn_what_they_learn_in_memory(place, tmp_path):
    losses = []
    for limit in ("0", "1TB"):
        path = tmp_path / f"{limit}.fracdnn"
        options = ["--target", "y", "--out", path, "--memory-limit", limit, "--test-fraction", "0", "--solver", "lbfgs"]
        done = run("train", "values.csv", *options, *SMALL, "--dtype", "float64", "--quiet", cwd=place)
        assert done.returncode == 0, done.stderr
        losses.append(fracdnn.load(path).estimator.history_.column("loss"))
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


@pytest.mark.parametrize("name", ["classes", "values"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predictions_of_a_folder_come_in_order(name, ending, place, tmp_path):
    model, source = place / name / "model.fracdnn", f"{name}-{ending}"
    done = run("predict", model, source, "--out", tmp_path / f"p.{ending}", "--id", "id", cwd=place)
    assert done.returncode == 0, done.stderr
    found = (pl.read_csv if ending == "csv" else pl.read_parquet)(tmp_path / f"p.{ending}")
    assert found["id"].to_list() == [f"s{k}" for k in range(1500)]
    expected = fracdnn.load(model).predict(mixed(1500, classes=name == "classes"))
    if name == "classes":
        assert found["prediction"].to_list() == expected.tolist()
    else:
        np.testing.assert_allclose(found["prediction"].to_numpy(), expected, rtol=1e-12)


def test_evaluations_of_parts_are_those_of_the_whole(place):
    for name, keys in (("classes", ("accuracy", "log_loss", "ECE")), ("values", ("R2", "RMSE", "MAE"))):
        model = place / name / "model.fracdnn"
        folder, whole = (
            json.loads(run("evaluate", model, source, "--json", "--quiet", cwd=place).stdout)
            for source in (f"{name}-parquet", f"{name}.csv")
        )
        table = mixed(1500, classes=name == "classes").drop_nulls("y")
        assert folder["rows"] == whole["rows"] == table.height
        assert [folder[key] for key in keys] == pytest.approx([whole[key] for key in keys], rel=1e-12)
        predicted, y = fracdnn.load(model).predict(table), table["y"].to_numpy()
        if name == "classes":
            assert folder["accuracy"] == pytest.approx((predicted == y).mean(), rel=1e-12)
            assert folder["confusion"] == whole["confusion"]
        else:
            assert folder["R2"] == pytest.approx(1 - ((predicted - y) ** 2).mean() / y.var(), rel=1e-12)
            assert folder["MAE"] == pytest.approx(abs(predicted - y).mean(), rel=1e-12)


def test_early_stopping_checkpoints_and_going_on(place, tmp_path):
    options = ["--target", "y", "--memory-limit", "0", "--early-stopping", "--width", "8", "--checkpoint-every"]
    whole, half = tmp_path / "whole.fracdnn", tmp_path / "half.fracdnn"
    assert run("train", "classes-csv", *options, "2", "--out", whole, "--max-iter", "6", cwd=place).returncode == 0
    checkpoint = tmp_path / "c.ckpt"
    stopped = ["2", "--out", half, "--max-iter", "6", "--checkpoint-path", checkpoint]
    done = run("train", "classes-csv", *options, *stopped, cwd=place, moment="5")
    assert done.returncode == 130, done.stderr
    assert run("train", "classes-csv", *options, *stopped, "--resume", cwd=place).returncode == 0
    one, two = (fracdnn.load(path).estimator for path in (whole, half))
    assert one.history_.records == two.history_.records
    assert one.history_.records[0].validation_score is not None
    for name, value in one.network_.state_dict().items():
        assert value.equal(two.network_.state_dict()[name])


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_fault_in_a_later_part_leaves_no_predictions(ending, place, tmp_path):
    folder = write_parts(mixed(), tmp_path / "parts", "parquet", 4)
    write(mixed(50).with_columns(pl.lit(float("inf")).alias("a")), folder / "part-002.parquet")
    out = tmp_path / f"p.{ending}"
    done = run("predict", place / "classes" / "model.fracdnn", "parts", "--out", out, cwd=tmp_path)
    assert done.returncode == 1
    assert "column 'a' must hold finite numbers, got inf" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["parts"]


BOUNDED = """
import resource
import sys

import numpy as np
import polars as pl
from pathlib import Path

from fracdnn import FractionalClassifier
from fracdnn.estimators.streamed_fit import fit_streamed
from fracdnn.tables.examination import examine
from fracdnn.tables.streaming import TableStream
from fracdnn.training import samples

samples.WINDOW_BYTES = 1_000_000
peaks = []
for n_parts in (4, 20):
    folder = Path(f"parts-{n_parts}")
    folder.mkdir()
    for number in range(n_parts):
        x = np.random.default_rng(number).standard_normal((20_000, 16))
        table = {f"x{k}": x[:, k] for k in range(16)} | {"y": (x[:, 0] > 0).astype(int)}
        pl.DataFrame(table).write_parquet(folder / f"{number:02d}.parquet", compression="uncompressed")
    table = examine(TableStream.of(str(folder), piece_rows=10_000), "y")
    for solver in ("adam", "lbfgs"):
        options = {"width": 2, "n_layers": 1, "batch_size": 5000, "max_iter": 1, "random_state": 0}
        estimator = FractionalClassifier(solver=solver, **options)
        target = {"classes": table.target.classes, "counts": table.target.counts}
        fit_streamed(estimator, table.samples("training"), table.standardization, table.encoding, **target)
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)
print(peaks[1] - peaks[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems count peak memory otherwise")
def test_memory_does_not_grow_with_the_table(tmp_path):
    """16 parts of 20,000 rows and 16 columns more take less than three quarters of one copy of them in float32.

    The table itself is twice that, and in memory there are several copies. The first table has several windows: what
    then grows are a few MB, by which the allocator's pieces differ, where one window and a part of one would grow on.
    """
    (tmp_path / "bounded.py").write_text(BOUNDED)
    done = run_program(tmp_path / "bounded.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.75 * 16 * 20_000 * 16 * 4 / 1e6


def broken(folder):
    (folder / "part-002.parquet").write_bytes(b"no parquet")


def emptied(folder):
    for file in folder.iterdir():
        file.unlink()


def other(folder):
    write(mixed(50).drop("age"), folder / "part-002.parquet")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (broken, "part-002.parquet must be a .parquet file"),
        (emptied, "must hold parts of a table"),
        (other, "part-002.parquet must have the columns of"),
    ],
)
def test_faults_are_one_line_and_leave_nothing(fault, message, place, tmp_path):
    folder = write_parts(mixed(), tmp_path / "parts", "parquet", 4)
    fault(folder)
    model = place / "classes" / "model.fracdnn"
    for arguments in (
        ("train", "parts", "--target", "y", "--out", "m.fracdnn", "--memory-limit", "0", *SMALL),
        ("predict", model, "parts", "--out", "p.csv"),
        ("evaluate", model, "parts"),
    ):
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == 1
        assert message in done.stderr
        assert len([line for line in done.stderr.splitlines() if "streaming:" not in line]) == 1
        assert done.stdout == ""
    assert [file.name for file in tmp_path.iterdir()] == ["parts"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--memory-limit", "much"], 2, "must be a number of bytes such as 500MB or 2GB, got 'much'"),
        (["--memory-limit", "0", "--search"], 1, "--search needs the table in memory"),
    ],
)
def test_options_that_cannot_be(options, code, message, place, tmp_path):
    done = run("train", "classes.csv", "--target", "y", "--out", tmp_path / "m", *options, cwd=place)
    assert done.returncode == code
    assert message in " ".join(done.stderr.split())


def test_a_streamed_table_trains_one_network_on_all_rows_and_says_what_is_not_used(place, tmp_path):
    options = ["--target", "y", "--memory-limit", "0", "--max-iter", "2", "--width", "4"]
    given = ["--n-members", "3", "--n-bins", "4"]
    for more in ([], given, ["--n-members", "1", "--n-bins", "0"]):
        done = run("train", "classes.csv", *options, *more, "--out", tmp_path / "m.fracdnn", cwd=place)
        assert done.returncode == 0, done.stderr
        for flag in ("--n-members 3", "--n-bins 4"):
            told = f"{flag} is not used: training on a streamed table uses one network, without bins" in done.stderr
            assert told == (more == given)
        fitted = fracdnn.load(tmp_path / "m.fracdnn").estimator
        assert (len(fitted.members_), fitted.temperature_, fitted.shaping_.n_added) == (1, None, 0)
        assert fitted.validation_scores_ is None
    done = run("train", "classes.csv", *options, "--early-stopping", "--out", tmp_path / "m.fracdnn", cwd=place)
    assert done.returncode == 0, done.stderr
    assert len(fracdnn.load(tmp_path / "m.fracdnn").estimator.validation_scores_) == 2


@pytest.mark.parametrize(("limit", "is_told"), [("10", True), pytest.param("none", False, marks=pytest.mark.slow)])
def test_a_streamed_target_is_taken_as_it_is(limit, is_told, place, tmp_path):
    options = ["--target", "y", "--memory-limit", "0", "--max-iter", "2", "--width", "4", "--outlier-limit", limit]
    done = run("train", "values.csv", *options, "--out", tmp_path / "m.fracdnn", cwd=place)
    assert done.returncode == 0, done.stderr
    told = "--outlier-limit 10 is not used: training on a streamed table uses one network, without bins, and all values"
    assert (told in " ".join(done.stderr.split())) == is_told
