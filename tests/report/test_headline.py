"""The sentence at the top: counts by hand, and what it says where there is nothing to boast of."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import r2_score

from fracdnn.report.trust import chance, headline, r2_interval, tiles
from tests.report.samples import classified, with_errors


def test_more_than_the_baseline_that_may_be_chance():
    """16 of 20 right; "a" alone is right for 10."""
    subject = classified("a" * 10 + "b" * 10, "a" * 8 + "b" * 2 + "b" * 8 + "a" * 2)
    assert headline(subject) == (
        "Perhaps better than the baseline, but it may be chance: accuracy 0.8 on 20 held-out rows; always answering "
        "“a”, the most frequent class, reaches 0.5."
    )
    # Only the model has 8 right, only the constant answer 2: twice P(at most 2 heads of 10).
    assert chance(subject) == pytest.approx(2 * (1 + 10 + 45) / 1024)


def test_chance_is_not_mentioned_where_it_is_unlikely():
    told = headline(classified("a" * 20 + "b" * 20, "a" * 19 + "b" * 21))
    assert told.startswith("Better than the baseline: accuracy 0.975 on 40 held-out rows; ")


def test_no_better_than_a_constant():
    assert headline(classified("aaab", "aabb")) == (
        "No better than the baseline: accuracy 0.75 on 4 held-out rows; always answering “a”, the most frequent class, "
        "reaches 0.75."
    )


def test_one_class_has_nothing_to_compare_with():
    assert headline(classified("aaaa", "aaab")) == (
        "Nothing to compare with: accuracy 0.75 on 4 held-out rows, which are all of class “a”."
    )


def test_values_beside_their_mean():
    subject = with_errors(np.resize([1.0, -1.0], 100))
    deviation = subject.y.std()
    assert headline(subject) == (
        f"Better than the baseline: RMSE 1 on 100 held-out rows (R² {1 - 1 / deviation**2:.4g}); always answering "
        f"their mean gives {deviation:.4g}."
    )
    found = {word: value for word, value, _ in tiles(subject)}
    assert (found["RMSE"], found["Median error"], found["Mean error"]) == ("1", "1", "1")


def test_values_no_better_than_their_mean():
    assert headline(with_errors(np.full(100, 1e3))).startswith("No better than the baseline: RMSE 1,000 on ")


def test_a_share_of_the_variance_that_chance_may_explain():
    told = headline(with_errors(np.resize([1e3, -1e3], 100)))
    assert told.startswith("Perhaps better than the baseline, but it may be chance: RMSE 1,000 on ")


def test_the_top_tells_no_reason_for_the_end_of_the_training():
    words = [word for word, _, _ in tiles(classified("aabb", "aabb"))]
    assert words == ["Accuracy", "Log-loss", "Area under ROC", "Calibration error", "90% sets", "Held-out rows"]


def test_the_accuracy_has_an_interval():
    """16 of 20, by Wilson's formula with z = 1.96."""
    tile = tiles(classified("a" * 10 + "b" * 10, "a" * 8 + "b" * 2 + "b" * 8 + "a" * 2))[0]
    assert tile == ("Accuracy", "0.8", "95% interval: 0.584 to 0.919")


def test_r2_holds_the_truth_95_times_of_100():
    """Y = x + noise of variance 0.5: R² of the prediction x is 1 − 0.5 / 1.5."""
    rng = np.random.default_rng(0)
    held = []
    for _ in range(600):
        x = rng.standard_normal((200, 1))
        y = x + np.sqrt(0.5) * rng.standard_normal((200, 1))
        low, high = r2_interval(y, x)
        assert (low + high) / 2 == pytest.approx(r2_score(y, x))
        held.append(low <= 2 / 3 <= high)
    assert 0.92 <= np.mean(held) <= 0.97


def test_with_weighted_classes_the_verdict_is_by_the_balanced_accuracy():
    """Recalls of 0.7 and 0.9, and an accuracy below the share of the more frequent class."""
    subject = classified("a" * 100 + "b" * 10, "a" * 70 + "b" * 30 + "b" * 9 + "a")
    assert headline(subject).startswith("No better than the baseline: accuracy 0.7182 on 110 held-out rows; ")
    estimator = copy.copy(subject.estimator)
    estimator.class_weight = "balanced"
    told = headline(replace(subject, estimator=estimator))
    assert told == (
        "Better than the baseline: balanced accuracy 0.8 on 110 held-out rows, since classes are weighted; any "
        "constant answer reaches 0.5."
    )
