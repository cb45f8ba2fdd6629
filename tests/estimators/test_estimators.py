import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import fracdnn
from fracdnn.datasets import make_level_set, make_peaks
from fracdnn.estimators import FractionalClassifier, FractionalRegressor, fitting
from fracdnn.estimators.fitting import merge_repeated
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.training import Objective, Regularization
from tests.plain import PLAIN
from tests.slow import each_once

IRIS = load_iris(return_X_y=True)


def contract():
    """The checks of both estimators, one of them with members; slow are those of a regressor that a classifier has
    too, and one that trains for thousands of iterations, on what is tested here as well.
    """
    seen = {"check_class_weight_classifiers"}
    for estimator in (FractionalClassifier(n_members=2, max_iter=30), FractionalRegressor(n_members=1, max_iter=60)):
        for each, check in estimator_checks_generator(estimator, mark="skip"):
            name = f"{type(estimator).__name__}-{check.func.__name__}-{check.keywords}"
            what = name.partition("-")[2]
            marks = [pytest.mark.slow] if {what, check.func.__name__} & seen else []
            yield pytest.param(each, check, id=name, marks=marks)
            seen.add(what)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(("estimator", "check"), list(contract()))
def test_the_contract_of_scikit_learn(estimator, check):
    check(estimator)


def small(kind=FractionalClassifier, **options):
    return kind(
        **{**PLAIN, "optimizer": "lbfgs", "n_layers": 3, "width": 8, "max_iter": 40, "random_state": 0, **options}
    )


def test_iris_by_cross_validation_in_a_pipeline():
    scores = cross_val_score(
        make_pipeline(StandardScaler(), FractionalClassifier(n_members=2, random_state=0)), *IRIS, cv=5
    )
    assert scores.mean() > 0.94


@pytest.mark.parametrize(("optimizer", "dtype"), each_once(["lbfgs", "bfgs", "adam"], ["float32", "float64"]))
def test_optimizers_dtypes_and_repeatability(optimizer, dtype):
    X, y = make_level_set(200, random_state=0)
    options = {"optimizer": optimizer, "dtype": dtype, "learning_rate_init": 0.02}
    models = [small(**options).fit(X, y) for _ in range(2)]
    first, second = (model.predict_proba(X) for model in models)
    np.testing.assert_array_equal(first, second)
    assert (models[0].predict(X) == y).mean() > 0.9
    assert not np.array_equal(first, small(**{**options, "random_state": 1}).fit(X, y).predict_proba(X))


def test_string_labels_and_probabilities():
    X, y = IRIS
    names = np.array(["a", "b", "c"])[y]
    classifier = small().fit(X, names)
    assert classifier.classes_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(classifier.predict_proba(X).sum(1), 1.0)
    assert classifier.score(X, names) > 0.9


def test_class_weights_are_sample_weights():
    X, y = IRIS
    weighted = small(class_weight={0: 1.0, 1: 5.0, 2: 1.0}).fit(X, y).predict_proba(X)
    by_sample = small().fit(X, y, sample_weight=np.where(y == 1, 5.0, 1.0)).predict_proba(X)
    np.testing.assert_array_equal(weighted, by_sample)
    balanced = small(class_weight="balanced").fit(X, y).predict_proba(X)
    np.testing.assert_allclose(balanced, small().fit(X, y).predict_proba(X), rtol=1e-9)  # the classes are balanced


def test_a_weight_is_a_repetition_to_the_last_bit():
    X, y = make_level_set(60, random_state=0)
    counts = np.random.default_rng(0).integers(0, 4, 60)
    weighted = small().fit(X, y, sample_weight=counts).predict_proba(X)
    repeated = small().fit(X.repeat(counts, 0), y.repeat(counts)).predict_proba(X)
    np.testing.assert_array_equal(weighted, repeated)


def test_merging_keeps_every_sample_and_the_ratios_of_weights():
    X = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0], [1.0, 2.0], [5.0, 5.0]])
    y = np.array([1, 0, 1, 0, 1])
    distinct, labels, weight = merge_repeated(X, y, np.array([1.0, 2.0, 3.0, 4.0, 0.0]))
    assert distinct.tolist() == [[0.0, 1.0], [1.0, 2.0], [1.0, 2.0]]
    assert labels.tolist() == [0, 0, 1]
    assert (8.0 * weight).tolist() == [2.0, 4.0, 4.0]


def test_the_learned_order_is_told():
    fixed, learned = small(order=0.7).fit(*IRIS), small(order=0.7, learn_order=True).fit(*IRIS)
    assert fixed.order_ == 0.7
    assert 0 < learned.order_ < 1
    assert abs(learned.order_ - 0.7) > 1e-4


def test_the_flow_through_the_layers(monkeypatch):
    monkeypatch.setattr(fitting, "CLIP", None)
    flow = small(width=None).fit(*IRIS).states(IRIS[0])
    assert flow.shape == (4, 150, 4)
    standardised = StandardScaler().fit_transform(IRIS[0])
    np.testing.assert_allclose(flow[0].std(0), standardised.std(0), rtol=0.05)


def test_regression_with_one_and_several_outputs():
    X, y = make_peaks(400, random_state=0)
    options = {**PLAIN, "alpha": 1e-4, "max_iter": 60, "random_state": 0}
    regressor = FractionalRegressor(**options).fit(X, y)
    assert regressor.score(X, y) > 0.95
    assert regressor.predict(X).shape == (400,)
    both = FractionalRegressor(**options).fit(X, np.stack([y, 100 - 5 * y], 1))
    assert both.predict(X).shape == (400, 2)
    assert both.score(X, np.stack([y, 100 - 5 * y], 1)) > 0.95
    assert (
        cross_val_score(FractionalRegressor(n_members=2, random_state=0), *load_diabetes(return_X_y=True), cv=3).mean()
        > 0.2
    )


def test_history_and_clone():
    classifier = small().fit(*IRIS)
    assert classifier.n_iter_ == len(classifier.history_.records) == 40
    assert len(classifier.history_.records[0].layer_gradients) == 3
    assert not hasattr(clone(classifier), "network_")


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("order", 0.0, "a number above 0, at most 1"),
        ("order", float("nan"), "a number above 0, at most 1"),
        ("n_layers", True, "a whole number at least 1"),
        ("n_layers", 2.0, "a whole number at least 1"),
        ("optimizer", "newton", "'adam' or 'bfgs' or 'lbfgs'"),
        ("optimizer", ["adam"], "'adam' or 'bfgs' or 'lbfgs'"),
        ("width", 0, "None or a whole number at least 1"),
        ("random_state", "zero", "a whole number, a RandomState or None"),
        ("learn_order", 1, "True or False"),
        ("class_weight", "even", "None or a dict or 'balanced'"),
    ],
)
def test_declared_rules(name, value, rule):
    message = f"{name} must be {rule}, got {value!r}; the default is {getattr(FractionalClassifier(), name)!r}"
    for method in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=re.escape(message)):
            getattr(FractionalClassifier(**{name: value}), method)(*IRIS)


def test_rules_take_numbers_of_numpy():
    numbers = {
        "n_layers": np.int64(2),
        "order": np.float32(0.5),
        "learn_order": np.bool_(True),
        "random_state": np.int64(3),
    }
    fitted = FractionalClassifier(**numbers, max_iter=np.int64(1), n_members=1, verbose=0).fit(*IRIS)
    assert fitted.n_iter_ == 1


@pytest.mark.parametrize("weight", [np.ones((150, 1)), np.ones(149), -np.ones(150), -1.0])
def test_bad_sample_weights(weight):
    message = "sample_weight must hold a number for each of the 150 samples, none negative, got .*; pass an array"
    with pytest.raises(ValueError, match=message):
        small().fit(*IRIS, sample_weight=weight)
    assert np.array_equal(*(small().fit(*IRIS, sample_weight=each).predict_proba(IRIS[0]) for each in (None, 2.0)))


def test_they_are_at_the_front_door():
    assert fracdnn.FractionalClassifier is FractionalClassifier
    assert fracdnn.FractionalRegressor is FractionalRegressor
    with pytest.raises(AttributeError, match="module 'fracdnn' has no attribute 'Nothing'"):
        fracdnn.Nothing  # noqa: B018


@pytest.mark.parametrize("outputs", [0, 1, 2])
def test_repeated_samples_are_merged_as_rows_sort(outputs):
    """As np.unique sorts rows: negative numbers, both zeros, subnormal and very large ones among them."""
    rng = np.random.default_rng(outputs)
    numbers = np.array([-1e308, -2.5, -1.0, -5e-324, -0.0, 0.0, 5e-324, 1e-9, 1.0, 256.0, 1e308])
    X = numbers[rng.integers(0, len(numbers), (400, 2))]
    y = rng.integers(0, 2, 400) if not outputs else numbers[rng.integers(0, 3, (400, outputs))]
    weight = rng.random(400)
    found, target, weights = merge_repeated(X, y, weight)
    both = np.column_stack([X, y.astype(float)])
    expected, first, which = np.unique(both, axis=0, return_index=True, return_inverse=True)
    assert 50 < len(expected) < 400
    np.testing.assert_array_equal(np.column_stack([found, target.astype(float)]), expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(X[first]))  # the first of those that are alike
    ratio = weights / np.bincount(which.reshape(-1), weights=weight)
    np.testing.assert_allclose(ratio, ratio[0])


@pytest.mark.parametrize("kind", [FractionalClassifier, FractionalRegressor])
def test_a_matrix_that_would_fill_the_memory_is_refused(kind):
    X = np.random.default_rng(0).normal(size=(40, 50))
    y = (X[:, 0] > 0).astype(int) if kind is FractionalClassifier else X[:, 0]
    wide = kind(optimizer="bfgs", max_iter=1, random_state=0)
    message = (
        r"optimizer='bfgs' must have at most 2 GiB for its matrix of n × n numbers, got \S+ GiB for n = 4\d,\d\d\d "
        r"parameters in float32; use optimizer='lbfgs' or 'adam', a smaller width or fewer n_layers"
    )
    with pytest.raises(InvalidArgumentError, match=message):
        wide.fit(X, y)
    assert wide.set_params(width=16).fit(X, y).n_iter_ == 1
    assert wide.set_params(width=64, optimizer="lbfgs", n_members=1).fit(X, y).n_iter_ == 1


def test_all_matrices_decay_by_alpha():
    terms = Regularization(decay_output=0.1, decay=0.1)
    assert FractionalClassifier(alpha=0.1)._objective() == Objective("cross_entropy", terms, label_smoothing=0.05)
