"""ROC: areas by hand, which classes are shown, and notes where there is nothing to see."""

import numpy as np
import pytest

from fracdnn.report.drawings import pictures
from fracdnn.report.importance import Importances
from fracdnn.report.subject import areas_under_roc, subject_of
from fracdnn.report.trust import tiles
from tests.report.samples import _classifier, classified


def ranking(subject):
    nothing = Importances(np.empty(0), np.empty(0), np.empty(0, dtype=int), "not measured")
    return next(each for each in pictures(subject, nothing) if each.heading == "ROC curve")


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
    assert "b 0.833" in "".join(ranking(subject).panels)


def test_of_two_classes_the_rarer_is_shown():
    assert list(areas_under_roc(along("abbab", [0.3, 0.4, 0.5, 0.6, 0.7]))) == [0]


def test_one_class_cannot_be_ranked():
    assert ranking(classified("aaa", "aab")).panels == ()
    assert "nothing to rank" in ranking(classified("aaa", "aab")).caption
    assert "Area under ROC" not in [word for word, _, _ in tiles(classified("aaa", "aab"))]


def test_several_classes_have_a_curve_each():
    subject = classified("aaabbbccc", "aabbbaccb")
    assert list(areas_under_roc(subject)) == [0, 1, 2]
    svg = "".join(ranking(subject).panels)
    assert all(f"{name} {area:.3f}" in svg for name, area in zip("abc", areas_under_roc(subject).values(), strict=True))
