"""The commands on people's own tables, each as a process of its own (see `commands`)."""

import gzip
import json
import os
import re
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import xlsxwriter
from sklearn.datasets import load_diabetes, load_iris
from sklearn.metrics import balanced_accuracy_score, log_loss

import fracdnn
from fracdnn.estimators.reliability import Reliability
from fracdnn.estimators.table_model import TableModel
from fracdnn.report.texts import number
from fracdnn.tables.reading import read_table
from fracdnn.tables.suspicions import is_like_a_price
from tests.cli.commands import run
from tests.datasets.test_datasets import PERFUME, needs_perfume
from tests.plain import PLAIN_OPTIONS
from tests.slow import slow_but

QUICK = ["--max-iter", "15", "--n-members", "1", "--quiet"]


def iris():
    data = load_iris()
    columns = {name.removesuffix(" (cm)"): data.data[:, k] for k, name in enumerate(data.feature_names)}
    rng = np.random.default_rng(0)
    soil = np.array(["clay", "sand", "loam"])[(data.target + (rng.random(150) < 0.3)) % 3]
    return pl.DataFrame(columns).with_columns(
        pl.Series("soil", soil),
        pl.Series("sample", [f"s{k}" for k in range(150)]),
        pl.Series("species", data.target_names[data.target]),
    )


def diabetes():
    data = load_diabetes()
    return pl.DataFrame(dict(zip(data.feature_names, data.data.T, strict=True))).with_columns(
        pl.Series("progression", data.target)
    )


def write(table, path):
    if path.name.endswith(".csv.gz"):
        path.write_bytes(gzip.compress(table.write_csv().encode()))
    else:
        {
            ".csv": table.write_csv,
            ".tsv": lambda p: table.write_csv(p, separator="\t"),
            ".parquet": table.write_parquet,
            ".xlsx": table.write_excel,
        }[path.suffix](path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables and a model of each kind."""
    place = tmp_path_factory.mktemp("tables")
    write(iris(), place / "iris.csv")
    write(diabetes(), place / "diabetes.csv")
    for name, target in (("iris", "species"), ("diabetes", "progression")):
        options = ["--target", target, "--run", name, "--n-members", "2", "--quiet"]
        done = run("train", f"{name}.csv", *options, cwd=place)
        assert done.returncode == 0, done.stderr
    return place


@pytest.mark.parametrize("ending", slow_but(["csv", "parquet", "xlsx"], ["csv", "tsv", "csv.gz", "parquet", "xlsx"]))
def test_every_format_is_trained_on_and_predicted(ending, tmp_path):
    write(iris(), tmp_path / f"iris.{ending}")
    command = ["train", f"iris.{ending}", "--target", "species", "--out", "m.fracdnn", "--max-iter", "60"]
    done = run(*command, *PLAIN_OPTIONS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "classification: 'species' holds 3 classes (--task overrides)" in done.stderr
    assert re.search(r"  sample +left out +s\d.* it is text with 120 different values in 120 rows; group", done.stderr)
    assert "iteration 60 of 60" in done.stderr
    accuracy = float(done.stdout.split("test rows (30): ")[1].split(";")[0])
    assert accuracy >= 0.9
    out = run("predict", "m.fracdnn", f"iris.{ending}", "--out", "p.csv", "--id", "sample", cwd=tmp_path)
    assert out.returncode == 0, out.stderr
    predictions = pl.read_csv(tmp_path / "p.csv")
    assert predictions["sample"].to_list() == iris()["sample"].to_list()
    assert (predictions["prediction"] == iris()["species"]).mean() > 0.9
    probabilities = predictions.select(pl.col("^probability_.*$"))
    assert probabilities.columns == ["probability_setosa", "probability_versicolor", "probability_virginica"]
    np.testing.assert_allclose(probabilities.sum_horizontal(), 1.0)


def test_regression_is_found_out_and_evaluated(folder):
    done = run("train", "diabetes.csv", "--target", "progression", "--out", "d.fracdnn", "--json", cwd=folder)
    summary = json.loads(done.stdout)
    assert summary["task"] == "regression"
    assert summary["rows"] == {"training": 354, "test": 88}
    assert summary["test"]["R2"] > 0.2
    assert "regression: 'progression' holds values from 25 to 346" in done.stderr
    assert json.loads(run("info", "d.fracdnn", "--json", cwd=folder).stdout)["members"] == 8
    found = json.loads(run("evaluate", "d.fracdnn", "diabetes.csv", "--json", cwd=folder).stdout)
    assert found["rows"] == 442
    assert found["R2"] > 0.3
    assert found["RMSE"] > found["MAE"] > 0
    text = run("evaluate", "d.fracdnn", "diabetes.csv", cwd=folder).stdout
    assert "R2: " in text
    out = run("predict", "d.fracdnn", "diabetes.csv", cwd=folder)
    assert out.stdout.splitlines()[0] == "prediction"
    assert len(out.stdout.splitlines()) == 443


def test_training_tells_what_its_scores_compare_with(folder):
    """Balanced accuracy and the simplest model, by scikit-learn from the rows held out; order and columns left out."""
    for name, target, column in (("iris", "species", "sample"), ("diabetes", "progression", None)):
        command = ["train", f"{name}.csv", "--target", target, "--run", "told", *QUICK]
        summary = json.loads(run(*command, "--learn-order", "--json", cwd=folder).stdout)
        text = run(*command, cwd=folder).stdout
        assert (summary["order_learned"], summary["left_out"]) == (True, [column] if column else [])
        assert "order: 0.5 (fixed)\n" in text
        assert ("columns left out: 'sample'\n" in text) == bool(column)
        held_out = read_table(str(folder / "told" / "held-out.csv"))
        model = fracdnn.load(folder / "told" / "model.fracdnn")
        summary, predicted = model.details["summary"], model.predict(held_out)
        if column:
            true = held_out[target].to_numpy().astype(str)
            baseline = summary["baseline"]
            assert summary["test"]["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(true, predicted))
            assert baseline["accuracy"] == pytest.approx((true == baseline["class"]).mean())
            probabilities, classes = model.predict_proba(held_out), model.estimator.classes_
            found = summary["test"]
            assert found["log_loss"] == pytest.approx(log_loss(true, probabilities, labels=classes))
            assert found["ECE"] == pytest.approx(Reliability.of(probabilities, predicted == true).error)
            shares = [(true == name).mean() for name in true]
            assert baseline["log_loss"] == pytest.approx(-np.log(shares).mean())
            assert f"log-loss on the test rows: {number(found['log_loss'])}; baseline (class frequencies): " in text
            assert f"expected calibration error (ECE) on the test rows: {number(found['ECE'])}\n" in text
            assert f"): {number(found['accuracy'])}; baseline (always '{baseline['class']}'): " in text
            assert f"always answering “{baseline['class']}”, the most frequent class" in text  # the report's verdict
        else:
            true = held_out[target].cast(float).to_numpy()
            mean, error = true.mean(), number(summary["test"]["RMSE"])
            assert summary["baseline"] == pytest.approx({"mean": mean, "RMSE": true.std()})
            assert (
                f"RMSE on the test rows: {error}; baseline (always the mean, {number(mean)}): {number(true.std())}\n"
                in text
            )
            assert f"RMSE {error} on " in text  # the report's verdict


def test_the_task_can_be_chosen(tmp_path):
    table = diabetes().with_columns((pl.col("progression") // 100).cast(int).alias("grade")).drop("progression")
    write(table, tmp_path / "t.csv")
    for task in ("classification", "regression"):
        done = run("train", "t.csv", "--target", "grade", "--task", task, "--out", "m", "--json", *QUICK, cwd=tmp_path)
        assert json.loads(done.stdout)["task"] == task
    assert run("train", "t.csv", "--target", "grade", "--task", "ranking", "--out", "m", cwd=tmp_path).returncode == 2


def test_evaluation_of_classes(folder):
    done = run("evaluate", "iris/model.fracdnn", "iris.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    for words in (
        "rows: 150",
        "accuracy: ",
        "balanced accuracy: ",
        "log-loss: ",
        "expected calibration error (ECE): ",
        "precision",
        "recall",
        "confusion",
        "virginica",
    ):
        assert words in done.stdout
    document = json.loads(run("evaluate", "iris/model.fracdnn", "iris.csv", "--json", cwd=folder).stdout)
    counts = np.array(document["confusion"])
    assert counts.sum(1).tolist() == [50, 50, 50]
    assert document["accuracy"] == pytest.approx(counts.trace() / 150)
    assert document["by_class"]["recall"] == pytest.approx((counts.diagonal() / 50).tolist())
    assert document["classes"] == ["setosa", "versicolor", "virginica"]


def test_info_says_what_the_model_expects(folder):
    text = run("info", "iris/model.fracdnn", cwd=folder).stdout
    for words in (
        "FractionalClassifier for 'species'",
        "order: 0.5",
        "sepal length",
        "'clay', 'loam', 'sand'",
        "torch 2",
    ):
        assert words in text
    document = json.loads(run("info", "iris/model.fracdnn", "--json", cwd=folder).stdout)
    assert document["members"] == 2
    assert document["temperature"] > 0
    assert "members: 2\n" in text
    assert f"temperature: {document['temperature']:.4g}\n" in text
    assert [c["name"] for c in document["columns"]][-1] == "soil"
    assert document["network"]["n_layers"] == 3
    assert document["details"]["summary"]["rows"] == {"training": 120, "test": 30}


def test_columns_in_another_order_and_more_of_them(folder, tmp_path):
    expected = run("predict", "iris/model.fracdnn", "iris.csv", cwd=folder).stdout
    shuffled = iris().select(reversed(iris().columns)).with_columns(pl.lit(7).alias("more"))
    write(shuffled, tmp_path / "shuffled.csv")
    assert run("predict", "iris/model.fracdnn", tmp_path / "shuffled.csv", cwd=folder).stdout == expected


def test_pipes(folder):
    table = iris().write_csv()
    done = run("predict", "iris/model.fracdnn", "-", cwd=folder, stdin=table)
    assert done.stdout == run("predict", "iris/model.fracdnn", "iris.csv", cwd=folder).stdout
    assert done.stderr == ""
    semicolons = iris().write_csv(separator=";").replace(".", ",")  # as some spreadsheets write numbers
    assert run("predict", "iris/model.fracdnn", "-", cwd=folder, stdin=semicolons).stdout == done.stdout


def test_python_reads_the_model(folder):
    model = fracdnn.load(folder / "iris" / "model.fracdnn")
    assert isinstance(model, TableModel)
    table = iris()
    assert (model.predict(table) == table["species"].to_numpy()).mean() > 0.9
    frame = pd.DataFrame({name: table[name].to_list() for name in table.columns})
    np.testing.assert_array_equal(model.predict(frame), model.predict(table))
    assert model.predict_proba(table).shape == (150, 3)


def test_missing_values_are_filled_in(folder, tmp_path):
    table = iris().with_columns(
        pl.when(pl.int_range(150) % 5 == 0).then(None).otherwise(pl.col("sepal width")).alias("sepal width"),
        pl.when(pl.int_range(150) % 7 == 0).then(None).otherwise(pl.col("soil")).alias("soil"),
        pl.when(pl.int_range(150) % 50 == 0).then(None).otherwise(pl.col("species")).alias("species"),
    )
    write(table, tmp_path / "holes.csv")
    done = run("train", "holes.csv", "--target", "species", "--out", "m", "--max-iter", "60", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 rows left out: the target is missing" in done.stderr
    assert float(done.stdout.split("test rows (29): ")[1].split(";")[0]) > 0.85
    assert run("predict", "m", "holes.csv", cwd=tmp_path).stdout.count("\n") == 151
    # A model that has seen no hole fills them in as well.
    assert run("predict", folder / "iris" / "model.fracdnn", "holes.csv", cwd=tmp_path).stdout.count("\n") == 151


def test_files_that_are_not_utf_8_are_read_by_their_encoding(tmp_path):
    """By every command, with names and categories as they are."""
    table = iris().rename({"sepal length": "Länge"}).with_columns(pl.col("soil").replace("clay", "Löß"))
    found = {}
    for name in ("utf-8", "latin-1", "utf-16"):
        (tmp_path / f"{name}.csv").write_bytes(table.write_csv().encode(name))
        options = ["--encoding", name] if name != "utf-8" else []
        place = ["--target", "species", "--run", name, *QUICK]
        done = run("train", f"{name}.csv", *place, *options, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        for command in ("predict", "evaluate"):
            answer = run(command, f"{name}/model.fracdnn", f"{name}.csv", *options, cwd=tmp_path).stdout
            found.setdefault(command, set()).add(answer)
    assert [len(answers) for answers in found.values()] == [1, 1]
    assert "Löß" in run("info", "utf-16/model.fracdnn", cwd=tmp_path).stdout
    done = run("predict", "latin-1/model.fracdnn", "latin-1.csv", cwd=tmp_path)
    assert done.returncode == 1
    assert "latin-1.csv must be in UTF-8, got the byte 0xe4 in line 1; pass --encoding latin-1, which" in done.stderr
    for options in ([], ["--data", "utf-16.csv"]):
        command = ["report", "latin-1", *options, "--encoding", "utf-16", "--out", "r.html", "--quiet"]
        assert run(*command, cwd=tmp_path).returncode == 0
    (tmp_path / "s.toml").write_text('target = "species"\nencoding = "utf-16"\nmax_iter = 1\n', encoding="utf-8")
    done = run("train", "utf-16.csv", "--config", "s.toml", "--out", "m", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_settings_from_a_file(tmp_path):
    write(iris(), tmp_path / "iris.csv")
    (tmp_path / "s.toml").write_text(
        'target = "species"\nn-layers = 5\norder = 0.9\ndrop = ["soil"]\nmax_iter = 3\nwidth = "none"\n'
        "early_stopping = false\nstart_over = true\n",
        encoding="utf-8",
    )
    done = run("train", "iris.csv", "--config", "s.toml", "--order", "0.7", "--out", "m", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(run("info", "m", "--json", cwd=tmp_path).stdout)
    assert document["network"]["n_layers"] == 5
    assert document["network"]["order"] == 0.7  # the command line stands above the file
    assert document["network"]["width"] is None
    assert fracdnn.load(tmp_path / "m").estimator.early_stopping is False
    assert [c["name"] for c in document["columns"]] == [c for c in iris().columns if "al " in c]
    for text, words in (("ordr = 0.5", "the key 'ordr' (did you mean 'order'?)"), ("order = ", "must be a TOML file")):
        (tmp_path / "bad.toml").write_text(text, encoding="utf-8")
        bad = run("train", "iris.csv", "--config", "bad.toml", "--target", "species", "--out", "m2", cwd=tmp_path)
        assert bad.returncode == 1
        assert words in bad.stderr
        assert not (tmp_path / "m2").exists()


def test_words_among_numbers(tmp_path):
    write(iris(), tmp_path / "iris.csv")
    words = ["--max-iter", "3", "--batch-size", "auto", "--n-members", "auto", "--width", "NONE"]
    command = ["train", "iris.csv", "--target", "species", "--out", "m.fracdnn", "--quiet", *words]
    done = run(*command, "--max-time", "none", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    estimator = fracdnn.load(tmp_path / "m.fracdnn").estimator
    given = [getattr(estimator, name) for name in ("batch_size", "n_members", "width", "max_time", "max_iter")]
    assert given == ["auto", "auto", None, None, 3]
    assert estimator.early_stopping == "auto"


def test_a_limit_for_targets(tmp_path):
    """A parameter of the regressor alone."""
    write(iris(), tmp_path / "iris.csv")
    command = ["train", "iris.csv", "--target", "sepal length", "--out", "m", "--quiet", "--max-iter", "1"]
    for text, limit in (("1.5", 1.5), ("none", None)):
        done = run(*command, "--outlier-limit", text, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert fracdnn.load(tmp_path / "m").estimator.outlier_limit == limit


def test_values_beyond_the_limit_are_told(tmp_path):
    rng = np.random.default_rng(0)
    a = rng.normal(size=60)
    y = np.where(np.arange(60) < 3, 1e6, a)
    write(pl.DataFrame({"a": a, "y": y}), tmp_path / "t.csv")
    command = ["train", "t.csv", "--target", "y", "--out", "m", "--max-iter", "1", "--test-fraction", "0"]
    done = run(*command, cwd=tmp_path)
    assert re.search(
        r"fracdnn: 'y' is more than 30 spreads from its median in 3 of 60 training rows, where it is clipped to "
        r"-\d\S* or \d\S*; --outlier-limit none keeps all values\n",
        done.stderr,
    )
    done = run(*command, "--outlier-limit", "none", cwd=tmp_path)
    assert done.returncode == 0
    assert "spreads" not in done.stderr


def test_options_are_those_of_the_estimator(tmp_path):
    text = run("train", "--help-all", cwd=tmp_path).stdout
    names = set(fracdnn.FractionalClassifier().get_params()) - {"verbose"}
    assert all(f"--{name.replace('_', '-')}" in text for name in names)
    meanings = fracdnn.FractionalClassifier._parameter_meanings
    assert set(meanings) == names | {"verbose"}
    meanings = {name: meanings[name] for name in names}
    words = " ".join(text.replace("│", " ").split())
    assert all(" ".join(meaning.replace("`", "").split()[:4]) in words for meaning in meanings.values())
    for line in (
        "Above 0, at most 1. Default: 0.5.",
        "One of adam, bfgs, lbfgs. Default: adam.",
        "At least 0. Default: 0.0003.",
        "At least 1. Default: auto.",
        "At least 0, below 1. Default: 0.2.",
    ):
        assert line in words
    assert "in the range" not in words
    (tmp_path / "iris.csv").touch()
    bad = run("train", "iris.csv", "--target", "species", "--order", "1.5", "--out", "m", cwd=tmp_path)
    assert bad.returncode == 2
    assert "order must be a number above 0, at most 1, got 1.5; the default is 0.5" in " ".join(
        bad.stderr.replace("│", " ").split()
    )


def test_the_report_names_outliers_by_their_ids(tmp_path):
    x = np.linspace(0, 1, 200)
    table = pl.DataFrame(
        {"order_id": [f"no. {i}" for i in range(200)], "x": x, "y": x + 50 * (np.arange(200) % 40 == 7)}
    )
    write(table, tmp_path / "t.csv")
    run("train", "t.csv", "--target", "y", "--run", "run", *QUICK, cwd=tmp_path)
    run("report", "run", "--out", "r.html", cwd=tmp_path)
    page, held_out = (tmp_path / "r.html").read_text(encoding="utf-8"), read_table(str(tmp_path / "run/held-out.csv"))
    named = re.findall(r'<th scope="row">(no\. \d+)</th>', page)
    assert set(named) >= set(held_out.filter(pl.col("y").cast(float) > 40)["order_id"])
    assert named


def test_the_report_of_a_run(folder):
    for name in ("iris", "diabetes"):
        done = run("report", name, "--out", f"{name}.html", cwd=folder)
        assert done.returncode == 0, done.stderr
        page = (folder / f"{name}.html").read_text(encoding="utf-8")
        assert page.startswith("<!DOCTYPE html>") or page.startswith("<!doctype html>")
        assert "held-out.csv" in page
        told = run("evaluate", f"{name}/model.fracdnn", f"{name}/held-out.csv", cwd=folder).stdout
        scores = dict(line.split(": ") for line in told.splitlines() if ": " in line and line[0].isalpha())
        shown = ("accuracy", "log-loss") if name == "iris" else ("R2", "RMSE", "MAE")
        assert all(f">{scores[score]}</span>" in page for score in shown)  # the same digits
    assert "shuffled among 30 held-out rows" in (folder / "iris.html").read_text(encoding="utf-8")
    assert "species from 5 columns" in (folder / "iris.html").read_text(encoding="utf-8")
    assert page.count("torch") == (folder / "iris.html").read_text(encoding="utf-8").count("torch") == 1
    done = run("report", "iris/model.fracdnn", "--data", "iris.csv", "--out", "all.html", cwd=folder)
    assert "150" in (folder / "all.html").read_text(encoding="utf-8")
    assert run("report", "iris/model.fracdnn", cwd=folder).returncode == 1


@needs_perfume
def test_the_perfume_table(tmp_path):
    rows = PERFUME.read_text(encoding="utf-8").splitlines()
    cells = [row.split(",") for row in rows[1:]]
    names = [cell[0] for cell in cells for _ in cell[1:]]
    readings = np.array([int(reading) for cell in cells for reading in cell[1:]])
    table = pl.DataFrame({"strength": readings // 1000, "quality": readings % 1000, "perfume": names})
    write(table, tmp_path / "perfume.parquet")
    done = run(
        "train", "perfume.parquet", "--target", "perfume", "--out", "m", "--max-iter", "100", "--json", cwd=tmp_path
    )
    assert json.loads(done.stdout)["test"]["accuracy"] > 0.95


BAD_TRAINING = [
    (
        "iris.csv",
        ["--target", "specie"],
        "must have the target column 'specie' (did you mean 'species'?); it has 'sepal",
    ),
    ("iris.csv", ["--target", "species", "--drop", "smple"], "must have the column 'smple' (did you mean 'sample'?)"),
    ("nothing.csv", ["--target", "a"], "nothing.csv: No such file or directory"),
    (
        "folder.csv",
        ["--target", "a"],
        "folder.csv must hold parts of a table (.csv, .tsv, .csv.gz, .tsv.gz, .parquet, .xlsx), got an empty folder",
    ),
    ("empty.csv", ["--target", "a"], "empty.csv must begin with the names of the columns, got an empty line"),
    ("heading.csv", ["--target", "a"], "heading.csv must hold at least one row below its heading, got none"),
    (
        "latin.csv",
        ["--target", "a"],
        "latin.csv must be in UTF-8, got the byte 0xe9 in line 3; pass --encoding latin-1",
    ),
    (
        "ragged.csv",
        ["--target", "a"],
        "ragged.csv must be a table whose rows have as many cells as its heading, got 3 in line",
    ),
    (
        "one.csv",
        ["--target", "a"],
        "the target column 'a' must hold two classes at least, got only 'x'; add rows of another class, or",
    ),
    ("two.csv", ["--target", "a"], "target column 'a' must hold classes of several rows, got 2 of one row each; name"),
    ("names.csv", ["--target", "a"], "must hold classes of several rows, got 40 of one row each; name another column"),
    ("holes.csv", ["--target", "a"], "the target column 'a' must hold values, got none"),
    ("alone.csv", ["--target", "a"], "the table must have a column to learn from, got none"),
    ("text.xlsx", ["--target", "a"], "text.xlsx must be a .xlsx file, got one that cannot be read"),
    ("text.parquet", ["--target", "a"], "text.parquet must be a .parquet file, got one that cannot be read"),
    ("text.csv.gz", ["--target", "a"], "text.csv.gz must be a whole gzip file, got one that is not"),
    ("table.doc", ["--target", "a"], "table.doc must end in one of .csv, .tsv"),
    ("words.csv", ["--target", "a", "--task", "regression"], "must hold finite numbers for a regression"),
    *(
        ("dates.csv", ["--target", "a", *options], "the target column 'a' must hold classes or numbers, got dates; to")
        for options in ([], ["--task", "regression"])
    ),
]


@pytest.fixture(scope="module")
def bad_tables(tmp_path_factory):
    place = tmp_path_factory.mktemp("bad")
    write(iris(), place / "iris.csv")
    (place / "folder.csv").mkdir()
    for name, content in {
        "empty.csv": b"",
        "heading.csv": b"a,b\n",
        "latin.csv": "a,b\nx,1\ncaf\xe9,2\n".encode("latin1"),
        "ragged.csv": b"a,b\n1,2\n3,4,5\n",
        "two.csv": b"a,b\nx,1\ny,2\n",
        "names.csv": "".join(["a,b\n", *(f"n{k},{k}\n" for k in range(40))]).encode(),
        "one.csv": b"a,b\nx,1\nx,2\nx,3\n",
        "holes.csv": b"a,b\n,1\nNA,2\n?,3\n",
        "alone.csv": b"a\nx\ny\nx\n",
        "text.xlsx": b"this is text",
        "text.parquet": b"this is text",
        "text.csv.gz": b"this is text",
        "table.doc": b"a,b\n1,2\n",
        "words.csv": b"a,b\nx,1\ny,2\n",
        "dates.csv": "".join(["a,b\n", *(f"2024-05-{k % 30 + 1:02d},{k}\n" for k in range(60))]).encode(),
    }.items():
        (place / name).write_bytes(content)
    return place


@pytest.mark.parametrize(("table", "options", "message"), BAD_TRAINING, ids=[case[0] for case in BAD_TRAINING])
def test_tables_that_cannot_be_learned_from(table, options, message, bad_tables):
    done = run("train", table, *options, "--out", "m.fracdnn", cwd=bad_tables)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not (bad_tables / "m.fracdnn").exists()


BAD_PREDICTION = [
    ("a,b\n1,2\n", "must have the column 'sepal length'; the table must have the column 'sepal width'"),
    ("{heading}\n1,2,3,4,clay,s,x\n1,two,3,4,clay,s,x\n", "column 'sepal width' must hold numbers, got 'two' in row 2"),
    ("{heading}\n1,2,3,inf,clay,s,x\n", "column 'petal width' must hold finite numbers, got inf in row 1"),
    ("", "standard input must begin with the names of the columns, got an empty line"),
]


@pytest.mark.parametrize(("table", "message"), BAD_PREDICTION)
def test_tables_that_cannot_be_predicted(table, message, folder):
    heading = ",".join(iris().columns)
    done = run("predict", "iris/model.fracdnn", "-", "--out", "p.csv", cwd=folder, stdin=table.format(heading=heading))
    assert done.returncode == 1
    assert message in done.stderr
    assert not (folder / "p.csv").exists()


@pytest.mark.parametrize("command", [["evaluate", "iris/model.fracdnn"], ["report", "iris", "--data"]])
def test_rows_without_a_target_count_in_the_number_of_a_row(command, folder):
    rows = "1,2,3,4,clay,s,\n1,two,3,4,clay,s,setosa\n"
    (folder / "gap.csv").write_text(",".join(iris().columns) + "\n" + rows, encoding="utf-8")
    done = run(*command, "gap.csv", cwd=folder)
    assert done.returncode == 1
    assert "column 'sepal width' must hold numbers, got 'two' in row 2" in done.stderr


def test_new_categories_are_predicted_and_counted(folder):
    """By the command as by Python, which warns."""
    rows = "1,2,3,4,clay,s,x\n1,2,3,4,lom,s,x\n1,2,3,4,mud,s,x\n"
    (folder / "new.csv").write_text(",".join(iris().columns) + "\n" + rows, encoding="utf-8")
    done = run("predict", "iris/model.fracdnn", "new.csv", cwd=folder)
    assert done.returncode == 0
    note = (
        "column 'soil': 2 cells with a category that training has not seen, such as 'lom' (did you mean 'loam'?), "
        "'mud'; predicted as none of the known ones"
    )
    assert f"fracdnn: warning: {note}" in done.stderr
    with pytest.warns(UserWarning, match=re.escape(note)):
        found = fracdnn.load(folder / "iris" / "model.fracdnn").predict(pl.read_csv(folder / "new.csv"))
    assert [line.split(",")[0] for line in done.stdout.splitlines()[1:]] == found.astype(str).tolist()


def test_models_that_are_none(folder, tmp_path):
    for command in (["predict", "iris.csv", "iris.csv"], ["info", "iris.csv"], ["report", "iris.csv"]):
        done = run(*command, cwd=folder)
        assert done.returncode == 1
        assert "iris.csv must be a model file, got a table; train a model first: fracdnn train iris.csv" in (
            done.stderr
        )
    (tmp_path / "text.fracdnn").write_text("a,b\n1,2\n", encoding="utf-8")
    done = run("info", tmp_path / "text.fracdnn", cwd=folder)
    assert done.returncode == 1
    assert "text.fracdnn must be a fracdnn model, got a file that cannot be read as one" in done.stderr
    fracdnn.FractionalClassifier(max_iter=1, n_members=1).fit(*load_iris(return_X_y=True)).save(
        tmp_path / "bare.fracdnn"
    )
    done = run("info", tmp_path / "bare.fracdnn", cwd=folder)
    assert done.returncode == 1
    assert "must be a model of a table, got an estimator saved in Python" in done.stderr
    unknown = iris().with_columns(pl.lit("rose").alias("species"))
    write(unknown, tmp_path / "roses.csv")
    done = run("evaluate", "iris/model.fracdnn", tmp_path / "roses.csv", cwd=folder)
    assert (
        "must hold classes of the training table, got 'rose'; it knows 'setosa', 'versicolor', 'virginica'"
        in done.stderr
    )


def test_usage_errors_and_debugging(folder):
    for arguments in (["train"], ["train", "iris.csv"], ["train", "iris.csv", "--target", "species"], ["predict", "a"]):
        done = run(*arguments, cwd=folder)
        assert done.returncode == 2
        assert done.stdout == ""
    done = run("train", "none.csv", "--target", "a", "--out", "m", "--debug", cwd=folder)
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_places_that_cannot_be_written(folder):
    """A folder in the way, and a disk that takes no more: the limit on file sizes stands in for a full disk."""
    done = run("predict", "iris/model.fracdnn", "iris.csv", "--out", "iris.csv/p.csv", cwd=folder)
    assert done.returncode == 1
    assert "cannot write to iris.csv/p.csv: " in done.stderr

    before = sorted(path.name for path in folder.iterdir())
    done = run("predict", "iris/model.fracdnn", "iris.csv", "--out", "p.csv", cwd=folder, file_size=2000)
    assert done.returncode == 1
    assert "cannot write to p.csv: File too large" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before  # nothing half-written
    done = run("predict", "iris/model.fracdnn", "iris.csv", "--out", "/dev/full", cwd=folder)
    assert done.returncode == 1  # the ending is not one of ours; and the device is still there
    assert Path("/dev/full").is_char_device()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(folder):
    closed = folder / "closed.csv"
    closed.write_text("a,b\n1,2\n", encoding="utf-8")
    closed.chmod(0)
    assert (
        "closed.csv: Permission denied" in run("train", "closed.csv", "--target", "a", "--out", "m", cwd=folder).stderr
    )


def test_a_large_table_is_read_in_parts(folder):
    """A table of several parts gives what its rows give one by one, and rows are counted over all parts.

    On a CPU: the order in which a GPU adds up depends on the number of rows.
    """
    rows = iris().sample(60_000, with_replacement=True, seed=0)
    big = write(rows, folder / "big.csv")
    small = write(rows[59_000:], folder / "end.csv")
    command = ["predict", "iris/model.fracdnn"]
    done = run(*command, big, "--out", "big-out.parquet", cwd=folder, CUDA_VISIBLE_DEVICES="")
    assert "60,000 predictions" in done.stderr
    found = pl.read_parquet(folder / "big-out.parquet")
    run(*command, small, "--out", "end-out.parquet", cwd=folder, CUDA_VISIBLE_DEVICES="")
    assert found[59_000:].equals(pl.read_parquet(folder / "end-out.parquet"))
    lines = big.read_text(encoding="utf-8").splitlines()
    lines[50_000] = lines[50_000].replace("clay", "mud").replace("sand", "mud").replace("loam", "mud")
    big.write_text("\n".join(lines), encoding="utf-8")
    assert "column 'soil': 1 cell with a category" in run("predict", "iris/model.fracdnn", big, cwd=folder).stderr
    lines[50_000] = lines[50_000].replace(lines[50_000].split(",")[0], "wide", 1)
    big.write_text("\n".join(lines), encoding="utf-8")
    assert "got 'wide' in row 50000;" in run("predict", "iris/model.fracdnn", big, cwd=folder).stderr


def test_cells_with_line_ends_do_not_cut_rows(tmp_path):
    from fracdnn.tables import reading

    cells = [f'"line {k}\nand ""more"", of it"' for k in range(500)]
    (tmp_path / "t.csv").write_text(
        "a,b\n" + "".join(f"{cell},{k}\n" for k, cell in enumerate(cells)), encoding="utf-8"
    )
    whole = reading.read_table(str(tmp_path / "t.csv"))
    before = reading.PART_ROWS
    reading.PART_ROWS = 7
    try:
        parts = list(reading.read_parts(str(tmp_path / "t.csv")))
    finally:
        reading.PART_ROWS = before
    assert len(parts) > 50
    assert pl.concat(parts).equals(whole)
    assert whole["b"].to_list() == [str(k) for k in range(500)]


def test_names_with_brackets_and_quotes(tmp_path):
    table = iris().rename({"sepal length": "length [cm]", "sepal width": 'the "width"', "petal length": "temp [/s]"})
    write(table, tmp_path / "t.csv")
    done = run("train", "t.csv", "--target", "species", "--run", "r", *QUICK, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = run("info", "r/model.fracdnn", cwd=tmp_path).stdout
    for name in ("length [cm]", 'the "width"', "temp [/s]"):
        assert name in text
    assert run("evaluate", "r/model.fracdnn", "t.csv", cwd=tmp_path).returncode == 0
    assert run("report", "r", "--out", "r.html", "-q", cwd=tmp_path).returncode == 0


def test_odd_but_good_text(folder, tmp_path):
    expected = run("predict", "iris/model.fracdnn", "iris.csv", cwd=folder).stdout
    blank = (folder / "iris.csv").read_text(encoding="utf-8") + "\n\n"
    assert run("predict", "iris/model.fracdnn", "-", cwd=folder, stdin=blank).stdout == expected
    rows = [f"{k};{k % 3};{'ab'[k % 2]}" for k in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(['"Length, mm";"Width, mm";class', *rows]), encoding="utf-8")
    assert run("train", "t.csv", "--target", "class", "--out", "m", *QUICK, cwd=tmp_path).returncode == 0
    (tmp_path / "q.csv").write_text('a,b\n5" pipe,1\n' + "x,1\ny,2\n" * 200_000, encoding="utf-8")
    done = run("train", "q.csv", "--target", "b", "--out", "m2", *QUICK, cwd=tmp_path)  # a quote that is never closed
    assert done.returncode == 1
    assert "q.csv must be a table whose rows have as many cells as its heading" in done.stderr


def test_kept_columns_come_back_as_they_are(tmp_path):
    table = (
        iris()
        .drop("sample")
        .with_columns(
            pl.Series("number", [str(900_000_000_000_000_000 + k) for k in range(150)]),
            pl.Series("code", ["NA", "007", "?"] * 50),
        )
    )
    write(table, tmp_path / "t.csv")
    run("train", "t.csv", "--target", "species", "--out", "m", *QUICK, cwd=tmp_path)
    done = run("predict", "m", "t.csv", "--id", "number", "--id", "code", "--out", "p.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kept = pl.read_csv(tmp_path / "p.csv", infer_schema=False)
    assert kept["number"].to_list() == table["number"].to_list()
    assert kept["code"].to_list() == table["code"].to_list()
    write(table.rename({"code": "prediction"}), tmp_path / "u.csv")
    done = run("predict", "m", "u.csv", "--id", "prediction", cwd=tmp_path)
    assert "--id must not name a column of the predictions, got 'prediction'" in done.stderr


@pytest.mark.parametrize("ending", [pytest.param("csv", marks=pytest.mark.slow), "parquet"])
def test_the_rows_held_out_are_kept_as_they_were(ending, tmp_path):
    """Also ids, which are dropped or left out; and the report of the run can be made of them."""
    n = 150
    table = iris().with_columns(
        pl.Series("number", [f"{k:04d}" for k in range(n)]) if ending == "csv" else pl.Series("number", range(n)),
        pl.Series("count", range(n)) % 7,
        pl.Series("yes", [k % 2 == 0 for k in range(n)]) if ending == "parquet" else pl.Series("yes", [0, 1] * 75),
        pl.Series("weight", [f"{k % 9},5" for k in range(n)]),
        pl.Series("grade", range(n)) % 30,
        pl.Series("cells", [[k] for k in range(n)]) if ending == "parquet" else pl.lit(None).alias("cells"),
    )
    write(table, tmp_path / f"t.{ending}")
    command = ["train", f"t.{ending}", "--target", "grade", "--drop", "number", "--run", "r"]
    done = run(*command, *QUICK, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["task"] == "regression"
    assert summary["left_out"] == ["sample", "cells"]
    found = pl.read_csv(tmp_path / "r" / "held-out.csv", infer_schema=False)
    assert found.height == summary["rows"]["test"]
    assert set(found.columns) >= set(table.columns) - {"cells"}
    before = {row[0]: row for row in table.select("sample", "number", "count", "species", "grade").iter_rows()}
    for row in found.select("sample", "number", "count", "species", "grade").iter_rows():
        assert row == tuple(str(cell) for cell in before[row[0]])
    model = fracdnn.load(tmp_path / "r" / "model.fracdnn")
    again = read_table(str(tmp_path / "r" / "held-out.csv"))
    rows = [int(name[1:]) for name in found["sample"]]
    np.testing.assert_array_equal(model.features(again).inputs, model.features(table)[rows].inputs)
    assert run("report", "r", "--out", "r.html", "-q", cwd=tmp_path).returncode == 0
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert re.search(r'<th scope="row">number</th><td>left out</td>.*?<td>it was dropped \(--drop\)</td>', page)
    assert model.details["left_out"].keys() == {"number", "sample", "cells"}
    assert f"<td>{model.details['left_out']['cells']}</td></tr>" in page
    assert "different values" in model.details["left_out"]["sample"]


@pytest.mark.slow  # `tests/columns` has the rules for dates
def test_dates_become_features(tmp_path):
    """Of a season and a trend; from text and from a type the same, also for rows that come later."""
    n = 600
    days = [date(2022, 1, 1) + timedelta(k) for k in range(n)]
    values = [
        4 * np.sin(2 * np.pi * (day.month - 1) / 12) + (day.isoweekday() > 5) + k / 300 for k, day in enumerate(days)
    ]
    table = pl.DataFrame({"day": days, "y": values})
    write(table, tmp_path / "t.parquet")
    write(table.with_columns(pl.col("day").cast(str)), tmp_path / "t.csv")
    command = ["--target", "y", "--max-iter", "60", "--n-members", "1"]
    found = []
    for ending in ("csv", "parquet"):
        done = run("train", f"t.{ending}", *command, "--run", ending, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert re.search(r"  day +date .*days since 2022-01-0", done.stderr)
        assert json.loads(done.stdout)["test"]["R2"] > 0.8
        assert "month, weekday" in run("info", f"{ending}/model.fracdnn", cwd=tmp_path).stdout
        assert run("report", ending, "--out", "r.html", "-q", cwd=tmp_path).returncode == 0
        found += [
            run("predict", f"{ending}/model.fracdnn", f"t.{new}", cwd=tmp_path).stdout for new in ("csv", "parquet")
        ]
    assert found[0] == found[1] == found[2] == found[3]
    done = run("predict", "csv/model.fracdnn", "-", cwd=tmp_path, stdin="day\n2024-01-01\nsoon\n\n")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3


def test_rare_classes_are_learned(tmp_path):
    table = iris()
    rare = table[:1].with_columns(pl.lit("rare").alias("species"))
    write(pl.concat([table, rare]), tmp_path / "t.csv")
    done = run("train", "t.csv", "--target", "species", "--run", "r", "--json", *QUICK, cwd=tmp_path)
    assert json.loads(done.stdout)["rows"] == {"training": 121, "test": 30}
    assert "rare" in json.loads(run("info", "r/model.fracdnn", "--json", cwd=tmp_path).stdout)["classes"]
    assert run("report", "r", "--out", "r.html", "-q", cwd=tmp_path).returncode == 0


def test_what_is_few_is_said_before_training(tmp_path):
    (tmp_path / "values.csv").write_text("a,y\n1,0.5\n2,1.5\n", encoding="utf-8")
    rows = "".join(f"{k * k},n{k // 2 if k < 38 else k}\n" for k in range(40))
    (tmp_path / "classes.csv").write_text("number,y\n" + rows, encoding="utf-8")
    few = "warning: only 2 training rows: results will be unreliable\n"
    none = "warning: no rows are held out to test the model, so its quality on new rows is unknown\n"
    place = ["--target", "y", "--out", "m", "--max-iter", "3"]
    done = run("train", "values.csv", *place, "--test-fraction", "0.01", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = done.stderr.partition("3/3")[0]
    assert few in told
    assert none in told
    done = run("train", "classes.csv", *place, "--test-fraction", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told, _, after = done.stderr.partition("3/3")
    assert re.search(r"warning: \d+ of 21 classes have fewer than 5 training rows: '", told)
    assert "warning: 21 classes in 40 rows; to predict a number, pass --task regression" in told
    assert "warning" not in after
    assert "'number' holds a different whole number in each row; if that is an id, leave it out: --drop" in told


@pytest.mark.parametrize("seed", range(5))
def test_targets_like_prices_are_pointed_out(seed):
    drawn = np.random.default_rng(seed)
    assert is_like_a_price(np.exp(drawn.normal(10, 1.2, 200)))
    for unit in (1.0, 1e300, 1e-300):  # no square of it overflows
        assert is_like_a_price(unit * 10 ** drawn.uniform(0, 3, 200))
    for other in (drawn.normal(0, 1, 200), drawn.normal(100, 5, 200), drawn.uniform(1, 1000, 200), np.full(200, 3.0)):
        assert not is_like_a_price(other)
    assert not is_like_a_price(-np.exp(drawn.normal(10, 1.2, 200)))


def test_what_to_do_about_a_target_like_a_price(tmp_path):
    drawn = np.random.default_rng(0)
    lines = [f"{x},{10**x:.6f}" for x in drawn.uniform(0, 4, 60)]
    (tmp_path / "prices.csv").write_text("x,price\n" + "\n".join(lines) + "\n")
    done = run("train", "prices.csv", "--target", "price", "--out", "m", "--max-iter", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "'price' spans orders of magnitude" in done.stderr.partition("3/3")[0]
    told = " ".join(done.stderr.split())
    assert "add a column with its logarithm, pass that as --target, and leave this one out: --drop 'price'" in told


def test_parquet_of_all_kinds(tmp_path):
    table = iris().with_columns(
        pl.Series("flag", [k % 2 == 0 for k in range(150)]),
        pl.Series("list", [[k] for k in range(150)]),
        pl.Series("day", [None] * 150).cast(pl.Date),
        pl.Series("value", [float("nan") if k % 10 == 0 else float(k % 2) for k in range(150)]),
        pl.Series("huge", [1e20, 2e20] * 75),
    )
    write(table, tmp_path / "t.parquet")
    done = run("train", "t.parquet", "--target", "value", "--run", "r", "--json", "--max-iter", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "15 rows left out: the target is missing" in done.stderr
    assert re.search(r"  list +left out .*its type List\(Int64\) is neither a number nor a category", done.stderr)
    assert json.loads(done.stdout)["task"] == "classification"
    assert run("report", "r", "--out", "r.html", "-q", cwd=tmp_path).returncode == 0
    done = run("train", "t.parquet", "--target", "huge", "--out", "m", "--json", *QUICK, cwd=tmp_path)
    assert json.loads(done.stdout)["task"] == "regression"


BAD_OPTIONS = [
    (
        ["--target", "species", "--device", "foo"],
        2,
        "must be auto, cpu or a device that torch finds here, such as cuda",
    ),
    (["--target", "species", "--out", "iris"], 1, "--out must be a file, got the folder iris; pass a path in it"),
    (
        ["--target", "species", "--out", "iris.csv/m"],
        1,
        "--out must be in a folder that can be written to, got iris.csv/",
    ),
    (
        ["--target", "species", "--max-iter", "many"],
        2,
        "max_iter must be a whole number at least 1 or 'auto', got 'many'; the default is 'auto'",
    ),
    (["--target", "species", "--width", "auto"], 2, "width must be None or a whole number at least 1, got 'auto'"),
    (["--target", "species", "--max-time", "auto"], 2, "max_time must be None or a number above 0, got 'auto'"),
    (["--target", "species", "--n-members", "0"], 2, "n_members"),
    (["--target", "none"], 1, "must have the target column 'none'"),
    (["--target", "sepal length", "--class-weight", "balanced"], 1, "class_weight applies to a classification only"),
    (["--target", "species", "--outlier-limit", "3"], 1, "outlier_limit applies to a regression only"),
    (["--target", "sepal length", "--outlier-limit", "-1"], 2, "outlier_limit"),
    (["--target", "species", "--encoding", "latin-nine"], 2, "--encoding"),
    (["--target", "species", "--test-fraction", "1"], 2, "test_fraction must be a number at least 0, below 1, got 1.0"),
    (["--config", "types.toml"], 2, "test_fraction must be a number at least 0, below 1, got 'much'"),
    (["--config", "numbers.toml"], 2, "n_layers must be a whole number at least 1, got '2.5'"),
    (["--config", "no.toml"], 2, "no.toml"),
]


@pytest.mark.parametrize(("options", "code", "message"), BAD_OPTIONS, ids=lambda value: str(value)[:30])
def test_options_that_cannot_be(options, code, message, folder):
    (folder / "types.toml").write_text('target = "species"\ntest_fraction = "much"\n', encoding="utf-8")
    (folder / "numbers.toml").write_text('target = "species"\nn-layers = 2.5\n', encoding="utf-8")
    done = run("train", "iris.csv", "--out", "m.fracdnn", *options, cwd=folder)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_results_are_json_also_where_there_is_no_number(folder, tmp_path):
    write(diabetes()[:1], tmp_path / "one.csv")
    done = run("evaluate", "diabetes/model.fracdnn", tmp_path / "one.csv", "--json", cwd=folder)
    assert json.loads(done.stdout, parse_constant=pytest.fail)["R2"] is None
    assert "R2: –\n" in run("evaluate", "diabetes/model.fracdnn", tmp_path / "one.csv", cwd=folder).stdout


def test_messages_name_the_row_of_the_table(tmp_path):
    lines = iris().write_csv().splitlines()
    lines[41] = lines[41].replace(lines[41].split(",")[0], "inf", 1)
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    done = run("train", "t.csv", "--target", "species", "--out", "m", cwd=tmp_path)
    assert "column 'sepal length' must hold finite numbers, got inf in row 41" in done.stderr


def test_thousands_are_not_taken_for_decimals(tmp_path):
    rows = [f'{k},{"ab"[k % 2]},"{k + 1},500"' for k in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(["x,class,income", *rows]), encoding="utf-8")
    done = run("train", "t.csv", "--target", "class", "--out", "m", cwd=tmp_path)
    assert done.returncode == 1
    assert "column 'income' must be clear about its commas, got '2,500'" in done.stderr


def test_a_gzip_file_cut_in_the_middle(folder, tmp_path):
    """After more than the 8 MB that are read at a time, most of them in a column that is not asked for."""
    table = iris().with_columns(pl.lit("x" * 1000).alias("remark"))
    big = table.sample(20_000, with_replacement=True, seed=0).write_csv().encode()
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(big, 1)[:-1000])
    done = run("predict", "iris/model.fracdnn", tmp_path / "cut.csv.gz", "--out", "p.csv", cwd=folder)
    assert done.returncode == 1
    assert "must be a whole gzip file" in done.stderr
    assert not (folder / "p.csv").exists()


def test_a_closed_pipe_is_the_end(folder):
    command = f"{sys.executable} -m fracdnn predict iris/model.fracdnn big.csv | head -2"
    write(iris().sample(20_000, with_replacement=True, seed=0), folder / "big.csv")
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
    assert done.stdout.startswith("prediction,")
    assert done.stderr == ""


def test_sheets_of_a_workbook_and_what_people_write(tmp_path):
    """One ugly table from end to end: sheets, German numbers and dates, codes, classes that look alike."""
    rng = np.random.default_rng(0)
    with xlsxwriter.Workbook(tmp_path / "book.xlsx") as book:
        book.add_worksheet("Notes").write_row(0, 0, ["readme"])
        sheet = book.add_worksheet("Data")
        sheet.write_row(0, 0, ["Tag", "Preis", "PLZ", "Antwort"])
        for k in range(60):
            price = f"{1000 + 10 * k:,.2f} €".translate(str.maketrans(",.", ".,"))
            answer = "jA" if k == 7 else "Ja" if k > 25 else "Nein"
            sheet.write_row(k + 1, 0, [f"{k % 28 + 1:02d}.0{k % 3 + 1}.2024", price, f"0{rng.integers(9)}123", answer])
    done = run("train", "book.xlsx", "--target", "Antwort", "--out", "m.fracdnn", cwd=tmp_path)
    assert done.returncode == 1
    assert "at least one row below its heading, got none; --sheet names another of 'Notes', 'Data'" in done.stderr
    done = run("train", "book.xlsx", "--target", "Antwort", "--sheet", "Dta", "--out", "m.fracdnn", cwd=tmp_path)
    assert "book.xlsx must have the sheet 'Dta' (did you mean 'Data'?); it has 'Notes', 'Data'" in done.stderr
    sheet = ["--sheet", "Data"]
    done = run("train", "book.xlsx", "--target", "Antwort", *sheet, "--run", "run", *QUICK[:-1], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"  Tag +date .*days since 2024-01-\d\d, month, weekday, written day first, as 31.01.2024", done.stderr
    )
    assert re.search(r"  Preis +number .*a number, in €, with a decimal comma", done.stderr)
    assert re.search(r"  PLZ +category .*codes with leading zeros", done.stderr)
    assert (
        "warning: 1 of 3 classes has fewer than 5 training rows: 'jA' (1); the model will rarely predict it"
        in done.stderr
    )
    assert "warning: the classes 'Ja', 'jA' look alike; if they mean the same" in done.stderr
    assert "baseline" in done.stdout.splitlines()[0]
    done = run("evaluate", "run/model.fracdnn", "book.xlsx", *sheet, cwd=tmp_path)
    assert "of these rows, so new rows will score lower" in done.stderr
    done = run("evaluate", "run/model.fracdnn", "run/held-out.csv", cwd=tmp_path)
    assert done.returncode == 0
    assert "trained on" not in done.stderr
    done = run("predict", "run/model.fracdnn", "run/held-out.csv", "--interval", "0.8", cwd=tmp_path)
    assert done.stdout.startswith("prediction,plausible,probability_Ja,")


def test_commas_that_do_not_tell_and_ends_that_nobody_knows(tmp_path):
    """--decimal says what the cells of features and target do not, also to later tables."""
    rng = np.random.default_rng(0)
    cells = [f"{rng.integers(1, 9)},{rng.integers(100, 999)}" for _ in range(120)]
    write(pl.DataFrame({"price": cells, "cost": cells}), tmp_path / "t.csv")
    command = ["train", "t.csv", "--target", "cost", "--run", "run", *QUICK]
    assert "it is: fracdnn train --decimal , or --decimal .\n" in run(*command, cwd=tmp_path).stderr
    assert "decimal must be '' or ',' or '.', got 'x'" in run(*command, "--decimal", "x", cwd=tmp_path).stderr
    for decimal, most in ((",", 9.0), (".", 9000.0)):
        done = run(*command, "--decimal", decimal, "--json", cwd=tmp_path)
        assert most / 9 < json.loads(done.stdout)["baseline"]["mean"] < most, done.stderr
        done = run("evaluate", "run/model.fracdnn", "t.csv", "--json", cwd=tmp_path)
        assert most / 9000 < json.loads(done.stdout)["RMSE"] < most
    done = run("predict", "run/model.fracdnn", "t.csv", "--interval", "0.999", cwd=tmp_path)
    assert done.stderr.startswith("fracdnn: warning: an interval of 0.999 takes 1,999 held-out rows, got ")
    assert done.stdout.splitlines()[1].endswith(",-inf,inf")


def test_a_target_that_never_differs(tmp_path):
    write(pl.DataFrame({"a": range(0, 90, 3), "y": [3.5] * 30}), tmp_path / "t.csv")
    done = run("train", "t.csv", "--target", "y", "--out", "m.fracdnn", *QUICK[:-1], cwd=tmp_path)
    assert "warning: 'y' is 3.5 in every training row: there is nothing to learn" in done.stderr
    assert "R2 on the training rows (24): –\nR2 on the test rows (6): –\n" in done.stdout


def test_what_makes_a_score_promise_too_much_is_told(tmp_path):
    """Rows that recur, a copy of the target, codes for missing: by training, and by its report."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=30).round(3), rng.choice(["no", "yes"], size=30)
    rows = [f"{a},{b[0]},{-999 if k % 5 == 0 else 20 + k / 10},{b}" for k, (a, b) in enumerate(zip(x, y, strict=True))]
    (tmp_path / "table.csv").write_text("\n".join(["x,copy,t,y", *rows * 4]))
    done = run("train", "table.csv", "--target", "y", "--run", "run", *QUICK[:-1], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = [
        "24 of 24 held-out rows have the same values in all columns as training rows",
        "'copy' tells the target exactly; if it is not known before the target is, leave it out: --drop 'copy'",
        "column 't': -999 recurs in ",
    ]
    assert all(f"fracdnn: warning: {each}" in done.stderr for each in told)
    done = run("report", "run", "--out", "report.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert told[0] in page
    assert "Column &#39;t&#39;: -999 recurs in " in page
    new = "x,copy,t\n0.1,n,21\n,y,22\n,n,23\n"
    (tmp_path / "new.csv").write_text(new)
    done = run("predict", "run/model.fracdnn", "new.csv", cwd=tmp_path)
    assert "warning: column 'x': 2 missing cells where training saw none; predicted as the median" in done.stderr
    for options, words in (
        (("--interval", "90"), "interval must hold numbers between 0 and 1, got 90; such as 0.9"),
        (("--out", "new.csv"), "--out must not be an input, got new.csv"),
        (("--out", "new.xlsx"), "--out must end in one of .csv, .tsv, .parquet"),
    ):
        done = run("predict", "run/model.fracdnn", "new.csv", *options, cwd=tmp_path)
        assert done.returncode == 1
        assert words in done.stderr
    done = run("train", "table.csv", "--target", "y", "--drop", "nope", "--out", "m.fracdnn", cwd=tmp_path)
    assert done.returncode == 1
    assert "'nope'" in done.stderr
