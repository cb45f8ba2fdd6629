from pathlib import Path

import numpy as np
import pytest

from fracdnn.datasets import make_level_set, make_peaks
from fracdnn.exceptions import InvalidArgumentError

PERFUME = Path(__file__).parents[3] / "shared" / "data" / "perfume.csv"
needs_perfume = pytest.mark.skipif(not PERFUME.exists(), reason="the perfume table is not beside the checkout")


def test_level_set():
    X, y = make_level_set(1000, random_state=0)
    assert X.shape == (1000, 2)
    assert X.min() >= 0
    assert X.max() <= 1
    np.testing.assert_array_equal(y, X[:, 0] <= X[:, 1])
    np.testing.assert_array_equal(X, make_level_set(1000, random_state=0)[0])
    assert not np.array_equal(X, make_level_set(1000, random_state=1)[0])


def test_peaks():
    X, values = make_peaks(20_000, random_state=0)
    assert np.abs(X).max() <= 3
    assert values.max() == pytest.approx(8.1, abs=0.1)  # its highest peak and lowest hollow
    assert values.min() == pytest.approx(-6.55, abs=0.1)


def test_bad_counts():
    with pytest.raises(InvalidArgumentError, match="n must be at least 1, got 0"):
        make_level_set(0)
    with pytest.raises(InvalidArgumentError, match="n must be at least 1, got 0"):
        make_peaks(0)
