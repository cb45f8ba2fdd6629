"""The network in words: its order and layers, how the training ended."""

import numpy as np

from fracdnn import FractionalClassifier
from fracdnn.report.inside import network_facts, why_ended
from fracdnn.report.subject import subject_of
from fracdnn.training import History
from fracdnn.training.records import Record


def facts(**options):
    X = np.random.default_rng(0).standard_normal((40, 2))
    y = (X[:, 0] > 0).astype(int)
    options = {"n_members": 1, "max_iter": 2, "random_state": 0, "early_stopping": False, **options}
    subject = subject_of(FractionalClassifier(**options).fit(X, y), X, y)
    return network_facts(subject)


def test_the_network_is_described():
    found = facts(n_layers=3, order=0.5)
    assert found["order"] == "0.5, fixed"
    assert found["layers"].startswith("3, of width ")
    assert found["training"] == "2 iterations; reached the limit of epochs"


def record(*gradients):
    return Record(1, 1.0, 1.0, list(gradients))


def test_every_end_has_words():
    assert why_ended(History([record(1.0)], "partial")) == "1 iteration of partial_fit"
    assert why_ended(History([record(1.0)], "time limit")) == "1 iteration; reached the time limit"
    assert why_ended(History([], "")) == "0 iterations"
