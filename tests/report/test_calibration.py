"""Confidence and accuracy: bins and their intervals."""

import pytest
from scipy.stats import binomtest

from fracdnn.report.answers import reliability_plot
from tests.report.samples import classified


def test_bars_are_intervals_of_the_share():
    subject = classified("a" * 40 + "b" * 20, "a" * 30 + "b" * 30)
    dots = reliability_plot(subject).data[1]
    assert dots["customdata"] == [60]
    assert dots["y"] == [pytest.approx(50 / 60, abs=1e-4)]
    ends = binomtest(50, 60).proportion_ci(method="wilson")
    assert dots["y"][0] + dots["error_y"]["array"][0] == pytest.approx(ends.high, abs=1e-4)
    assert dots["y"][0] - dots["error_y"]["arrayminus"][0] == pytest.approx(ends.low, abs=1e-4)
