"""The network in words: its order and layers, how the training ended."""

import numpy as np

from fracdnn import FractionalClassifier
from fracdnn.caputo import memory_weights
from fracdnn.report.network_facts import network_facts, why_ended
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
    """At order 0.5: a_2 = √3 − √2, h_2 = a_1 − a_2, h_1 = 1 − a_1 with a_1 = √2 − 1."""
    found = facts(n_layers=3, order=0.5)
    assert found["last layer keeps"] == "32% of what enters layer 1, 10% of state 1, 59% of state 2"
    assert found["order"] == "0.5, fixed"
    assert found["layers"].startswith("3, of width ")
    assert found["training"] == "2 iterations; reached the limit of epochs"


def test_one_layer_and_order_one():
    assert facts(n_layers=1)["last layer keeps"] == "100% of what enters layer 1"
    assert facts(n_layers=9, order=1.0)["last layer keeps"] == "100% of state 8"


def test_of_many_layers_those_that_weigh_most_are_told():
    found = facts(n_layers=9, order=0.5)
    shares = [each.split("% of ") for each in found["last layer keeps"].split(", ")]
    assert [name for _, name in shares[-4:]] == ["state 6", "state 7", "state 8", "the others"]
    assert len(shares) == 8
    assert abs(sum(int(part) for part, _ in shares) - 100) < 4
    weights = memory_weights(0.5, 9).numpy()
    assert int(shares[-1][0]) == round(100 * np.sort(weights)[:2].sum())


def record(*gradients):
    return Record(1, 1.0, 1.0, list(gradients))


def test_every_end_has_words():
    assert why_ended(History([record(1.0)], "partial")) == "1 iteration of partial_fit"
    assert why_ended(History([record(1.0)], "time limit")) == "1 iteration; reached the time limit"
    assert why_ended(History([], "")) == "0 iterations"
