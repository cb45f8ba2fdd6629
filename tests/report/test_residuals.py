"""Residuals and outliers, by errors that were put on predictions."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from fracdnn.report.answers import deviations, outliers, prediction_plot
from tests.report.samples import with_errors

# Half of the distances from the median 0 are below 1, as of a normal distribution of deviation 1.4826.
ERRORS = np.array([-2.0, -1, -1, -0.5, 0, 0, 0.5, 1, 1, 2, 100.0])


def test_deviations_by_hand():
    left = np.array([[-1.0], [0], [1], [2], [30]])
    np.testing.assert_allclose(deviations(left)[:, 0], np.array([2, 1, 0, 1, 29]) * norm.ppf(0.75))
    assert deviations(np.ones((4, 1))).tolist() == [[0], [0], [0], [0]]
    assert deviations(np.array([[0.0], [0], [0], [4]])).max() == pytest.approx(4 / np.std([0, 0, 0, 4]))


def test_the_outlier_is_found_told_and_listed():
    subject = with_errors(ERRORS)
    assert outliers(subject).ravel().tolist() == [False] * 10 + [True]
    plot = prediction_plot(subject)
    observed, predicted = (np.array(plot.data[1][axis]) for axis in "xy")
    np.testing.assert_allclose(observed - predicted, ERRORS, atol=1e-3)
    weight, without = 1e4 / (1e4 + (ERRORS[:-1] ** 2).sum()), np.sqrt((ERRORS[:-1] ** 2).mean())
    assert f"1 outlier (9.1%), more than 3.5 robust deviations from the median, makes up {weight:.1%}" in plot.caption
    assert f"without it the root mean square error is {without:.3g}." in plot.caption
    assert "off by less than 1, nine in ten by less than 2." in plot.caption
    headings, row = plot.table
    assert (row[0], row[3], row[4]) == ("11", "100", f"{100 / 1.4826:.3g}")
    assert headings == ["row", "observed", "predicted", "residual", "robust deviations"]
    named = prediction_plot(replace(subject, ids=[f"C{i}" for i in range(11)]))
    assert (named.table[0][0], named.table[1][0], named.data[1]["text"][10]) == ("row id", "C10", "C10")
    colors = plot.data[1]["marker"]["color"]
    assert colors[-1] not in colors[:-1]


def test_without_outliers_none_is_listed():
    plot = prediction_plot(with_errors(ERRORS[:-1]))
    assert plot.table is None
    assert "No residual is more than 3.5 robust deviations from the median." in plot.caption


def test_far_values_do_not_squeeze_the_others():
    errors = np.zeros(150)
    errors[7] = 1e6
    plot = prediction_plot(with_errors(errors))
    low, high = plot.layout["yaxis"]["range"]
    assert high - low < 1e3
    assert "1 dot far from the others is outside the plot." in plot.caption
