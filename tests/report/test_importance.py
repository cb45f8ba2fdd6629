"""Permutation importance: that of scikit-learn over the columns of a table, capped, and what stands in its place."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.inspection import permutation_importance
from sklearn.metrics import log_loss, r2_score

from fracdnn import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.table_model import TableModel
from fracdnn.report.drawings import _importance
from fracdnn.report.importance import REPEATS, Importances, measured
from fracdnn.report.subject import subject_of


def importance_plot(subject):
    return _importance(subject, measured(subject))


def table(n=300, seed=0):
    """Two columns that matter, one of them of categories, and two that do not."""
    rng = np.random.default_rng(seed)
    kind = rng.choice(["red", "green", "blue", "grey"], n)
    found = {
        "noise": rng.standard_normal(n),
        "kind": kind,
        "size": rng.standard_normal(n),
        "code": rng.choice(["u", "v"], n),
    }
    return pl.DataFrame(found), 2.0 * np.isin(kind, ["red", "blue"]) + found["size"]


@pytest.mark.parametrize("kind", [FractionalClassifier, FractionalRegressor])
def test_columns_of_categories_are_shuffled_as_a_whole(kind):
    """The same as scikit-learn gives for the table itself, with the same seed."""
    columns, score = table()
    y = np.where(score > 1, "high", "low") if kind is FractionalClassifier else score
    model = TableModel(kind(max_iter=15, n_members=1, random_state=0).fit(columns, y), "y", {})
    places = model.encoding.places
    assert places == {"noise": [0], "kind": [1, 2, 3, 4], "size": [5], "code": [6, 7]}
    subject = subject_of(model.estimator, model.features(columns), y)
    found = measured(subject)
    assert len(found.samples) == len(y)

    def scored(_, frame, y):
        if kind is FractionalClassifier:
            return -log_loss(y, model.predict_proba(frame), labels=model.estimator.classes_)
        return r2_score(y, model.predict(frame))

    frame = pd.DataFrame({name: columns[name].to_list() for name in places})
    expected = permutation_importance(model.estimator, frame, y, scoring=scored, n_repeats=REPEATS, random_state=0)
    np.testing.assert_allclose(found.mean, expected.importances_mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.deviation, expected.importances_std, rtol=1e-9, atol=1e-12)
    assert {list(places)[k] for k in found.best(2)} == {"kind", "size"}
    order = np.sort(found.mean)[::-1]
    assert order[1] > 10 * abs(order[2])
    svg = "".join(importance_plot(subject).panels)
    assert all(f">{name}</text>" in svg for name in places)


def fitted(n=300, d=3, kind=FractionalClassifier):
    X = np.random.default_rng(0).standard_normal((n, d))
    y = (X[:, 0] > 0).astype(int)
    return kind(max_iter=2, n_members=1, random_state=0).fit(X, y), X, y


def test_the_samples_are_capped_and_the_caption_says_how_many():
    estimator, X, y = fitted(2500, 25)
    plot = importance_plot(subject_of(estimator, X, y))
    assert "shuffled among 640 of 2,500 held-out rows" in plot.caption
    assert "These are the 20 most important of 25 columns." in plot.caption
    assert "".join(plot.panels).count(">feature ") == 20
    few = importance_plot(subject_of(estimator, X[:50], y[:50]))
    assert "shuffled among 50 held-out rows" in few.caption


def test_what_cannot_be_shown_says_why():
    estimator, X, y = fitted(d=401)
    assert (
        importance_plot(subject_of(estimator, X, y)).caption
        == "With 401 columns, shuffling each of them would take too long."
    )
    regressor, X, y = fitted(kind=FractionalRegressor)
    assert "no R²" in importance_plot(subject_of(regressor, X, np.ones(len(y)))).caption
    estimator, X, y = fitted()
    assert "No row has a class" in importance_plot(subject_of(estimator, X, y + 7)).caption
    some = importance_plot(subject_of(estimator, X, np.where(np.arange(len(y)) < 100, y, 7)))
    assert "shuffled among 100 of 300 held-out rows" in some.caption


def test_the_best_columns_are_worth_more_than_their_deviation():
    found = Importances(np.array([0.1, 0.5, 0.2, -0.1, 0.3]), np.array([0.2, 0.1, 0.1, 0.0, 0.1]), np.arange(3))
    assert found.best(9) == [1, 4, 2]
    assert found.best(2) == [1, 4]
