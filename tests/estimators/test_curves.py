"""How a fit went, by the names of scikit-learn's MLP."""

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.neural_network import MLPClassifier

import fracdnn
from fracdnn.estimators import FractionalClassifier, FractionalRegressor, fitting
from tests.plain import PLAIN

X, y = load_iris(return_X_y=True)
KINDS = [FractionalClassifier, FractionalRegressor]
NAMES = ["loss_curve_", "best_loss_", "validation_scores_", "best_validation_score_", "n_iter_", "loss_"]


def small(kind=FractionalClassifier, **options):
    return kind(**{**PLAIN, "n_layers": 2, "width": 8, "max_iter": 12, "random_state": 0, **options})


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("early_stopping", [False, True])
def test_the_names_mean_what_they_mean_in_scikit_learn(early_stopping):
    options = {"max_iter": 12, "early_stopping": early_stopping, "random_state": 0}
    for fitted in (MLPClassifier(**options).fit(X, y), small(**options).fit(X, y)):
        assert len(fitted.loss_curve_) == fitted.n_iter_ == 12
        assert fitted.loss_curve_[-1] == fitted.loss_
        if early_stopping:
            assert len(fitted.validation_scores_) == 12
            assert fitted.best_validation_score_ == max(fitted.validation_scores_)
            assert fitted.best_loss_ is None
        else:
            assert fitted.best_loss_ == min(fitted.loss_curve_)
            assert fitted.validation_scores_ is None
            assert fitted.best_validation_score_ is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["adam", "lbfgs", "bfgs"])
def test_a_higher_score_is_a_lower_loss_of_held_out_samples(kind, optimizer):
    fitted = small(kind, optimizer=optimizer, early_stopping=True).fit(X, y)
    assert fitted.validation_scores_ == [-record.validation_score for record in fitted.history_.records]
    assert fitted.best_validation_score_ == -min(record.validation_score for record in fitted.history_.records)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("early_stopping", [False, True])
def test_files_and_pickles_keep_them(kind, early_stopping, tmp_path):
    fitted = small(kind, early_stopping=early_stopping).fit(X, y)
    loaded, copied = fracdnn.load(fitted.save(tmp_path / "model.fracdnn")), pickle.loads(pickle.dumps(fitted))
    for name in NAMES:
        assert getattr(loaded, name) == getattr(copied, name) == getattr(fitted, name)


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_those_of_the_last_fit_and_there_is_none_before(kind):
    estimator = small(kind, early_stopping=True)
    assert not any(hasattr(estimator, name) for name in NAMES)
    estimator.fit(X, y)
    options = {"classes": [0, 1, 2]} if kind is FractionalClassifier else {}
    estimator.partial_fit(X, y, **options).partial_fit(X, y, **options)
    assert len(estimator.loss_curve_) == estimator.n_iter_ == 2
    assert estimator.validation_scores_ is None
    assert estimator.best_loss_ == min(estimator.loss_curve_)


def test_logarithms_of_probabilities(monkeypatch):
    fitted = small().fit(X, y)
    np.testing.assert_array_equal(fitted.predict_log_proba(X), np.log(fitted.predict_proba(X)))
    monkeypatch.setattr(fitting, "LABEL_SMOOTHING", 0.0)
    monkeypatch.setattr(fitting, "CLIP", None)
    certain = small(alpha=0.0, learning_rate_init=1.0).fit(X, y)
    far = np.vstack([X, 1e6 * X])
    impossible = certain.predict_proba(far) == 0
    assert impossible.any()
    np.testing.assert_array_equal(np.isneginf(certain.predict_log_proba(far)), impossible)
