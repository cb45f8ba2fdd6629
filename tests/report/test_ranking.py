"""ROC: areas by hand, which classes are shown, and notes where there is nothing to see."""

import numpy as np
import pytest

from fracdnn.report.answers import areas_under_roc, roc_plot
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
    """Of the 2 · 3 pairs of an a and a b, the b comes later in 5."""
    subject = along("aabab", [0.35, 0.42, 0.48, 0.55, 0.62])
    [(k, area)] = areas_under_roc(subject).items()
    assert subject.labels[k] == "b"
    assert area == pytest.approx(5 / 6)
    assert tiles(subject)[2][:2] == ("Area under ROC", "0.8333")
    curve = roc_plot(subject).data[1]
    x, y = (np.array(curve[axis]) for axis in "xy")
    assert np.trapezoid(y, x) == pytest.approx(5 / 6, abs=1e-3)
    assert curve["name"] == "b 0.833"


def test_of_two_classes_the_rarer_is_shown():
    assert list(areas_under_roc(along("abbab", [0.3, 0.4, 0.5, 0.6, 0.7]))) == [0]


def test_one_class_cannot_be_ranked():
    assert "nothing to rank" in roc_plot(classified("aaa", "aab")).note
    assert "Area under ROC" not in [word for word, _, _ in tiles(classified("aaa", "aab"))]


def test_several_classes_have_a_curve_each():
    subject = classified("aaabbbccc", "aabbbaccb")
    assert list(areas_under_roc(subject)) == [0, 1, 2]
    assert [trace["meta"] for trace in roc_plot(subject).data[1:]] == [0, 1, 2]
