"""Partial dependence: that of scikit-learn, over numbers with holes and categories, and when there is none."""

import numpy as np
import pandas as pd
import pytest
from sklearn.inspection import partial_dependence

from fracdnn import FractionalClassifier, FractionalRegressor
from fracdnn.report.drawings import _dependence
from fracdnn.report.importance import MOST_VALUES, Importances, dependence, measured
from fracdnn.report.subject import subject_of

OPTIONS = {"n_members": 1, "n_layers": 2, "max_iter": 40, "random_state": 0, "width": 16}


def table(n=240):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.standard_normal(n), "kind": rng.choice(["red", "green", "blue"], n)})
    frame["noise"] = rng.standard_normal(n)
    y = frame["size"] ** 2 + 2 * (frame["kind"] == "red")
    frame.loc[::7, "size"] = np.nan
    return frame, y.to_numpy()


@pytest.fixture(scope="module")
def regression():
    frame, y = table()
    estimator = FractionalRegressor(**OPTIONS).fit(frame, y)
    return estimator, frame, subject_of(estimator, frame, y)


def test_numbers_with_holes_are_those_of_the_table(regression):
    """Each value in place of all cells of the column, the empty ones too, gives the mean of the table's predictions."""
    estimator, frame, subject = regression
    found = dependence(subject, "size", np.arange(len(frame)))
    assert len(found.values) == MOST_VALUES
    known = frame["size"].dropna()
    assert (found.values[0], found.values[-1]) == pytest.approx(tuple(known.quantile([0.02, 0.98])))
    expected = [estimator.predict(frame.assign(size=value)).mean() for value in found.values]
    np.testing.assert_allclose(found.mean[:, 0], expected, rtol=1e-9)


def test_categories_are_those_of_the_table(regression):
    estimator, frame, subject = regression
    found = dependence(subject, "kind", np.arange(len(frame)))
    assert found.names == frame["kind"].value_counts().index.tolist()
    expected = [estimator.predict(frame.assign(kind=name)).mean() for name in found.names]
    np.testing.assert_allclose(found.mean[:, 0], expected, rtol=1e-9)


def test_it_is_what_scikit_learn_finds():
    X = np.random.default_rng(1).integers(0, 6, (120, 3)).astype(float)
    estimator = FractionalClassifier(**OPTIONS).fit(X, (X[:, 0] > X[:, 1]).astype(int))
    subject = subject_of(estimator, X, (X[:, 0] > X[:, 1]).astype(int))
    found = dependence(subject, "feature 1", np.arange(len(X)))
    expected = partial_dependence(estimator, X, [0], method="brute", response_method="predict_proba", kind="average")
    np.testing.assert_array_equal(found.values, expected["grid_values"][0])
    np.testing.assert_allclose(found.mean[:, 1], expected["average"][0], rtol=1e-9)


def test_important_columns_have_a_plot_of_one_scale(regression):
    _, _, subject = regression
    picture = _dependence(subject, measured(subject))
    assert len(picture.panels) >= 2
    svg = "".join(picture.panels)
    assert all(f">{name}</text>" in svg for name in ("size", "kind", "red", "green", "blue"))
    assert "when 200 held-out rows have this value" in picture.caption


def test_without_an_important_column_there_is_a_note(regression):
    _, _, subject = regression
    picture = _dependence(subject, Importances(np.zeros(3), np.ones(3), np.arange(9)))
    assert (picture.caption, picture.panels) == ("No column is clearly important, so there is nothing to show.", ())
