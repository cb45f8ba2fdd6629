"""May I trust this? Each warning where it is due, with its remedy, and none where it is not."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd

from fracdnn import FractionalClassifier
from fracdnn.report.importance import Importances
from fracdnn.report.subject import subject_of
from fracdnn.report.trust import advice
from fracdnn.training import History
from tests.report.samples import classified, with_errors

NOT_MEASURED = Importances(np.empty(0), np.empty(0), np.empty(0, dtype=int), "not measured")


def warnings_of(subject, columns=()):
    found = advice(subject, NOT_MEASURED, columns)
    assert len(found["What to try next"]) == 1 + len([text for text in found["Warnings"] if "None: " not in text])
    return found["Warnings"]


def test_nothing_to_warn_of():
    assert warnings_of(classified("ab" * 60, "ab" * 60)) == [
        "None: no sign of leaks, ids, rare classes or too few rows."
    ]
    assert len(warnings_of(with_errors(np.resize([1.0, -1.0], 100)))) == 1


def test_few_rows_and_rare_classes():
    """19 of 20, by Wilson's formula."""
    assert warnings_of(classified("a" * 15 + "b" * 5, "a" * 14 + "b" * 6)) == [
        "Few held-out rows: 20, so the accuracy may be anywhere from 0.76 to 0.99.",
        "Rare classes, with fewer than 10 held-out rows: “b”.",
        "The model is not clearly better than a constant answer.",
    ]
    assert warnings_of(with_errors(np.resize([0.1, -0.1], 50)))[0].startswith("Few held-out rows: 50, so R² may ")


def test_a_class_that_training_has_not_seen():
    estimator = classified("ab", "ab").estimator
    subject = subject_of(estimator, np.tile([[8.0, 0, 0], [0, 8.0, 0]], (60, 1)), np.tile(["a", "new"], 60))
    assert "Never in the training rows, so never predicted: “new”." in warnings_of(subject)


def test_columns_left_out_by_the_package_and_ids_in_use():
    rows = [("id", "it is an id, by its name"), ("note", "it was dropped (--drop)")]
    columns = [{"column": name, "kind": "unused", "what became of it": why} for name, why in rows]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"ticket": rng.permutation(200) + 1e6, "age": rng.integers(20, 60, 200), "x": rng.random(200)})
    y = (frame["x"] > 0.5).to_numpy().astype(int)
    estimator = FractionalClassifier(n_members=1, n_layers=3, max_iter=40, random_state=0).fit(frame, y)
    subject = subject_of(estimator, frame, y)
    assert subject.row_name(7) == "7"
    assert warnings_of(subject, columns)[:2] == [
        "Suspected id: “ticket” holds a different whole number in each row.",
        "1 column left out: “id”.",
    ]


def test_outliers_and_a_training_that_was_interrupted():
    errors = np.resize([0.1, -0.1], 150)
    errors[7] = 9.0
    subject = with_errors(errors)
    assert warnings_of(subject) == ["1 outlier in 150 rows: 98.2% of the squared error."]
    subject = replace(subject, estimator=copy.copy(subject.estimator))
    subject.estimator.history_ = History(subject.estimator.history_.records, "interrupted")
    assert warnings_of(subject)[-1] == "Training did not finish: interrupted."
