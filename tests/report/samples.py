"""Estimators whose answers are known, to choose samples by: blobs far apart, and a value with errors put on it."""

from functools import cache

import numpy as np
from sklearn.datasets import make_blobs

from fracdnn import FractionalClassifier, FractionalRegressor
from fracdnn.report.subject import subject_of


@cache
def _classifier(n_classes):
    """Classes "a", "b" … at corners that no training misses."""
    corners = np.array([[8.0, 0, 0], [0, 8, 0], [0, 0, 8], [-8, 0, 0], [0, -8, 0]])[:n_classes]
    X, y = make_blobs([40] * n_classes, centers=corners, cluster_std=0.3, random_state=0)
    options = {"n_members": 1, "n_layers": 3, "max_iter": 60, "random_state": 0, "width": 8}
    return FractionalClassifier(**options).fit(X, np.array(list("abcde"))[y]), corners


def classified(true, told):
    """A subject with a sample for each letter of `true`, which the classifier takes for that of `told`."""
    estimator, corners = _classifier(max(2, len(set(true + told))))
    X = corners[["abcde".index(letter) for letter in told]]
    subject = subject_of(estimator, X, np.array(list(true)))
    assert subject.predicted.tolist() == list(told)
    return subject


@cache
def _regressor():
    X = np.random.default_rng(0).standard_normal((200, 3))
    options = {"n_members": 1, "n_layers": 3, "max_iter": 30, "random_state": 0, "width": 8}
    return FractionalRegressor(**options).fit(X, 5 * X[:, 0]), X


def with_errors(errors):
    """A subject whose observed values are the predicted ones and these errors."""
    estimator, X = _regressor()
    X = X[: len(errors)]
    return subject_of(estimator, X, estimator.predict(X) + errors)
