"""The study of tables: its halves, what is kept of a run that is killed, and its numbers against those by hand."""

import json
import math
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline

from benchmarks.study import __main__ as command
from benchmarks.study.check import check_study, to_repeat
from benchmarks.study.comparisons import Comparison
from benchmarks.study.figure import figure
from benchmarks.study.measures import (
    bootstrap_interval,
    critical_difference,
    improvability,
    measures_of_classes,
    ranks,
    win_rate,
)
from benchmarks.study.models import EIGHTFOLD, MODELS, Eightfold, Model
from benchmarks.study.page import DOCS, filled
from benchmarks.study.page import main as make
from benchmarks.study.parts import NOT_RUN, PARTS, Results
from benchmarks.study.runs import SECONDS, Run, measured, split
from benchmarks.study.sources import (
    CLASSES,
    KEEL_BASES,
    NUMBERS,
    SEEN,
    family_of,
    half_of,
    is_of_classes,
    keel_family,
    one_of_each_family,
)
from benchmarks.study.tables import load, prepared
from benchmarks.study.tuning import TUNED, Search, Tuned, Tuning
from fracdnn.estimators.reliability import Reliability
from records.keeping import made_with, read_file, write_file

ROOT = Path(__file__).parents[3]


# The halves.


def test_families_share_a_half_and_halves_do_not_change():
    expected = {
        "development": ["ecoli", "haberman", "Chile", "Boston", "concrete", "lending club"],
        "report": ["titanic", "abalone", "glass", "heart", "Caravan", "Auto", "ames"],
    }
    for half, families in expected.items():
        assert {half_of(family) for family in families} == {half}
    assert {half_of(family) for family in SEEN} == {"development"}
    for family, tables in {
        "titanic": ["titanic", "Titanicp"],
        "australian": ["australian", "crx"],
        "glass": ["fgl", "glass1", "glass-0-1-6_vs_2"],
        "optdigits": ["digits", "optdigits"],
        "breast_cancer": ["wdbc"],
        "heart": ["heart", "cleveland-0_vs_4"],
        "kr-vs-k": ["kr-vs-k-one_vs_fifteen", "kr-vs-k-zero_vs_eight"],
        "lending club": ["lending_club", "loans_full_schema"],
        "diabetes": ["diabetes"],
    }.items():
        assert {family_of(table) for table in tables} == {family}


def test_tables_are_named_once_and_are_enough_on_each_side():
    items = [source.item for source in (*CLASSES, *NUMBERS)]
    assert len(items) == len(set(items))
    assert not set(items) & set(KEEL_BASES)
    halves = [half_of(family_of(source.item)) for source in NUMBERS]
    assert min(halves.count("report"), halves.count("development")) >= 10
    assert is_of_classes("Chile")
    assert is_of_classes("yeast1")
    assert not is_of_classes("Boston")


def test_variants_stand_for_families_that_nothing_else_stands_for():
    variants = ["yeast1", "yeast3", "yeast-2_vs_8", "glass1", "glass4", "zoo-3"]
    chosen = one_of_each_family(variants, {"glass"})
    assert [keel_family(name) for name in chosen] == ["yeast", "zoo"]
    assert one_of_each_family(variants[::-1], {"glass"}) == chosen


# Tables.


def frame(n=40):
    return pd.DataFrame(
        {
            "number": np.arange(n, dtype=int),
            "text": [" a", "b ", "<null>", None] * (n // 4),
            "cells": ["1", "2.5", "?", "4"] * (n // 4),
            "constant": ["same"] * n,
            "flag": [True, False] * (n // 2),
        }
    )


def test_frames_keep_categories_and_holes_and_lose_what_says_nothing():
    target = pd.Series(["x"] * 18 + ["y "] * 12 + ["rare"] * 9 + [None])
    data = prepared(frame(), target, of_classes=True)
    assert data.y.tolist() == [0] * 18 + [1] * 12
    assert data.categories == ["text"]
    assert list(data.X) == ["number", "text", "cells", "flag"]
    assert list(data.X["text"].cat.categories) == ["a", "b"]
    assert data.X["text"].isna().sum() == 14
    assert data.X["cells"].dtype == np.float64
    assert data.X["cells"].tolist()[:2] == [1.0, 2.5]
    assert np.isnan(data.X["cells"][2])
    numbers = prepared(frame(), pd.Series([*range(39), None]), of_classes=False)
    assert numbers.y.dtype == np.float64
    assert len(numbers.X) == 39


def test_a_large_table_gives_the_same_part_of_each_class():
    big, target = pd.DataFrame({"a": range(1000)}), pd.Series(["x"] * 800 + ["y"] * 200)
    data = prepared(big, target, of_classes=True, most_rows=100)
    assert np.bincount(data.y).tolist() == [80, 20]
    again = prepared(big, target, of_classes=True, most_rows=100)
    assert data.X.equals(again.X)
    assert len(prepared(big, pd.Series(np.arange(1000.0)), of_classes=False, most_rows=100).y) == 100


def test_splits_are_those_of_the_seed():
    data = load("digits")
    train, test = split(data, 0)
    assert len(test) == math.ceil(0.3 * len(data.y))
    assert not set(train) & set(test)
    assert np.array_equal(train, split(data, 0)[0])
    assert not np.array_equal(train, split(data, 1)[0])
    assert np.abs(np.bincount(data.y[test]) / np.bincount(data.y) - 0.3).max() < 0.02


# Runs.


def run_command(out, *arguments, models=("random forest", "linear"), seeds=range(5)):
    told = ["--tables", "diabetes", "--models", *models, "--seeds", *map(str, seeds), "--out", str(out), "--jobs", "1"]
    return [*told, *arguments]


def wait_until(condition, seconds=240):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


def is_alive(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_a_killed_study_goes_on_and_leaves_no_process(tmp_path, capsys):
    """A real kill -9 between two runs or in one. What was there stays to the letter."""
    out = tmp_path / "study.json"
    study = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.study", *run_command(out)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: len(read_file(out)[1]) >= 2)
        children = Path(f"/proc/{study.pid}/task/{study.pid}/children").read_text().split()
    finally:
        study.kill()
        study.wait()
    wait_until(lambda: not any(is_alive(pid) for pid in children))
    before = read_file(out)[1]
    assert 2 <= len(before) < 10
    assert command.main(run_command(out)) == 0
    after = read_file(out)[1]
    assert after[: len(before)] == before
    assert len(after) == 10
    assert f"{len(before)} of 10 runs are in" in capsys.readouterr().err.replace("\n", " ")


def test_a_run_says_how_good_and_how_long():
    record = measured(Run(0, "digits", "linear"))
    assert record["status"] == "done"
    assert record["accuracy"] > 0.95
    assert record["auc"] > 0.99
    assert 0 < record["log_loss"] < 0.3
    assert 0 <= record["ece"] < 0.1
    assert min(record["fit_seconds"], record["predict_seconds"]) > 0
    again = measured(Run(0, "digits", "linear"))
    assert all(again[name] == record[name] for name in ("log_loss", "auc", "accuracy", "ece"))
    numbers = measured(Run(0, "diabetes", "linear"))
    assert numbers["r2"] > 0.3
    assert numbers["mae"] < numbers["rmse"]


def refuse(seed, categories):
    raise ValueError("no table\nis good enough")


def test_a_part_of_the_recipe_taken_away_is_a_run():
    record = measured(Run(0, "diabetes", "one network"))
    assert record["status"] == "done"
    assert record["rmse"] != measured(Run(0, "diabetes", "fractional"))["rmse"]


def test_times_are_of_a_cpu_only():
    """Whatever is not called so is another device."""
    here, there = (measured(Run(0, "diabetes", "one network"), device=device) for device in ("cpu", "cpu:0"))
    assert not set(SECONDS) & set(there)
    assert there["device"] == "cpu:0"
    assert set(SECONDS) <= set(here)
    assert there["rmse"] == here["rmse"]
    with pytest.raises(SystemExit, match="--device cuda is for networks of torch; CatBoost, linear can't run there"):
        command.main(["--device", "cuda", "--models", "fractional", "CatBoost", "linear", "--list"])


def test_small_tables_are_chosen_by_their_rows(capsys):
    command.main(["--list", "--tables", "digits", "diabetes", "--most-rows", "500"])
    told = capsys.readouterr().out
    assert "diabetes (" in told
    assert "digits (" not in told


def test_a_model_that_fails_is_recorded_and_ranked_last(monkeypatch):
    monkeypatch.setitem(MODELS, "refuses", Model(refuse, refuse))
    record = measured(Run(0, "digits", "refuses"))
    assert (record["status"], record["error"]) == ("failed", "ValueError: no table is good enough")
    records = [record, measured(Run(0, "digits", "linear"))]
    found = Comparison.of(records, "development", "classes", ["refuses", "linear"])
    assert ranks(found.errors("log_loss")).tolist() == [[2, 1]]
    assert found.against("log_loss", "linear")["refuses"][0] == 1.0
    assert improvability(found.errors("log_loss")).tolist() == [1, 0]
    assert "| refuses | digits | 0 | ValueError: no table is good enough |" in PARTS["failures"](Results(records))


def test_what_is_not_installed_is_said_and_left_out(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(command.EVERY_MODEL, "nobody's", Model(refuse, refuse, module="a_package_that_nobody_has"))
    out = tmp_path / "study.json"
    assert command.main(run_command(out, models=["nobody's"])) == 0
    said = capsys.readouterr().err
    assert "a_package_that_nobody_has is not installed: nobody's is left out" in said
    assert "0 of 0 runs" in said
    with pytest.raises(SystemExit, match="no table is called dibetes; --list names all"):
        command.main(["--tables", "dibetes"])
    with pytest.raises(SystemExit, match="no model is called linea; --list names all"):
        command.main(["--anew", "linea"])
    assert command.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert "diabetes (numbers, development, family diabetes)" in listed
    assert "fractional, learned order, tuned" in listed


def test_runs_anew_take_the_place_of_the_old_and_others_stay(tmp_path):
    out = tmp_path / "study.json"
    write_file(out, {}, [record("diabetes", model, rmse=1.0) for model in ("linear", "MLP")])
    assert command.main(run_command(out, "--anew", "linear", models=["linear", "MLP"], seeds=[0])) == 0
    found = {each["model"]: each["rmse"] for each in read_file(out)[1]}
    assert found.keys() == {"linear", "MLP"}
    assert found["MLP"] == 1.0
    assert found["linear"] == measured(Run(0, "diabetes", "linear"))["rmse"]


# Tuning.


def test_learned_order_and_order_1_try_the_same_settings():
    learned, plain = (TUNED[f"fractional, {name}, tuned"].draw for name in ("learned order", "order 1"))
    first, second = np.random.default_rng(5), np.random.default_rng(5)
    drawn = [learned(first) for _ in range(30)]
    assert drawn == [plain(second) for _ in range(30)]
    assert len({json.dumps(settings) for settings in drawn}) == 30
    assert not any("order" in settings for settings in drawn)


@pytest.mark.parametrize("folds", [1, 3])
def test_the_settings_with_the_least_error_are_chosen(folds):
    """Of ridges with little, much and refused decay, on held-out rows."""
    decays = iter([1e9, -1.0, 1e8])
    data = load("diabetes")
    build = partial(MODELS["linear"].build, False, 0, [])
    tuned = Tuned(build, lambda rng: {"alpha": next(decays)}, Search(4, folds), False, 0).fit(data.X, data.y)
    assert (tuned.chosen_, tuned.refused_) == ({}, 1)
    default = MODELS["linear"].build(False, 0, []).fit(data.X, data.y)
    assert np.array_equal(tuned.predict(data.X), default.predict(data.X))


def test_a_tuned_run_says_what_it_chose(monkeypatch):
    monkeypatch.setitem(TUNED, "linear, tuned", Tuning("linear", lambda rng: {"alpha": 1e9}))
    record = measured(Run(0, "diabetes", "linear, tuned"), Search(2))
    assert (record["status"], record["chosen"], record["refused"]) == ("done", {}, 0)
    assert record["search"] == {"configurations": 2, "folds": 1}
    assert record["rmse"] == measured(Run(0, "diabetes", "linear"))["rmse"]


@pytest.mark.parametrize("of_classes", [True, False])
def test_our_estimators_take_the_settings_that_are_drawn(of_classes):
    rng = np.random.default_rng(0)
    for name in ("fractional, learned order, tuned", "fractional, order 1, tuned"):
        tuning = TUNED[name]
        for _ in range(5):
            built = tuning.model.build(of_classes, 0, [], **tuning.draw(rng))
            estimator = built[-1] if isinstance(built, Pipeline) else built
            estimator._check_parameters()
            assert estimator.learn_order == ("learned" in name)
            assert (estimator.order == 1) == ("order 1" in name)


# Numbers by hand.


def test_ranks_and_critical_differences_by_hand():
    errors = np.array([[0.1, 0.2, 0.3], [0.2, 0.2, 0.1], [np.inf, 0.5, np.inf]])
    assert ranks(errors).tolist() == [[1, 2, 3], [2.5, 2.5, 1], [2.5, 1, 2.5]]
    # Demšar (2006), table 5: q = 2.343, 2.569 and 2.728 for three, four and five models.
    for models, q in ((3, 2.343), (4, 2.569), (5, 2.728)):
        assert critical_difference(models, 14) == pytest.approx(q * (models * (models + 1) / (6 * 14)) ** 0.5, abs=1e-3)


def test_improvability_win_rates_and_intervals_by_hand():
    errors = np.array([[1.0, 2.0], [4.0, 1.0], [0.0, 0.0], [1.0, np.inf]])
    assert improvability(errors).tolist() == [0.75 / 4, (0.5 + 1) / 4]
    assert win_rate(*errors.T) == (1 + 0 + 0.5 + 1) / 4
    low, high = bootstrap_interval(np.array([1.0, 1.0, 1.0]))
    assert (low, high) == (1, 1)
    low, high = bootstrap_interval(np.arange(100.0))
    assert (low, high) == pytest.approx((49.5 - 1.96 * 2.887, 49.5 + 1.96 * 2.887), abs=0.3)  # 2.887: of a mean


def test_measures_of_probabilities_by_hand():
    y, p = np.array([0, 0, 1, 1]), np.array([0.1, 0.6, 0.4, 0.8])
    found = measures_of_classes(y, np.stack([1 - p, p], 1))
    assert found["log_loss"] == pytest.approx(-np.log([0.9, 0.4, 0.4, 0.8]).mean())
    assert found["auc"] == 0.75
    assert found["accuracy"] == 0.5
    # Bins: 0.9 (right), 0.6 twice (wrong), 0.8 (right).
    assert found["ece"] == pytest.approx((0.1 + 2 * 0.6 + 0.2) / 4)
    assert Reliability.of(np.array([[0.0, 1.0]]), np.array([True])).error == 0
    certain = measures_of_classes(np.array([0, 1]), np.array([[0.0, 1.0], [0.0, 1.0]]))
    assert certain["log_loss"] == pytest.approx(-np.log(np.finfo(np.float32).eps) / 2, rel=1e-6)
    with pytest.raises(ValueError, match="not finite"):
        measures_of_classes(y, np.full((4, 2), np.nan))


# Comparisons and the page.


MADE = {"commit": None, "versions": {"fracdnn": "0"}, "machine": {}}


def record(table, model, seed=0, **values):
    return {"table": table, "model": model, "seed": seed, "made_with": MADE, "status": "done", **values}


def test_models_are_compared_on_tables_and_seeds_that_all_have():
    records = [
        record(table, model, seed, log_loss=loss + seed, fit_seconds=2.0 if model == "MLP" else 1.0)
        for table in ("Chile", "email")
        for model, loss in (("linear", 1.0), ("MLP", 2.0))
        for seed in ((0, 1) if model == "linear" else (0,))
    ]
    records += [record("Chile", "CatBoost", log_loss=0.1), record("Boston", "linear", rmse=1.0)]
    records += [record("Caravan", "linear", log_loss=0.5)]  # of the other half
    found = Comparison.of(records, "development", "classes", ["linear", "MLP", "CatBoost"])
    assert (found.tables, found.models, found.seeds) == (["Chile", "email"], ["linear", "MLP"], [0])
    assert found.left_out == {"CatBoost": "1 tables, 1 seeds"}
    assert found.values("log_loss").tolist() == [[1, 2], [1, 2]]
    assert found.errors("log_loss", ["MLP"]).tolist() == [[2], [2]]
    assert found.time_ratios("fit_seconds", "linear").tolist() == [1, 2]
    assert found.differences("log_loss", "MLP", "linear").tolist() == [1, 1]
    for each in records:
        if each["model"] == "MLP" and each["table"] == "email":
            del each["fit_seconds"]  # as on a GPU
    assert found.time_ratios("fit_seconds", "linear").tolist() == [1, 2]
    assert math.isnan(found.time_ratios("predict_seconds", "linear")[0])
    assert not Comparison.of(records, "report", "numbers", ["linear", "MLP"])
    records += [record(table, "XGBoost", seed, log_loss=1.0) for table in ("Chile", "email") for seed in (0, 1)]
    three = ["linear", "MLP", "XGBoost"]
    found = Comparison.of(records, "development", "classes", three)
    assert (found.models, found.seeds) == (three, [0])
    found = Comparison.of(records, "development", "classes", three, by_most=True)
    assert (found.models, found.seeds, found.left_out) == (["linear", "XGBoost"], [0, 1], {"MLP": "2 tables, 1 seeds"})


def report_records():
    """Ours first on each table, RealMLP-TD-S next, then CatBoost; learned order better than order 1 by 0.1."""
    found = []
    for table in ("BEPS", "HMDA", "OJ", "Auto", "ames", "tips"):
        for place, model in enumerate(("fractional", "RealMLP-TD-S", "CatBoost")):
            value = 1.0 + place
            values = {"log_loss": value, "auc": 1 - value / 9, "accuracy": 1 - value / 9, "ece": 0.1}
            if not is_of_classes(table):
                values = {"rmse": value, "r2": 1 - value / 9}
            found.append(record(table, model, **values, fit_seconds=value, predict_seconds=1.0))
        for model, value in (("learned order", 1.0), ("order 1", 1.1)):
            values = {"log_loss": value, "auc": 0.5, "accuracy": 0.5} if is_of_classes(table) else {"rmse": value}
            found.append(record(table, f"fractional, {model}, tuned", **values))
    return found


def test_parts_of_the_page():
    part = Results(report_records()).part
    size = part("size", "report").splitlines()[0]
    assert size.startswith(
        "- classes: 3 tables of 3 families, 3 models, seeds 0. Left out, having run too little: RealMLP-TD (none); "
    )
    lines = part("ranks", "report", "classes").splitlines()
    assert lines[2] == "| fractional | 1.00 | 1.00 | 1.00 | 0.0% | 0.0% | 0.100 | 0.50 | 1.00 |  |"
    # Three tables: the least p-value is 2 / 2³, twice for two rivals.
    assert lines[4] == "| CatBoost | 3.00 | 3.00 | 3.00 | 66.7% | 66.7% | 0.100 | 1.50 | 1.00 | 100% (p = 0.500) |"
    assert lines[-1] == "Mean ranks of 3 models on 3 tables differ significantly where they are 1.91 apart."
    assert "mean -0.1000, 95 % interval -0.1000 to -0.1000 over 3 tables; less, which is better, on 3." in part(
        "order", "report", "classes"
    )
    assert part("ranks", "development", "classes") == NOT_RUN


def test_one_network_and_eightfold_rivals_are_ranked_by_themselves():
    """Single models against our single network; ensembles against our ensemble, without those that ran too little."""
    records = []
    for table in ("Auto", "ames", "tips"):
        for place, model in enumerate(("one network", "RealMLP-TD", "CatBoost")):
            records.append(record(table, model, rmse=1.0 + place))
        for place, model in enumerate(("LightGBM, eightfold", "fractional", "MLP, eightfold", "random forest")):
            records.append(record(table, model, rmse=1.0 + place))
    records.append(record("tips", "CatBoost, eightfold", rmse=9.0))
    told = Results(records).part("single", "report", "numbers").splitlines()
    assert told[0] == "| model | RMSE | one network better by RMSE |"
    assert told[2:4] == ["| one network | 1.00 |  |", "| RealMLP-TD | 2.00 | 100% (p = 0.750) |"]
    told = Results(records).part("eightfold", "report", "numbers").splitlines()
    assert told[2] == "| LightGBM, eightfold | 1.00 | 0% (p = 0.750) |"
    assert told[3] == "| fractional | 2.00 |  |"
    left_out = "CatBoost, eightfold (1 tables, 1 seeds); RealMLP-TD, eightfold (none); TabM, eightfold (none)."
    assert told[-1].endswith(f"Left out, having run too little: {left_out}")


def test_eight_models_each_without_another_eighth_are_averaged():
    data = load("diabetes")
    model = EIGHTFOLD["MLP, eightfold"].build(False, 1, [])
    rival = Eightfold(MODELS["linear"].numbers, False, 1, []).fit(data.X, data.y)
    assert isinstance(model, Eightfold)
    assert len(rival.members_) == 8
    members = np.array([member.predict(data.X) for member in rival.members_])
    assert np.array_equal(rival.predict(data.X), members.mean(0))
    assert len({float(member[0]) for member in members}) == 8
    digits = load("digits")
    found = Eightfold(MODELS["linear"].classes, True, 0, []).fit(digits.X[:400], digits.y[:400])
    assert found.predict_proba(digits.X[:9]).sum(1) == pytest.approx(np.ones(9))


def test_changes_of_the_recipe_are_compared_on_their_tables():
    """The default ran on one more, which is larger, and so may have one of the changes."""
    three = ("Boston", "concrete", "diabetes")
    records = [record(table, "fractional", rmse=1.0, fit_seconds=2.0) for table in three]
    records += [record(table, "one network", rmse=math.e, fit_seconds=1.0) for table in ("Boston", "diabetes")]
    rows = ["| one network | +100.0% | +100.0% to +100.0% | +100.0% | 2 of 2 | 0.50 |"]
    told = Results(records).part("recipe", "development", "numbers")
    assert told.splitlines()[2:] == rows
    records += [record(table, "no bins", rmse=1.0, fit_seconds=2.0) for table in three]
    told = Results(records).part("recipe", "development", "numbers")
    assert told.splitlines()[2:] == [*rows, "| no bins | +0.0% | +0.0% to +0.0% | +0.0% | 0 of 3 | 1.00 |"]
    assert Results(records).part("recipe", "report", "numbers") == NOT_RUN


def test_the_page_says_what_made_each_run():
    def made(**versions):
        return {"commit": "0123456789abcdef", "versions": versions, "machine": {}}

    records = [
        {**record("Auto", "fractional"), "made_with": made(fracdnn="0.2", torch="3")},
        {**record("tips", "fractional", device="cuda"), "made_with": made(fracdnn="0.1")},
        {**record("tips", "CatBoost"), "made_with": made(fracdnn="0.1", catboost="1.0")},
        {**record("tips", "XGBoost"), "made_with": {"commit": None, "versions": {"xgboost-cpu": "3.2"}}},
        {**record("tips", "linear"), "made_with": made(**{"scikit-learn": "1.9"})},
    ]
    assert Results(records).part("made").splitlines()[2:] == [
        "| catboost 1.0 | cpu | CatBoost (1) |",
        "| fracdnn 0.1 at 01234567 | cuda | fractional (1) |",
        "| fracdnn 0.2 at 01234567 | cpu | fractional (1) |",
        "| scikit-learn 1.9 | cpu | linear (1) |",
        "| xgboost-cpu 3.2 | cpu | XGBoost (1) |",
    ]


def test_short_runs_of_ours_are_repeated():
    """On a CPU with default settings; a rival's needs no check, and what failed or was tuned is left out."""
    seconds = dict(zip(("Auto", "tips", "cpus", "Hitters", "diabetes"), range(1, 6), strict=True))
    ours = [record(table, "fractional", rmse=1.0, fit_seconds=spent) for table, spent in seconds.items()]
    others = [
        record("biomass", "fractional", rmse=1.0, device="cuda"),
        record("biomass", "CatBoost", rmse=1.0, fit_seconds=1.0),
        record("biomass", "fractional, order 1, tuned", rmse=1.0, fit_seconds=1.0),
        {**record("biomass", "fractional"), "status": "failed"},
    ]
    chosen = to_repeat([*ours, *others], 2, seconds)
    assert [each["table"] for each in chosen] == ["Auto", "cpus"]
    assert [each["table"] for each in to_repeat(ours, 2, ["tips", "cpus", "Hitters"])] == ["tips", "cpus"]
    assert to_repeat(others, 2, ["biomass"]) == []


@pytest.mark.slow
def test_published_runs_hold_only_with_their_numbers(tmp_path, capsys):
    """A real run of a small table against its own numbers, then against numbers that it never gave."""
    path = tmp_path / "study.json"
    once = {**measured(Run(0, "diabetes", "fractional, order 1")), "made_with": made_with()}
    for change in (0.0, 1e-3):
        write_file(path, {}, [{**once, "rmse": once["rmse"] + change}])
        assert check_study(path, 0) == (not change)
    assert "rmse" in capsys.readouterr().out.splitlines()[-1]


def test_results_page_and_picture_are_made_of_files(tmp_path):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    write_file(first, {}, [{**each, "fit_seconds": 99.0} for each in report_records()])
    write_file(second, {}, report_records())
    make([str(first), str(second), "--docs", str(tmp_path)])
    path = tmp_path / "results" / "study.json"
    records = read_file(path)[1]
    assert sorted(map(json.dumps, records)) == sorted(map(json.dumps, report_records()))
    page = (tmp_path / "study.md").read_text(encoding="utf-8")
    assert "| CatBoost | 3.00 |" in page
    assert filled(page, records) == page
    assert (tmp_path / "images" / "study.png").read_bytes().startswith(b"\x89PNG")
    assert figure([]) is None


def test_the_page_is_made_from_the_results():
    text, records = (DOCS / "study.md").read_text(encoding="utf-8"), read_file(DOCS / "results" / "study.json")[1]
    assert filled(text, records) == text, "run python -m benchmarks.study.page"
    for name in PARTS:
        assert f"<!-- study {name}" in text
