"""Intervals, quantiles and sets hold what they are to hold, on data whose noise is known."""

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

import fracdnn
from fracdnn import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.calibration import MOST_SCORES, Calibration
from fracdnn.exceptions import InvalidArgumentError


def drawn(n, rng):
    X = rng.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) + (0.1 + 0.5 * np.abs(X[:, 0])) * rng.standard_normal(n)


@pytest.fixture(scope="module")
def regressor():
    return FractionalRegressor(random_state=0, width=32, max_iter=40).fit(*drawn(800, np.random.default_rng(0)))


def test_intervals_hold_their_share_and_are_wide_where_noise_is(regressor, tmp_path):
    X, y = drawn(4000, np.random.default_rng(1))
    values, ends = regressor.predict(X, interval=0.9)
    assert ends.shape == (4000, 2)
    assert np.array_equal(values, regressor.predict(X))
    inside = (y >= ends[:, 0]) & (y <= ends[:, 1])
    # The binomial interval of what they hold must meet 89 to 92 %; the theorem alone promises 80 %.
    held = binomtest(int(inside.sum()), len(y)).proportion_ci(0.999)
    assert held.high > 0.89
    assert held.low < 0.92
    width, far = ends[:, 1] - ends[:, 0], np.abs(X[:, 0])
    assert width[far > 1.8].mean() > 3 * width[far < 0.2].mean()
    low, middle, high = regressor.predict_quantiles(X, [0.05, 0.5, 0.95]).T
    assert np.array_equal(np.column_stack([low, high]), ends)
    assert abs(float((y < middle).mean()) - 0.5) < 0.06
    again = fracdnn.load(regressor.save(tmp_path / "m.fracdnn"))
    assert np.array_equal(again.predict(X, interval=0.9)[1], ends)


def test_levels_that_the_held_out_rows_cannot_tell_are_infinite(regressor):
    X, _ = drawn(3, np.random.default_rng(2))
    n = regressor.calibration_.n
    with pytest.warns(UserWarning, match=f"an interval of 0.9999 takes 19,999 held-out rows, got {n}: its ends are"):
        assert np.isinf(regressor.predict(X, interval=0.9999)[1]).all()
    assert np.isfinite(regressor.predict(X, interval=1 - 2 / (n + 1))[1]).all()
    with pytest.warns(UserWarning, match="infinite"):
        assert np.isinf(regressor.predict(X, interval=1 - 2 / (n + 1.5))[1]).all()


def test_sets_hold_their_share():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3600, 2))
    y = (X[:, 0] + rng.logistic(size=3600) * 0.7 > 0).astype(int) + (X[:, 1] > 1.0)
    classifier = FractionalClassifier(random_state=0, width=16, max_iter=30).fit(X[:600], y[:600])
    sets = classifier.predict_sets(X[600:], 0.9)
    held = binomtest(int(sets[np.arange(3000), y[600:]].sum()), 3000).proportion_ci(0.999)
    assert held.high > 0.88
    assert held.low < 0.93
    assert sets[np.arange(3000), classifier.predict_proba(X[600:]).argmax(1)].all()
    assert 1.0 < sets.sum(1).mean() < 2.5


def test_weights_are_repetitions_and_many_scores_are_thinned():
    scores, weight = torch.arange(5.0, dtype=torch.float64)[:, None], torch.tensor([1.0, 1.0, 1.0, 1.0, 6.0])
    found = Calibration.of([scores], [weight])
    assert len(found.scores[0]) == 5
    assert found.scores[0][:, 0].tolist() == [0, 2, 4, 4, 4]
    many = Calibration.of([torch.randn(50_000, 1, dtype=torch.float64)], [torch.ones(50_000)])
    assert len(many.scores[0]) == MOST_SCORES
    assert abs(float(many.scores[0][MOST_SCORES // 2, 0])) < 0.02


def test_without_held_out_rows_there_are_none(regressor):
    X, y = drawn(40, np.random.default_rng(0))
    bare = FractionalRegressor(random_state=0, early_stopping=False, n_members=1, max_iter=2).fit(X, y)
    with pytest.raises(InvalidArgumentError, match="interval must go with a model that held samples out in fit"):
        bare.predict(X, interval=0.9)
    with pytest.raises(InvalidArgumentError, match=r"interval must hold numbers between 0 and 1, got 90; such as 0\.9"):
        regressor.predict(X, interval=90)
    for quantiles in ([], None, "a", [0.1, "0.9"]):
        with pytest.raises(InvalidArgumentError, match="quantiles must hold numbers between 0 and 1, got "):
            regressor.predict_quantiles(X, quantiles)
