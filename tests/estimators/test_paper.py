"""What the paper's user asks of an estimator: its training, its regularisation, and stencils for K."""

from itertools import product

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import fracdnn
from fracdnn.datasets import make_level_set
from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.samples import merge_repeated
from fracdnn.estimators.streamed import fit_classifier
from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import MiniBatchTraining, Objective, Regularization, Standardization, Task
from tests.plain import PLAIN
from tests.slow import slow_but
from tests.training.pieces import Pieces

KINDS = [FractionalClassifier, FractionalRegressor]
# A column of the paper's Table 2, as far as an estimator goes along with it.
TABLE = {
    **{"solver": "paper", "n_batches": 6, "max_iter": 30, "n_layers": 5, "order": 0.1, "step_size": 0.2, "tol": 1e-6},
    **{"width": None, "bias": "scalar", "activation": "tanh", "dtype": "float64", **PLAIN},
    **{"alpha": 0.0, "alpha_output": 1e-1, "alpha_smooth": 1e2, "alpha_bias": 1e-2},
}


def level_sets(kind=FractionalClassifier, n=300):
    X, y = make_level_set(n, random_state=0)
    return X, y if kind is FractionalClassifier else y + 0.1 * X[:, 0]


def small(kind=FractionalClassifier, **options):
    given = {
        "solver": "paper",
        "n_batches": 3,
        "max_iter": 5,
        "n_layers": 3,
        "width": 4,
        "random_state": 0,
        "clip": None,
    }
    return kind(**{**given, "n_members": 1, "n_bins": 0, "early_stopping": False, "alpha_smooth": 0.1, **options})


def test_the_papers_training_is_that_of_the_paper():
    """To the bit what its loop does with its network, on features scaled as estimators scale them."""
    X, y = level_sets()
    found = FractionalClassifier(**TABLE, label_smoothing=0.0, random_state=np.random.RandomState(5)).fit(X, y)
    seed = np.random.RandomState(5).randint(2**31 - 1)
    generator = torch.Generator().manual_seed(int(seed))
    options = {"n_layers": 5, "order": 0.1, "step_size": 0.2, "bias": "scalar"}
    net = FractionalNetwork(2, 2, activate_opening=True, generator=generator, **options).double()
    x, target, weight = (torch.from_numpy(part) for part in merge_repeated(X, y, np.ones(len(X)))[:3])
    terms = Regularization(class_map=1e-1, operator=1e2, bias=1e-2)
    scaled = Standardization.of(x, weight)(x)
    task = Task(net, Objective(regularization=terms), scaled, target, weight, generator)
    history = MiniBatchTraining(6, 30).fit(task)
    assert [record.loss for record in found.history_.records] == [record.loss for record in history.records]
    for mine, theirs in zip(found.network_.parameters(), net.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert found.n_iter_ <= 180
    assert found.score(X, y) > 0.95


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"laplacian": "matrix", "alpha_bias": 0.1},
        {"operator": "nine-point", "grid_shape": (2, 2)},
        {"operator": "five-point", "grid_shape": [1, 2], "width": None, "solver": "lbfgs"},
        {"operator": "five-point", "grid_shape": (4, 1), "solver": "adam", "n_members": 3, "early_stopping": True},
        {"n_members": 2, "early_stopping": True, "n_iter_no_change": 2},
    ],
    ids=str,
)
def test_fits_learn_and_repeat(kind, dtype, options):
    X, y = level_sets(kind)
    first, second = (small(kind, dtype=dtype, **options).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    assert first.score(X, y) > (0.8 if kind is FractionalClassifier else 0.4)
    assert first.network_.architecture.operator == ("stencil" if "operator" in options else "dense")


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_copied_and_searched(kind):
    given = small(kind, operator="five-point", grid_shape=(2, 2), laplacian="time", alpha_output=0.1)
    again = clone(given)
    assert again.get_params() == given.get_params()
    assert again.get_params()["grid_shape"] == (2, 2)
    X, y = level_sets(kind, 60)
    tried = [{"operator": ["dense"], "grid_shape": [None]}, {"operator": ["nine-point"]}]
    search = GridSearchCV(given, [{"n_batches": [1, 2], **each} for each in tried], cv=2).fit(X, y)
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_defaults_are_what_they_were():
    """No term of the paper's, no stencil, and the network and objective of before."""
    estimator = FractionalClassifier(random_state=0)
    terms = Regularization(class_map=3e-4, decay=3e-4)
    assert estimator._objective() == Objective("cross_entropy", terms, label_smoothing=0.05)
    assert estimator._network_options()["operator"] == "dense"
    X, y = level_sets(n=40)
    plain = FractionalNetwork(2, 2, n_layers=3, order=0.5, width=64, step_size=0.5, activation="silu", bias="vector")
    fitted = FractionalClassifier(random_state=0, max_iter=1, n_bins=0).fit(X, y)
    assert fitted.network_.options == {**plain.options, "activate_opening": True}


@pytest.mark.parametrize(
    ("name", "value"), [("alpha_output", 1.0), ("alpha_smooth", 1.0), ("alpha_bias", 1.0), ("laplacian", "matrix")]
)
@pytest.mark.parametrize("solver", ["paper", "lbfgs", "adam"])
def test_every_weight_counts(solver, name, value):
    X, y = level_sets(n=60)
    options = {"solver": solver, "n_members": 2, "bias": "vector", "early_stopping": True}
    without = small(**options).fit(X, y).decision_function(X)
    assert not np.array_equal(small(**{**options, name: value}).fit(X, y).decision_function(X), without)


def test_the_output_maps_decay_is_alpha_unless_it_is_given():
    X, y = level_sets(n=60)
    same, other = ({"alpha": 0.1, "alpha_output": value} for value in (0.1, 0.0))
    expected = small(alpha=0.1).fit(X, y).decision_function(X)
    np.testing.assert_array_equal(small(**same).fit(X, y).decision_function(X), expected)
    assert not np.array_equal(small(**other).fit(X, y).decision_function(X), expected)


@pytest.mark.parametrize("n_members", [1, 2])
def test_a_cut_training_of_the_paper_goes_on_to_the_same_bits(n_members, tmp_path):
    X, y = level_sets(n=80)
    options = {"n_members": n_members, "n_batches": 4, "checkpoint_every": 1}
    whole = small(**options, checkpoint=tmp_path / "whole.ckpt").fit(X, y)
    path = tmp_path / "cut.ckpt"
    small(**{**options, "n_batches": 2}, checkpoint=path).fit(X, y)
    resumed = small(**options, checkpoint=path, resume=True).fit(X, y)
    np.testing.assert_array_equal(resumed.decision_function(X), whole.decision_function(X))
    assert resumed.n_iter_ == whole.n_iter_ == 20


@pytest.mark.parametrize(
    ("stencil", "ending"),
    slow_but(
        [("five-point", ".onnx"), ("nine-point", ".pt2")], product(("five-point", "nine-point"), (".pt2", ".onnx"))
    ),
)
def test_stencils_are_exported(stencil, ending, tmp_path):
    X, y = level_sets(n=60)
    fitted = small(operator=stencil, width=6, grid_shape=(2, 3)).fit(X, y)
    path = fitted.export(tmp_path / f"model{ending}")
    if ending == ".pt2":
        found = torch.export.load(path).module()(torch.from_numpy(X.astype(np.float32))).detach().numpy()
    else:
        runtime = pytest.importorskip("onnxruntime", reason="runs the exported model")
        session = runtime.InferenceSession(str(path))
        (found,) = session.run(None, {session.get_inputs()[0].name: X.astype(np.float32)})
    np.testing.assert_allclose(found, fitted.predict_proba(X.astype(np.float32)), rtol=1e-6, atol=1e-6)


def test_a_loaded_model_with_stencils_learns_on(tmp_path):
    X, y = level_sets(n=60)
    fitted = small(operator="five-point", grid_shape=(2, 2), warm_start=True).fit(X, y)
    again = fracdnn.load(fitted.save(tmp_path / "model.fracdnn"))
    assert again.get_params()["grid_shape"] == (2, 2)
    assert again.set_params(max_iter=3).fit(X, y).loss_ < fitted.loss_ + 0.1
    with pytest.raises(ValueError, match=r"grid_shape must be \[2, 2\] as in the fit before with warm_start=True"):
        again.set_params(grid_shape=(4, 1)).fit(X, y)
    for other, shape in (("nine-point", (2, 2)), ("dense", None)):
        with pytest.raises(ValueError, match=f"^operator must be 'five-point' as in the fit before .* got '{other}'"):
            again.set_params(operator=other, grid_shape=shape).fit(X, y)


BAD = [
    (
        {"operator": "five-point"},
        "grid_shape must be two whole numbers above 0 whose product is the width 4 where K is a stencil, got None",
    ),
    ({"operator": "five-point", "grid_shape": (2, 3)}, r"whose product is the width 4 .*got \[2, 3\]"),
    ({"operator": "five-point", "grid_shape": (2, "two")}, r"grid_shape must be two whole numbers .*got \[2, 'two'\]"),
    (
        {"operator": "nine-point", "grid_shape": (2, 2), "laplacian": "matrix"},
        "laplacian must be 'time' for stencils, got 'matrix'",
    ),
    ({"grid_shape": (2, 2)}, r"grid_shape must be None with operator='dense', got \(2, 2\); .*operator='five-point'"),
    ({"operator": "stencil"}, "The 'operator' parameter of FractionalClassifier must be a str among"),
    ({"grid_shape": 4}, "The 'grid_shape' parameter of FractionalClassifier must be"),
    ({"n_batches": 0}, "The 'n_batches' parameter of FractionalClassifier must be"),
    ({"alpha_smooth": -1.0}, "The 'alpha_smooth' parameter of FractionalClassifier must be"),
    ({"laplacian": "space"}, "The 'laplacian' parameter of FractionalClassifier must be"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options).fit(*level_sets(n=40))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", ["paper", "bfgs"])
def test_a_matrix_that_would_fill_the_memory_is_refused(kind, solver):
    X, y = level_sets(kind, n=40)
    X = np.hstack([X, np.random.default_rng(0).normal(size=(40, 48))])
    wide = kind(solver=solver, max_iter=1, n_batches=1, random_state=0)
    message = (
        rf"solver='{solver}' must have at most 2 GiB for its matrix of n × n numbers, got \S+ GiB for n = 4\d,\d\d\d "
        r"parameters in float32; use solver='lbfgs' or 'adam', a smaller width, fewer n_layers or n_bins=0"
    )
    with pytest.raises(InvalidArgumentError, match=message):
        wide.fit(X, y)
    assert wide.set_params(n_bins=0, width=16).fit(X, y).n_iter_ == 1
    assert wide.set_params(n_bins="auto", width=64, solver="lbfgs", n_members=1).fit(X, y).n_iter_ == 1


def test_samples_in_pieces_are_not_for_the_papers_training():
    X, y = level_sets(n=40)
    samples = Pieces(torch.from_numpy(X), torch.from_numpy(y), None, [20, 20])
    scale = Standardization.of(torch.from_numpy(X))
    with pytest.raises(
        InvalidArgumentError, match="solver must be one of 'adam', 'lbfgs', 'bfgs' for samples in pieces"
    ):
        fit_classifier(small(), samples, np.array([0, 1]), np.bincount(y), scale)
