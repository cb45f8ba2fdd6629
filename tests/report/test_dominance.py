"""A column that explains nearly everything is named; good columns among others are not."""

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_diabetes, load_iris, make_friedman1

from fracdnn import FractionalClassifier, FractionalRegressor
from fracdnn.report.importance import LEAST_DOMINATED, Importances, dominant, measured
from fracdnn.report.subject import subject_of
from fracdnn.report.trust import advice

OPTIONS = {"n_members": 1, "max_iter": 60, "random_state": 0}


def dominant_of(kind, X, y):
    estimator = kind(**OPTIONS).fit(X[::2], y[::2])
    subject = subject_of(estimator, X[1::2], y[1::2])
    return subject, measured(subject)


@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_a_copy_of_the_target_is_named(scale):
    X, y = load_diabetes(return_X_y=True)
    leak = y + np.random.default_rng(0).standard_normal(len(y)) * 0.05 * y.std()
    subject, found = dominant_of(FractionalRegressor, np.column_stack([X, scale * leak]), y)
    assert dominant(subject, found) == "feature 11"
    told = advice(subject, found, [])
    assert "Possible leak: column “feature 11” explains nearly everything by itself." in told["Warnings"]
    assert told["What to try next"][0].startswith(
        "Check that “feature 11” is known before the target and is not a copy of it"
    )


def test_a_row_number_of_a_sorted_table_is_named():
    X, y = load_diabetes(return_X_y=True)
    number = np.argsort(np.argsort(y, kind="stable"))
    assert dominant(*dominant_of(FractionalRegressor, np.column_stack([number, X]), y)) == "feature 1"


def test_categories_that_give_the_class_away_are_named():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    table = pl.DataFrame(rng.standard_normal((400, 4)), schema=["a", "b", "c", "d"])
    table = table.with_columns(leak=np.array(["red", "green", "blue"])[y])
    subject, found = dominant_of(FractionalClassifier, table, y)
    assert dominant(subject, found) == "leak"
    few = Importances(found.mean, found.deviation, found.samples[: LEAST_DOMINATED - 1])
    assert dominant(subject, few) is None


@pytest.mark.parametrize(
    ("kind", "samples"),
    [
        (FractionalClassifier, load_iris(return_X_y=True)),
        (FractionalRegressor, load_diabetes(return_X_y=True)),
        (FractionalRegressor, make_friedman1(400, random_state=0)),
        (FractionalRegressor, (np.random.default_rng(0).random((300, 3)), np.random.default_rng(1).random(300))),
    ],
    ids=["iris", "diabetes", "friedman", "noise"],
)
def test_good_columns_among_others_are_not(kind, samples):
    subject, found = dominant_of(kind, *samples)
    assert dominant(subject, found) is None


def test_what_cannot_be_measured_is_not_warned_of():
    subject, found = dominant_of(FractionalRegressor, np.random.default_rng(0).random((300, 1)), np.arange(300.0))
    assert dominant(subject, found) is None  # the only column
    assert dominant(subject, Importances(np.empty(0), np.empty(0), found.samples, "too many columns")) is None
