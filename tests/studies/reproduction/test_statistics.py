import math

import numpy as np
import pytest

from reproduction.statistics import difference, holm, ratio, signed_rank_p, t_interval, wilson


def test_signed_ranks_and_holm_by_hand():
    # All of five differences on one side: 2 of 2⁵ sign patterns are as extreme.
    assert signed_rank_p(np.array([1.0, 2.0, 3.0, 4.0, np.inf])) == pytest.approx(2 / 32)
    assert signed_rank_p(np.zeros(4)) == 1.0
    assert signed_rank_p(np.array([1.0, -2.0, np.nan, 3.0])) > 0.3
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]


def test_an_interval_by_hand():
    """1, 2, 3, 4: mean 2.5, deviation √(5/3), and t_{0.975, 3} = 3.182446 from a table."""
    half = 3.182446 * math.sqrt(5 / 3) / 2
    assert t_interval([1, 2, 3, 4]) == pytest.approx((2.5 - half, 2.5 + half), rel=1e-6)
    assert t_interval([5.0]) == (-math.inf, math.inf)


def test_differences_are_taken_pair_by_pair():
    found = difference([2, 4, 6, 8], [1, 2, 3, 4])
    half = 3.182446 * math.sqrt(5 / 3) / 2
    assert (found.mean, found.low, found.high) == pytest.approx((2.5, 2.5 - half, 2.5 + half), rel=1e-6)
    assert found.n == 4
    assert found.p == pytest.approx(2 / 16)  # all of one sign
    assert not found.is_ratio


def test_ratios_are_geometric():
    found = ratio([2.0, 8.0], [1.0, 1.0])
    assert found.mean == pytest.approx(4.0)
    assert found.low * found.high == pytest.approx(16.0)
    assert found.is_ratio
    same = ratio([1.0, 3.0, 5.0], [1.0, 3.0, 5.0])
    assert (same.mean, same.low, same.high, same.p) == (1.0, 1.0, 1.0, 1.0)


def test_a_share_has_wilsons_interval():
    """Against the roots of (p − 3/10)² = z² p(1 − p)/10, and within [0, 1] where nothing or all counts."""
    z2 = 1.959964**2
    roots = np.roots([1 + z2 / 10, -(2 * 0.3 + z2 / 10), 0.3**2])
    assert wilson(3, 10) == pytest.approx(sorted(roots), rel=1e-6)
    assert wilson(0, 10)[0] == pytest.approx(0.0, abs=1e-12)
    assert wilson(10, 10)[1] == pytest.approx(1.0)
