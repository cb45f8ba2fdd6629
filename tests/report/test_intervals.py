"""Intervals of scores: published values, and how often they hold the truth."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import r2_score

from fracdnn.report.intervals import r2_interval, share_interval


@pytest.mark.parametrize(("hits", "n"), [(0, 10), (8, 10), (10, 10), (311, 400)])
def test_shares_are_those_of_scipy(hits, n):
    expected = binomtest(hits, n).proportion_ci(method="wilson")
    assert share_interval(np.array(hits), np.array(n)) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_r2_holds_the_truth_95_times_of_100():
    """Y = x + noise of variance 0.5: R² of the prediction x is 1 − 0.5 / 1.5."""
    rng = np.random.default_rng(0)
    held = []
    for _ in range(600):
        x = rng.standard_normal((200, 1))
        y = x + np.sqrt(0.5) * rng.standard_normal((200, 1))
        low, high = r2_interval(y, x)
        assert (low + high) / 2 == pytest.approx(r2_score(y, x))
        held.append(low <= 2 / 3 <= high)
    assert 0.92 <= np.mean(held) <= 0.97
