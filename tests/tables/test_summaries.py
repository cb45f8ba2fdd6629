import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fracdnn.tables.summaries import Moments, Quantiles, Tree, median_of

NUMBERS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60)


def in_parts(values, cuts):
    return np.split(values, sorted(cut % (len(values) + 1) for cut in cuts))


def in_a_tree(parts, size):
    tree = Tree()
    for number, part in enumerate(parts):
        tree.add_part(number, Quantiles.of(part, size=size))
    return tree


@settings(max_examples=60, deadline=None)
@given(NUMBERS, st.lists(st.integers(0, 60), max_size=5))
def test_moments_of_parts_are_those_of_all(numbers, cuts):
    values = np.array(numbers)[:, None]
    found = Moments.of(values[:0])
    for part in in_parts(values, cuts):
        found = found.merged(Moments.of(part))
    scale = np.abs(values).max() + 1e-300
    assert found.count == len(values)
    # By fractions: NumPy's squares of the smallest numbers are 0.
    assert abs(found.mean - statistics.mean(numbers)) <= 1e-14 * scale
    assert abs(found.deviation - statistics.pstdev(numbers)) <= 1e-13 * scale


def test_moments_leave_out_missing_numbers_and_do_not_overflow():
    values = np.array([[1.0, 1e200, np.nan], [np.nan, -1e200, np.nan], [4.0, 1e200, np.nan]])
    found = Moments.of(values[:2]).merged(Moments.of(values[2:]))
    assert found.count.tolist() == [2, 3, 0]
    np.testing.assert_allclose(found.mean[:2], [2.5, 1e200 / 3], rtol=1e-15)
    np.testing.assert_allclose(found.deviation[:2], [1.5, 1e200 * math.sqrt(8 / 9)], rtol=1e-14)


def test_small_deviations_around_a_large_mean_are_kept():
    """A sum of squares would have lost them all."""
    values = 1e9 + np.random.default_rng(0).standard_normal((10_000, 1))
    found = Moments.of(values[:0])
    for part in np.array_split(values, 37):
        found = found.merged(Moments.of(part))
    np.testing.assert_allclose(found.deviation, values.std(0), rtol=1e-9)


@settings(max_examples=60, deadline=None)
@given(NUMBERS, st.lists(st.integers(0, 60), max_size=9))
def test_medians_of_few_values_are_exact(numbers, cuts):
    values = np.array(numbers)
    found = in_a_tree(in_parts(values, cuts), 64).root()
    assert found.median() == np.median(values)
    assert found.rank_error == 0


@pytest.mark.parametrize("order", ["random", "sorted", "repeated"])
@pytest.mark.parametrize("parts", [32, 33, 37, 63])
def test_medians_of_many_values_are_within_the_stated_error(order, parts):
    rng, n = np.random.default_rng(1), 40_000
    values = rng.standard_normal(n)
    if order == "sorted":
        values.sort()
    elif order == "repeated":
        values[rng.random(n) < 0.4] = 0.25
    tree = in_a_tree(np.array_split(values, parts), 128)
    found = tree.root()
    median = found.median()
    ranks = np.searchsorted(np.sort(values), median, side="left"), np.searchsorted(np.sort(values), median, "right")
    off = max(0, ranks[0] - n / 2, n / 2 - ranks[1])
    assert off <= found.rank_error + 1
    assert 0 < found.rank_error <= n * (math.ceil(math.log2(parts)) + 1) / (2 * 128)
    held = sum(len(summary.values) for _, _, summary in tree.nodes)
    assert held <= 128 * (math.ceil(math.log2(parts)) + 1)
    assert len(found.values) <= 128
    assert found.weights.sum() == pytest.approx(n, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(1, 4)), min_size=1))
def test_weighted_medians_are_those_of_repeated_numbers(pairs):
    values, counts = (np.array(part, dtype=float) for part in zip(*pairs, strict=True))
    expected = np.median(values.repeat(counts.astype(int)))
    assert median_of(values, counts) == expected
    assert median_of(values, counts * 2.0) == expected
    assert Quantiles.of(values, counts).median() == expected


def test_the_median_of_huge_numbers_is_finite():
    for numbers in ([1e308, 1.7e308], [-1.7e308, 1.7e308], [1.7e308, 1.7e308]):
        values = np.array(numbers)
        expected = values[0] / 2 + values[1] / 2
        assert median_of(values, np.ones(2)) == Quantiles.of(values).median() == expected
