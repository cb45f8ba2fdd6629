"""The lengths that a search tries, where they can be told in advance."""

import math

import pytest

from fracdnn.optim import bfgs


def tried(function, slope):
    lengths = []

    def value(t):
        lengths.append(t)
        return function(t)

    return bfgs.search(value, function(0.0), slope, 0.5), lengths


def test_the_second_length_is_the_minimum_of_a_quadratic():
    found, lengths = tried(lambda t: 1.0 - t + 4.0 * t**2, -1.0)
    assert lengths == pytest.approx([0.5, 0.125], rel=1e-12)
    assert found == lengths[-1]


def test_the_third_length_is_the_minimum_of_a_cubic():
    """1 − t − 5t² + 1000t³ is least at 0.02; the second length is the shortest that is allowed."""
    found, lengths = tried(lambda t: 1.0 - t - 5.0 * t**2 + 1000.0 * t**3, -1.0)
    assert lengths == pytest.approx([0.5, 0.05, 0.02], rel=1e-10)
    assert found == lengths[-1]


def test_no_length_is_more_than_half_the_one_before(monkeypatch):
    monkeypatch.setattr(bfgs, "DECREASE", 0.5)
    found, lengths = tried(lambda t: 1.0 - t + 1.2 * t**2, -1.0)
    assert lengths == [0.5, 0.25]
    assert found == 0.25


def test_where_the_value_is_not_finite_a_tenth_is_tried(monkeypatch):
    monkeypatch.setattr(bfgs, "MAX_TRIALS", 3)
    found, lengths = tried(lambda t: math.inf if t else 0.0, -1.0)
    assert lengths == pytest.approx([0.5, 0.05, 0.005], rel=1e-12)
    assert found is None


def test_a_value_on_the_line_itself_is_accepted(monkeypatch):
    """1 − t + t² is 0.75 at the first length, 0.5, and so is 1 − 0.5 t."""
    monkeypatch.setattr(bfgs, "DECREASE", 0.5)
    found, lengths = tried(lambda t: 1.0 - t + t**2, -1.0)
    assert lengths == [found] == [0.5]


def test_a_value_as_high_as_the_start_is_not_accepted(monkeypatch):
    """For a tiny length the decrease that is asked for rounds to nothing."""
    monkeypatch.setattr(bfgs, "MAX_TRIALS", 2)
    found, lengths = tried(lambda t: 1.0, -1e-30)
    assert len(lengths) == 2
    assert found is None


@pytest.mark.parametrize("start", [0.1, 0.7, 1.3, 7.0, 900.0])
def test_the_third_length_on_a_parabola_is_its_minimum(start):
    """Where the cubic's leading coefficient is nothing but rounding."""
    lengths = []

    def value(t):
        lengths.append(t)
        return start - t + 30.0 * t * t if len(lengths) < 3 else start - 1.0

    bfgs.search(value, start, -1.0, 1.0)
    assert lengths[2] == pytest.approx(1 / 60, rel=1e-9)
