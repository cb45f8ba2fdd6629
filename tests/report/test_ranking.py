"""ROC and precision–recall: areas by hand, which classes are shown, and notes where there is nothing to see."""

import numpy as np
import pytest

from fracdnn.report.answers import ranked, ranking_plots
from fracdnn.report.subject import subject_of
from fracdnn.report.trust import tiles
from tests.report.samples import _classifier, classified


def along(true, places, n_classes=2):
    """Samples on the way from corner a (place 0) to b (1): the higher the place, the more probable b."""
    estimator, corners = _classifier(n_classes)
    places = np.array(places)[:, None]
    subject = subject_of(estimator, corners[0] * (1 - places) + corners[1] * places, np.array(list(true)))
    assert (np.diff(subject.probabilities[:, 1]) > 0).all()
    return subject


def test_areas_by_hand():
    """Of the 2 · 3 pairs of an a and a b, the b comes later in 5; precision at the hits from the end: 1, 2/3."""
    subject = along("aabab", [0.35, 0.42, 0.48, 0.55, 0.62])
    (found,) = ranked(subject)
    assert subject.labels[found.k] == "b"
    assert found.area == pytest.approx(5 / 6)
    assert found.precision == pytest.approx((1 + 2 / 3) / 2)
    assert tiles(subject)[2][:2] == ("Area under ROC", "0.8333")
    roc, precision = ranking_plots(subject)
    x, y = (np.array(roc.data[1][axis]) for axis in "xy")
    assert np.trapezoid(y, x) == pytest.approx(5 / 6, abs=1e-3)
    assert roc.data[1]["name"] == "b 0.833"
    assert "Chance gives 40.0%" in precision.caption
    assert precision.data[0]["y"] == [0.4, 0.4]


def test_of_two_classes_the_rarer_is_shown():
    assert [each.k for each in ranked(along("abbab", [0.3, 0.4, 0.5, 0.6, 0.7]))] == [0]


def test_perfect_ranks_need_no_curve():
    (roc,) = ranking_plots(along("aab", [0.3, 0.4, 0.6]))
    assert roc.note.endswith("every area under ROC is 1.")


def test_nearly_perfect_ranks_are_told():
    places = np.linspace(0.2, 0.8, 60)
    true = ["a"] * 30 + ["b"] * 30
    true[28], true[29], true[30] = "a", "b", "a"
    (roc,) = ranking_plots(along("".join(true), places))
    assert f"every area under ROC is at least {1 - 1 / 900:.4f}." in roc.note


def test_one_class_cannot_be_ranked():
    (roc,) = ranking_plots(classified("aaa", "aab"))
    assert "nothing to rank" in roc.note
    assert "Area under ROC" not in [word for word, _, _ in tiles(classified("aaa", "aab"))]


def test_several_classes_have_a_curve_each():
    subject = classified("aaabbbccc", "aabbbaccb")
    assert [each.k for each in ranked(subject)] == [0, 1, 2]
    roc, precision = ranking_plots(subject)
    assert [trace["meta"] for trace in roc.data[1:]] == [trace["meta"] for trace in precision.data] == [0, 1, 2]
