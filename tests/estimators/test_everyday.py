"""What users hand in and expect back: tables, tensors, parts of the data, bars, checkpoints, bad data."""

import os
import signal
import subprocess
import sys
import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.sparse import coo_array, csc_matrix, csr_array
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fracdnn.container import read_document
from fracdnn.estimators import FractionalClassifier, FractionalRegressor, fitting, recipe
from fracdnn.exceptions import FileContentError
from tests.plain import PLAIN

X, y = load_iris(return_X_y=True)
COLUMNS = ["sepal length", "sepal width", "petal length", "petal width"]
KINDS = [FractionalClassifier, FractionalRegressor]


def small(kind=FractionalClassifier, **options):
    return kind(
        **{**PLAIN, "optimizer": "lbfgs", "n_layers": 3, "width": 8, "max_iter": 30, "random_state": 0, **options}
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_bring_their_names(frame, kind):
    table = frame(dict(zip(COLUMNS, X.T, strict=True)))
    estimator = small(kind).fit(table, y)
    assert estimator.feature_names_in_.tolist() == COLUMNS
    np.testing.assert_array_equal(estimator.predict(table), small(kind).fit(X, y).predict(X))
    with pytest.raises(ValueError, match="feature names should match those that were passed during fit"):
        estimator.predict(frame(dict(zip(COLUMNS[::-1], X.T, strict=True))))
    pipeline = make_pipeline(StandardScaler(), small(kind)).set_output(transform="pandas")
    assert pipeline.fit(table, y).predict(table).shape == (150,)


def test_series_of_text_are_labels():
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    for labels in (pd.Series(names), pl.Series(names), names.tolist()):
        assert small().fit(X, labels).classes_.tolist() == ["setosa", "versicolor", "virginica"]


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_go_in_and_arrays_come_out(kind):
    expected = small(kind).fit(X, y, sample_weight=y + 1.0).predict(X)
    tensors = [torch.tensor(X, requires_grad=True), torch.tensor(y), torch.tensor(y + 1.0)]
    estimator = small(kind).fit(tensors[0], tensors[1], sample_weight=tensors[2])
    found = estimator.predict(tensors[0])
    assert isinstance(found, np.ndarray)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [csr_array, csc_matrix, coo_array])
def test_sparse_features_are_those_with_their_zeros(kind, sparse, monkeypatch):
    monkeypatch.setattr(
        "fracdnn.estimators.estimator.ROWS_AT_A_TIME", 40
    )  # so that predictions are made in four pieces
    full = np.where(X > 2, X, 0.0)
    estimator, expected = small(kind).fit(sparse(full), y), small(kind).fit(full, y)
    assert estimator.n_features_in_ == 4
    np.testing.assert_array_equal(estimator.predict(sparse(full)), expected.predict(full))
    np.testing.assert_array_equal(estimator.predict(full), expected.predict(sparse(full)))
    np.testing.assert_array_equal(estimator.states(sparse(full)), expected.states(full))
    options = {"classes": [0, 1, 2]} if kind is FractionalClassifier else {}
    estimator.partial_fit(sparse(full), y, **options)
    expected.partial_fit(full, y, **options)
    np.testing.assert_array_equal(estimator.predict(full), expected.predict(full))
    with pytest.raises(ValueError, match="X has 3 features, but"):
        estimator.predict(sparse(full[:, :3]))


def test_predictions_hold_only_a_piece_of_sparse_features_with_their_zeros():
    """A hundred thousand rows of two thousand features: 1.6 GB with the zeros of all, 260 MB with those of a piece."""
    columns, rows = np.arange(100_000) % 2000, np.arange(100_000)
    many = csr_array((np.ones(100_000), (rows, columns)), shape=(100_000, 2000))
    estimator = small(FractionalRegressor, max_iter=1, width=2, n_layers=1).fit(many[:20], np.arange(20))
    tracemalloc.start()
    estimator.predict(many)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 800e6


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize("several", [np.asarray, pd.DataFrame, csr_array, np.ndarray.tolist, torch.tensor])
def test_several_labels_for_a_sample_are_refused(several, method):
    indicators = np.eye(3, dtype=int)[y]
    options = {"classes": [0, 1]} if method == "partial_fit" else {}
    rule = r"y must hold one label for each sample, got shape \(150, 3\); FractionalRegressor takes several outputs"
    with pytest.raises(ValueError, match=rule):
        getattr(small(), method)(X, several(indicators), **options)
    by_label = MultiOutputClassifier(small(max_iter=5)).fit(X, indicators)
    assert by_label.predict(X).shape == (150, 3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", KINDS)
def test_data_on_a_gpu(kind, tmp_path):
    on_gpu = [torch.tensor(X, device="cuda"), torch.tensor(y, device="cuda")]
    estimator = small(kind, dtype="float64").fit(*on_gpu)
    assert next(estimator.network_.parameters()).is_cuda  # device="auto"
    found = estimator.predict(on_gpu[0])
    assert isinstance(found, np.ndarray)
    on_cpu = small(kind, dtype="float64", device="cpu").fit(X, y)
    np.testing.assert_allclose(found, on_cpu.predict(X), rtol=1e-5, atol=1e-5)
    loaded = kind.load(estimator.save(tmp_path / "model.fracdnn"))
    np.testing.assert_array_equal(loaded.predict(X), found)
    resumed = small(kind, checkpoint_path=tmp_path / "run.ckpt", resume=True)
    np.testing.assert_array_equal(resumed.fit(*on_gpu).predict(X), resumed.fit(*on_gpu).predict(X))
    assert estimator.export(tmp_path / "model.pt2").exists()
    assert next(estimator.network_.parameters()).is_cuda


@pytest.mark.parametrize("kind", KINDS)
def test_bad_data_gets_the_usual_messages(kind):
    infinite = X.copy()
    infinite[3, 2] = np.inf
    with pytest.raises(ValueError, match="Input X contains infinity or a value too large for dtype"):
        small(kind).fit(infinite, y)
    with pytest.raises(ValueError, match="Found array with 0 sample"):
        small(kind).fit(X[:0], y[:0])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        small(kind).fit(X, y[:-1])
    with pytest.raises(ValueError, match=r"sample_weight must hold .*, none negative, got -1.0"):
        small(kind).fit(X, y, sample_weight=-np.ones(150))
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        small(kind).predict(X)
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        small(kind).states(X)


@pytest.mark.parametrize("kind", KINDS)
def test_little_data_is_fitted(kind):
    one = small(kind).fit(X[:1], y[:1])
    assert one.predict(X[:1]) == y[:1]
    constant = small(kind).fit(np.column_stack([X, np.full(150, 3.7)]), y)
    assert np.isfinite(constant.predict(np.column_stack([X, np.full(150, 5.0)]))).all()
    single = small(kind).fit(X, np.ones(150, dtype=int))
    np.testing.assert_allclose(single.predict(X), 1, atol=0.01)


def test_partial_fit_learns_from_parts():
    options = {"learning_rate_init": 0.01, "batch_size": 16}
    classifier = small(**options)
    shuffled = np.random.default_rng(0).permutation(150)
    for _ in range(15):
        for part in np.array_split(shuffled, 3):
            classifier.partial_fit(X[part], y[part], classes=[0, 1, 2])
    assert classifier.score(X, y) > 0.94
    assert classifier.n_iter_ == 45
    regressor = small(FractionalRegressor, **options)
    for _ in range(30):
        for part in np.array_split(shuffled, 3):
            regressor.partial_fit(X[part], X[part][:, [2, 3]])
    assert regressor.score(X, X[:, [2, 3]]) > 0.95


def test_partial_fit_over_pieces_reaches_what_memory_does():
    random = np.random.default_rng(0)
    points = random.normal(size=(4000, 5))
    labels = (points[:, 0] * points[:, 1] + points[:, 2] > 0).astype(int)
    rest = points[2000:], labels[2000:]
    options = {"width": 8, "n_layers": 5, "batch_size": 100, "learning_rate_init": 0.01, "random_state": 0, **PLAIN}
    whole = FractionalClassifier(max_iter=12, **options).fit(points[:2000], labels[:2000])
    by_part = FractionalClassifier(**options)
    for begin in 12 * [0, 500, 1000, 1500]:
        by_part.partial_fit(points[begin : begin + 500], labels[begin : begin + 500], classes=[0, 1])
    scores = [whole.score(*rest), by_part.score(*rest)]
    assert min(scores) > 0.95
    assert max(scores) - min(scores) < 0.015


def test_every_way_to_fit_refuses_weights_of_unknown_classes():
    for fit in (lambda c: c.fit(X, y), lambda c: c.partial_fit(X, y, classes=[0, 1, 2])):
        with pytest.raises(ValueError, match=r"The classes, \[1, 2\], are not in class_weight"):
            fit(small(class_weight={0: 2.0, 7: 1.0}))


def test_records_of_partial_fit_have_the_gradient_of_all_parameters():
    classifier = small().partial_fit(X, y, classes=[0, 1, 2])
    whole = torch.nn.utils.get_total_norm([each.grad for each in classifier.network_.parameters()])
    assert classifier.history_.records[0].gradient_norm == pytest.approx(float(whole), rel=1e-5)
    assert classifier.history_.records[0].gradient_norm > 1.01 * np.linalg.norm(
        classifier.history_.records[0].layer_gradients
    )


def test_partial_fit_goes_on_from_a_fit():
    classifier = small(learning_rate_init=0.01, max_iter=3).partial_fit(X, y, classes=[0, 1, 2])
    fitted = classifier.fit(X, y).predict_proba(X)
    assert not np.array_equal(classifier.partial_fit(X, y).predict_proba(X), fitted)


def test_probabilities_undo_the_smoothing_of_the_training():
    classifier = small().fit(X, y)
    before = classifier.predict_proba(X)
    np.testing.assert_array_equal(classifier.set_params(alpha=0.0).predict_proba(X), before)
    np.testing.assert_allclose(before.sum(1), 1.0)
    told = np.exp(classifier.decision_function(X))
    told /= told.sum(1, keepdims=True)
    expected = np.maximum((told - 0.05 / 3) / 0.95, 5e-5)
    np.testing.assert_allclose(before, expected / expected.sum(1, keepdims=True), rtol=1e-6)


def test_huge_values_are_scaled():
    assert small().fit(X * 1e200, y).score(X * 1e200, y) > 0.9
    regressor = small(FractionalRegressor).fit(X, X[:, 2] * 1e200)
    assert np.abs(regressor.predict(X) / 1e200 - X[:, 2]).max() < 1.0


def test_numbers_of_numpy_are_parameters(tmp_path):
    options = {"batch_size": np.int64(50), "learning_rate_init": np.float32(0.01), "alpha": np.float32(1e-3)}
    weights = dict(zip(np.unique(y), [1.0, 2.0, 1.0], strict=True))
    classifier = small(
        **options,
        optimizer="adam",
        n_layers=np.int64(2),
        class_weight=weights,
        checkpoint_path=tmp_path / "c",
    )
    classifier.set_params(random_state=np.int64(5)).fit(X, y)
    again = FractionalClassifier.load(classifier.save(tmp_path / "model.fracdnn"))
    assert again.random_state == 5
    assert again.class_weight == {0: 1.0, 1: 2.0, 2: 1.0}


def test_partial_fit_says_what_it_needs():
    with pytest.raises(ValueError, match="classes must be passed on the first call to partial_fit, got None; name all"):
        small().partial_fit(X, y)
    classifier = small().partial_fit(X[:100], y[:100], classes=[0, 1])
    with pytest.raises(ValueError, match=r"y must hold classes of the first call, got \[2\]; pass them in classes"):
        classifier.partial_fit(X, y)
    with pytest.raises(ValueError, match=r"classes must be those of the first call, \[0, 1\], got \[0, 2\]; leave it"):
        classifier.partial_fit(X, y, classes=[2, 0])
    with pytest.raises(ValueError, match="class_weight must be given by class for partial_fit, got 'balanced'"):
        small(class_weight="balanced").partial_fit(X, y, classes=[0, 1, 2])
    by_class = small(class_weight={1: 3.0}).partial_fit(X, y, classes=[0, 1, 2]).predict_proba(X)
    by_sample = small().partial_fit(X, y, classes=[0, 1, 2], sample_weight=1.0 + 2.0 * (y == 1)).predict_proba(X)
    np.testing.assert_array_equal(by_class, by_sample)


@pytest.mark.parametrize("optimizer", ["lbfgs", "adam"])
def test_early_stopping(optimizer, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 2, 150)  # nothing to learn
    options = {
        "optimizer": optimizer,
        "max_iter": 500,
        "learning_rate_init": 0.02,
        "alpha": 0.0,
        "early_stopping": True,
    }
    monkeypatch.setattr(fitting, "PATIENCE", 4)
    classifier = small(**options).fit(X, noise)
    assert classifier.history_.status == "no improvement"
    scores = classifier.history_.column("validation_score")
    assert len(scores) - np.argmin(scores) == 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["lbfgs", "bfgs", "adam"])
def test_a_time_limit_leaves_a_usable_model(kind, optimizer, tmp_path):
    options = {"optimizer": optimizer, "max_iter": 10**6}
    limited = small(kind, **options, max_time=np.float32(1e-6))
    unit = "epoch" if optimizer == "adam" else "iteration"
    with pytest.warns(
        ConvergenceWarning, match=rf"training reached max_time=1e-06 s after 1 {unit}; the model is usable"
    ):
        limited.fit(X, y)
    assert limited.history_.status == "time limit"
    assert limited.n_iter_ == 1
    again = kind.load(limited.save(tmp_path / "model.fracdnn"))
    assert again.history_.status == "time limit"
    np.testing.assert_array_equal(again.predict(X), limited.predict(X))
    patient = small(kind, optimizer=optimizer, max_time=1e6).fit(X, y)
    np.testing.assert_array_equal(patient.predict(X), small(kind, optimizer=optimizer).fit(X, y).predict(X))


def test_verbose_shows_progress_on_standard_error(capfd):
    small().fit(X, y)
    assert capfd.readouterr() == ("", "")
    small(verbose=True).fit(X, y)
    out, err = capfd.readouterr()
    assert out == ""
    for word in ("iteration 2 of 30: loss", "iteration 30 of 30: loss", "rows/s"):
        assert word in err
    small(FractionalRegressor, verbose=True, early_stopping=True, optimizer="adam").fit(X, y)
    assert "held out" in capfd.readouterr().err


def test_an_overflow_is_told():
    with pytest.warns(ConvergenceWarning, match="training stopped at a point that is not finite; scale the data"):
        small(activation="relu", n_layers=150, order=1.0, step_size=1e3).fit(X, y)


@pytest.mark.parametrize("optimizer", ["lbfgs", "adam"])
def test_checkpoints_and_resume(optimizer, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe, "CHECKPOINTS", 1)
    monkeypatch.setattr(recipe, "MOST_BETWEEN_CHECKPOINTS", 20)
    options = {"optimizer": optimizer, "random_state": None}
    path = tmp_path / "run.ckpt"
    first = small(**options, checkpoint_path=path).fit(X, y)
    assert len(read_document(path, "checkpoint")["members"][0]["history"]["records"]) == 20
    resumed = small(**options, checkpoint_path=path, resume=True).fit(X, y)  # its last ten again
    assert resumed.history_ == first.history_
    np.testing.assert_array_equal(resumed.predict_proba(X), first.predict_proba(X))
    with pytest.raises(FileContentError, match="got one with other data"):
        small(**options, checkpoint_path=path, resume=True).fit(X[::2], y[::2])


# The process gets a signal as its checkpoint is in place for the given time; 0 for never.
AT_A_CHECKPOINT = """
import os, sys
from pathlib import Path

def signal_at_a_checkpoint(number, count, move=Path.replace):
    def into_place(temporary, path):
        nonlocal count
        moved = move(temporary, path)
        count -= Path(path).suffix == ".ckpt"
        if count == 0:
            os.kill(os.getpid(), number)
        return moved

    if count:
        Path.replace = into_place
"""

SCRIPT = f"""{AT_A_CHECKPOINT}
import signal, warnings
from sklearn.datasets import load_digits
from fracdnn import FractionalClassifier

X, y = (each[:300] for each in load_digits(return_X_y=True))
FractionalClassifier(max_iter=1, n_members=1).fit(X, y)  # imports all

def fit(model, kill_at=0, **options):
    if os.fork() == 0:
        signal_at_a_checkpoint(signal.SIGKILL, kill_at)
        FractionalClassifier(max_iter=12, random_state=0, n_members=1, **options).fit(X, y).save(model)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.wait()[1]), os.path.exists(model), flush=True)

def interrupted(**options):
    if os.fork() == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
        signal_at_a_checkpoint(signal.SIGINT, 2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = FractionalClassifier(n_members=1, early_stopping=False, random_state=0, **options).fit(X, y)
        print(caught[-1].message, model.score(X, y) > 0.5, flush=True)
        os._exit(0)
    os.wait()

options = dict(checkpoint_path="run.ckpt", resume=True)
fit("whole.fracdnn")
fit("model.fracdnn", kill_at=2, **options)
fit("model.fracdnn", **options)
interrupted(optimizer="lbfgs", max_iter=100000, checkpoint_path="interrupted.ckpt")
"""


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory):
    """Fits in processes of their own, forked from one that imports everything once: their folder, and what they say."""
    place = tmp_path_factory.mktemp("disturbed")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # what is forked would wait for its parent's threads
    command = [sys.executable, "-c", SCRIPT]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=place, env=environment).stdout
    return place, told.splitlines()


def test_a_killed_fit_goes_on_to_the_same_model(disturbed):
    """A real process and a real SIGKILL, after the second of four checkpoints."""
    place, told = disturbed
    assert told[:3] == ["0 True", f"{-signal.SIGKILL} False", "0 True"]
    digits = np.random.default_rng(0).uniform(0, 16, (50, 64))
    models = [FractionalClassifier.load(place / name) for name in ("whole.fracdnn", "model.fracdnn")]
    np.testing.assert_array_equal(*(model.predict_proba(digits) for model in models))


def test_an_interrupted_fit_is_a_model(disturbed):
    """A real signal, at the twentieth of many iterations."""
    (said,) = disturbed[1][3:]
    assert said.startswith("training interrupted by the user after ")
    assert said.endswith("the model is usable True")


def test_regressor_beats_the_mean_by_cross_validation():
    assert cross_val_score(small(FractionalRegressor), *load_diabetes(return_X_y=True), cv=3).mean() > 0.3


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        (
            {0: np.nan, 1: 1.0},
            "class_weight must hold finite numbers not below 0, got nan for class 0; 0 leaves",
        ),
        ({0: -1.0, 1: 1.0}, "class_weight must hold finite numbers not below 0, got -1.0 for class 0"),
        (
            {0: 0.0, 1: 0.0},
            "sample_weight and class_weight must leave a sample with a weight above 0, got zero for all",
        ),
    ],
)
def test_class_weights_that_cannot_be_are_refused(class_weight, message):
    X, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20) % 2
    for method in ("fit", "partial_fit"):
        estimator = FractionalClassifier(class_weight=class_weight, max_iter=2, n_members=1)
        options = {"classes": [0, 1]} if method == "partial_fit" else {}
        with pytest.raises(ValueError, match=message):
            getattr(estimator, method)(X, y, **options)


@pytest.mark.parametrize("kind", [FractionalClassifier, FractionalRegressor])
@pytest.mark.parametrize("scale", [1e38, 1e-300, 3.0])
def test_only_the_ratios_of_weights_count(kind, scale):
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 2
    weight = 1.0 + np.arange(30)
    plain, scaled = (
        kind(max_iter=3, n_members=2, random_state=0).fit(X, y, sample_weight=w) for w in (weight, scale * weight)
    )
    np.testing.assert_allclose(scaled.history_.column("loss"), plain.history_.column("loss"), rtol=1e-5)
    np.testing.assert_allclose(scaled.predict(X), plain.predict(X), rtol=1e-3)


def test_a_fit_leaves_the_callers_modes_and_random_state_alone():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 2
    before = torch.random.get_rng_state()
    plain = FractionalClassifier(max_iter=3, n_members=2, random_state=0).fit(X, y)
    assert torch.equal(torch.random.get_rng_state(), before)
    with torch.no_grad():
        again = FractionalClassifier(max_iter=3, n_members=2, random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), plain.predict_proba(X))
