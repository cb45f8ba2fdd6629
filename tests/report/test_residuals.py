"""Residuals and outliers, by errors that were put on predictions."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from fracdnn.report.drawings import _predictions
from fracdnn.report.trust import deviations, outlier_table, outlier_weight, outliers
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
    assert outlier_weight(subject) == pytest.approx(1e4 / (1e4 + (ERRORS[:-1] ** 2).sum()))
    assert "off by less than 1, nine in ten by less than 2." in _predictions(subject, None).caption
    headings, row = outlier_table(subject)
    assert (row[0], row[3], row[4]) == ("11", "100", f"{100 / 1.4826:.3g}")
    assert headings == ["row", "observed", "predicted", "residual", "robust deviations"]
    named = outlier_table(replace(subject, ids=[f"C{i}" for i in range(11)]))
    assert (named[0][0], named[1][0]) == ("row id", "C10")


def test_without_outliers_none_is_listed():
    assert outlier_table(with_errors(ERRORS[:-1])) == []


def test_far_values_do_not_squeeze_the_others():
    errors = np.zeros(150)
    errors[7] = 1e6
    assert "1 dot far from the others is outside." in _predictions(with_errors(errors), None).caption
