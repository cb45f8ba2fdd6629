"""How often predictions of some confidence are right, and the expected calibration error."""

import numpy as np
import pytest

from fracdnn.estimators.reliability import Reliability


def drawn(n=500, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(n_classes, 0.5), n)
    return probabilities, rng.integers(0, n_classes, n)


def by_definition(probabilities, right, bins):
    """Bin by bin, each closed at its upper end."""
    confidence, total = probabilities.max(1), 0.0
    for k in range(bins):
        inside = (confidence > k / bins) & (confidence <= (k + 1) / bins)
        if inside.any():
            total += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return total


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_the_error_is_that_of_the_definition(bins):
    probabilities, y = drawn()
    right = probabilities.argmax(1) == y
    expected = by_definition(probabilities, right, bins)
    assert Reliability.of(probabilities, right, bins).error == pytest.approx(expected, rel=1e-12)


def test_two_bins_by_hand():
    """Four of 0.9 of which three are right, one of 0.6 that is right, and the ends of bins."""
    probabilities = np.array([[0.9, 0.1]] * 4 + [[0.4, 0.6]])
    found = Reliability.of(probabilities, np.array([True, True, True, False, True]))
    assert found.counts.tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 4, 0]
    assert found.hits.tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 3, 0]
    assert found.error == pytest.approx((4 * abs(0.75 - 0.9) + 0.4) / 5)
    ends = np.array([[0.5, 0.5], [0.3, 0.7], [1.0, 0.0]])
    assert np.flatnonzero(Reliability.of(ends, np.ones(3, dtype=bool)).counts).tolist() == [4, 6, 9]


def test_parts_make_the_whole_and_nothing_is_right():
    probabilities, y = drawn()
    right = probabilities.argmax(1) == y
    whole = Reliability.of(probabilities, right)
    parts = Reliability.of(probabilities[:0], right[:0])
    assert parts.error == 0.0
    for part in np.array_split(np.arange(len(y)), 7):
        parts = parts.merged(Reliability.of(probabilities[part], right[part]))
    np.testing.assert_allclose(parts.confidence, whole.confidence, rtol=1e-12)
    assert parts.hits.tolist() == whole.hits.tolist()
