"""The command and Python make the same inputs of a table, and so the same model."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fracdnn
from fracdnn import FractionalClassifier, FractionalRegressor
from tests.cli.commands import run

N = 500
SETTINGS = {"max_iter": 5, "n_members": 2, "width": 8}


def table(seed=0):
    """Numbers, truth values, categories, dates and text of 122 values, each with missing cells, and stray text."""
    rng = np.random.default_rng(seed)

    def gappy(values, share=0.1, word=None):
        return [word if rng.random() < share else value for value in values]

    size, soil = rng.normal(size=N).round(2), rng.choice(["clay", "sand", "peat"], N)
    days = pd.Timestamp("2023-11-20") + pd.to_timedelta(rng.integers(0, 200, N), "D")
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 10_000, N), "min")
    places = [*range(122), *range(122), *rng.exponential(9, N - 244) % 122]
    score = size + (soil == "clay") - (days.month.to_numpy() == 3) + 0.1 * rng.normal(size=N)
    return pd.DataFrame(
        {
            "size": gappy(size),
            "count": rng.integers(0, 9, N),
            "dose": gappy(gappy(rng.integers(0, 50, N).astype(str), 0.03, "<1")),
            "watered": gappy(rng.random(N) > 0.4),
            "old": rng.random(N) > 0.4,
            "soil": gappy(soil),
            "place": gappy([f"p{int(k):03d}" for k in places], 0.05),
            "day": gappy(days.strftime("%Y-%m-%d")),
            "seen": times.strftime("%Y-%m-%d %H:%M"),
            "note": [f"note {k}" for k in range(N)],
            "label": np.where(score > 0, "tall", "small"),
            "height": score.round(3),
        }
    )


def read_by_polars(path):
    return pl.read_csv(path, try_parse_dates=True)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "table.csv"
    table().to_csv(path, index=False)
    return path


def trained(path, out, target, drop=None, **options):
    options = {"drop": drop, **options} if drop else options
    flags = [word for name, value in {**SETTINGS, **options}.items() for word in (f"--{name.replace('_', '-')}", value)]
    done = run("train", path, "--target", target, "--out", out, *map(str, flags), "--quiet", cwd=out.parent)
    assert done.returncode == 0, done.stderr
    return fracdnn.load(out)


@pytest.mark.filterwarnings("ignore:column 'note' is left out", "ignore:column 'dose'", "ignore:column 'soil'")
@pytest.mark.parametrize("kind", [FractionalClassifier, FractionalRegressor])
@pytest.mark.parametrize("read", [pd.read_csv, read_by_polars, pl.read_csv])
def test_the_same_rows_give_the_same_model(kind, read, path, tmp_path):
    classifies = kind is FractionalClassifier
    target, other = ("label", "height") if classifies else ("height", "label")
    model = trained(path, tmp_path / "m.fracdnn", target, other, test_fraction=0)
    frame = read(path)
    y = frame[target].to_numpy()
    X = frame.drop(columns=[target, other]) if read is pd.read_csv else frame.drop(target, other)
    estimator = kind(random_state=0, **SETTINGS).fit(X, y)
    assert estimator.encoding_.used() == model.encoding
    assert {column.kind for column in model.encoding.columns} == {"number", "category", "date"}
    assert [len(each.inputs) for each in model.encoding.columns if each.name == "place"] == [32]
    if classifies:
        np.testing.assert_allclose(estimator.predict_proba(X), model.predict_proba(X), rtol=0, atol=1e-9)
        new = X.head(7) if read is not pd.read_csv else X.assign(soil="lava", place="p999", day=None, size=None)
        ignored = model.predict_proba(new)
        np.testing.assert_allclose(estimator.predict_proba(new), ignored, rtol=0, atol=1e-9)
    else:
        np.testing.assert_allclose(estimator.predict(X), model.predict(X), rtol=0, atol=1e-9)


@pytest.mark.filterwarnings("ignore:column 'note' is left out", "ignore:column 'dose'", "ignore:column 'soil'")
def test_the_rows_that_were_learned_from_give_the_same_model(path, tmp_path):
    """With rows held out: those that `train --run` does not write are what was learned from."""
    done = run("train", path, "--target", "label", "--drop", "height", "--run", tmp_path / "run", "--max-iter", 5,
               "--n-members", 2, "--width", 8, "--quiet", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    model, whole = fracdnn.load(tmp_path / "run" / "model.fracdnn"), pd.read_csv(path)
    held_out = pd.read_csv(tmp_path / "run" / "held-out.csv")["note"]
    learned = whole[~whole["note"].isin(held_out)]
    assert len(learned) == N - len(held_out) == 400
    X = learned.drop(columns=["label", "height"])
    estimator = FractionalClassifier(random_state=0, **SETTINGS).fit(X, learned["label"])
    assert estimator.encoding_.used() == model.encoding
    rest = whole.drop(columns=["label", "height"])
    found = model.predict_proba(rest)
    np.testing.assert_allclose(estimator.predict_proba(rest), found, rtol=0, atol=1e-9)


def test_row_numbers_are_left_out_by_the_command_alone(tmp_path):
    frame = pd.DataFrame({"row": np.arange(1, 61), "a": np.arange(60) % 7, "y": ["n", "p"] * 30})
    frame.to_csv(tmp_path / "t.csv", index=False)
    left, kept = (
        trained(tmp_path / "t.csv", tmp_path / f"{k}.fracdnn", "y", test_fraction=0, **more)
        for k, more in enumerate([{}, {"keep": "row"}])
    )
    X = frame[["row", "a"]]
    python = FractionalClassifier(random_state=0, **SETTINGS).fit(X, frame["y"])
    assert left.encoding.names == ["a"]
    assert kept.encoding == python.encoding_
    np.testing.assert_allclose(python.predict_proba(X), kept.predict_proba(X), rtol=0, atol=1e-9)


def test_categories_by_option_and_by_dtype(tmp_path):
    codes = np.random.default_rng(0).integers(1, 5, 80)
    frame = pd.DataFrame({"code": codes, "a": np.arange(80) % 7 / 2, "y": np.where(codes % 2, "odd", "even")})
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = trained(tmp_path / "t.csv", tmp_path / "m.fracdnn", "y", test_fraction=0, categorical="code")
    X = frame[["code", "a"]].astype({"code": "category"})
    estimator = FractionalClassifier(random_state=0, **SETTINGS).fit(X, frame["y"])
    assert estimator.encoding_ == model.encoding
    assert model.encoding.feature_names == ["code=1", "code=2", "code=3", "code=4", "a"]
    np.testing.assert_allclose(estimator.predict_proba(X), model.predict_proba(X), rtol=0, atol=1e-9)
