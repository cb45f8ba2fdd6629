"""Several networks for one answer: what each is trained without, how sure they may be, files, exports, limits."""

import signal
from itertools import chain, product
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from scipy.optimize import minimize_scalar
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning

import fracdnn
from fracdnn.container import read_document, write_document
from fracdnn.estimators import FractionalClassifier, FractionalRegressor, fitting
from fracdnn.estimators.calibration import temperature_of, weight_of
from fracdnn.estimators.fitting import random_parts
from fracdnn.exceptions import FileContentError
from fracdnn.training import Objective, Task
from tests.slow import slow_but

X, y = load_iris(return_X_y=True)
KINDS = [FractionalClassifier, FractionalRegressor]
DTYPES = ["float32", "float64"]


def small(kind=FractionalClassifier, **options):
    return kind(**{"n_members": 3, "n_layers": 2, "width": 6, "max_iter": 8, "random_state": 0, **options})


def task_of(logits, target, weight=None):
    """A task whose network answers with its features."""
    return Task(torch.nn.Identity(), Objective("cross_entropy"), logits, target, weight)


def tempered(tasks):
    return temperature_of([(task.x.double(), task.target, weight_of(task)) for task in tasks])


@pytest.mark.parametrize("n_parts", [2, 3, 8])
def test_parts_are_disjoint_cover_all_and_hold_each_class(n_parts):
    target = torch.from_numpy(np.repeat([0, 1, 2], [100, 40, 9]))
    found = random_parts(task_of(torch.zeros(149, 3), target), n_parts, torch.Generator().manual_seed(0))
    assert torch.cat(found).sort().values.tolist() == list(range(149))
    sizes = [len(part) for part in found]
    assert max(sizes) - min(sizes) <= 1
    counts = torch.stack([torch.bincount(target[part], minlength=3) for part in found])
    assert (counts.max(0).values - counts.min(0).values).max() <= 1
    other = random_parts(task_of(torch.zeros(149, 3), target), n_parts, torch.Generator().manual_seed(1))
    assert not all(torch.equal(*pair) for pair in zip(found, other, strict=True))


def drawn(n, temperature, seed=0):
    """Logits, and labels that are as sure as logits over the temperature say."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 3, generator=generator, dtype=torch.float64)
    target = torch.multinomial(torch.softmax(logits / temperature, 1), 1, generator=generator).squeeze(1)
    return logits, target


@pytest.mark.parametrize("temperature", slow_but([3.0], [0.5, 1.0, 1.7, 3.0]))
def test_a_known_temperature_is_found(temperature):
    logits, target = drawn(40_000, temperature)
    whole = tempered([task_of(logits, target)])
    assert whole == pytest.approx(temperature, rel=0.03)
    halves = [task_of(logits[half], target[half]) for half in (slice(0, 15_000), slice(15_000, None))]
    assert tempered(halves) == pytest.approx(whole, rel=1e-12)
    assert tempered([task_of(logits.float(), target)]) == pytest.approx(whole, rel=1e-5)


def test_only_the_ratios_of_weights_count_for_it_and_none_is_nothing():
    logits, target = drawn(500, 2.0)
    weight = torch.arange(500.0) % 3
    found = tempered([task_of(logits, target, weight)])
    assert tempered([task_of(logits, target, 64 * weight)]) == pytest.approx(found, rel=1e-12)
    other = torch.where(weight > 0, target, (target + 1) % 3)
    assert tempered([task_of(logits, other, weight)]) == pytest.approx(found, rel=1e-12)


def by_definition(logits, target):
    """Where the summed log-loss and (log T)² are least together."""

    def loss(factor):
        return float(torch.nn.functional.cross_entropy(logits * np.exp(factor), target, reduction="sum")) + factor**2

    return np.exp(-minimize_scalar(loss, bounds=(-1.5, 1.5), method="bounded", options={"xatol": 1e-9}).x)


def test_extremes_and_few_rows():
    logits, _ = drawn(2000, 1.0)
    right, wrong = logits.argmax(1), logits.argmin(1)
    low, high = (tempered([task_of(logits, labels)]) for labels in (right, wrong))
    assert low == pytest.approx(np.exp(-1.5), rel=0.03)
    assert high == pytest.approx(np.exp(1.5), rel=0.03)
    for labels in (right, wrong):
        few = [tempered([task_of(logits[:n], labels[:n])]) for n in (1, 4, 40)]
        assert few == pytest.approx([by_definition(logits[:n], labels[:n]) for n in (1, 4, 40)], rel=1e-3)
        assert (np.diff(np.abs(np.log(few))) > 0).all()
    single = torch.tensor([[1.0, 0.0, 0.0]])
    assert 0.75 < tempered([task_of(single, torch.tensor([0]))]) < 1.0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_each_member_is_trained_without_rows_of_its_own(kind, optimizer, tmp_path):
    path = tmp_path / "run.ckpt"
    fitted = small(kind, optimizer=optimizer, checkpoint_path=path).fit(X, y)
    assert len(fitted.members_) == 3
    assert fitted.network_ is fitted.members_[0]
    files = sorted(file for file in tmp_path.iterdir() if file.suffix != ".previous")
    documents = [each for file in files for each in read_document(file, "checkpoint")["members"]]
    held_out = [document["held_out"].tolist() for document in documents]
    n = len(np.unique(np.column_stack([X, y]), axis=0))  # repeated rows are one
    assert len(held_out) == 3
    assert sorted(chain(*held_out)) == list(range(n))


def called(network, features):
    """The output for features of a CPU, computed where the network is."""
    return network(features.to(network.W.device)).cpu()


@pytest.mark.parametrize("dtype", DTYPES)
def test_probabilities_are_the_mean_of_the_members(dtype):
    fitted = small(dtype=dtype).fit(X, y)
    assert fitted.temperature_ > 0
    inputs = torch.from_numpy(X)
    features = fitted.shaping_(inputs, fitted.standardization_(inputs))
    assert features.shape[1] > 4
    with torch.no_grad():
        each = [
            torch.softmax(called(network, features) / fitted.temperature_, 1).numpy() for network in fitted.members_
        ]
    assert not np.allclose(each[0], each[1])
    np.testing.assert_allclose(fitted.predict_proba(X), np.mean(each, axis=0), rtol=1e-12)
    np.testing.assert_array_equal(fitted.decision_function(X), np.log(fitted.predict_proba(X)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_are_the_mean_of_the_members(dtype):
    fitted = small(FractionalRegressor, dtype=dtype).fit(X[:, :3], X[:, 3])
    assert fitted.temperature_ is None
    inputs = torch.from_numpy(X[:, :3])
    features = fitted.shaping_(inputs, fitted.standardization_(inputs))
    with torch.no_grad():
        each = [fitted.target_scale_.undo(called(network, features)).numpy()[:, 0] for network in fitted.members_]
    np.testing.assert_allclose(fitted.predict(X[:, :3]), np.mean(each, axis=0), rtol=1e-12)


def test_without_calibration_or_held_out_rows_there_is_no_temperature():
    assert small(early_stopping=False).fit(X, y).temperature_ is None
    assert small(n_members=1).fit(X, y).temperature_ > 0


def test_a_weight_is_a_repetition_with_members_and_bins():
    counts = np.random.default_rng(0).integers(0, 4, 150)
    weighted = small(n_members=2).fit(X, y, sample_weight=counts)
    repeated = small(n_members=2).fit(X.repeat(counts, 0), y.repeat(counts))
    np.testing.assert_array_equal(weighted.predict_proba(X), repeated.predict_proba(X))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_file_keeps_all_members_to_the_last_bit(kind, dtype, tmp_path):
    fitted = small(kind, dtype=dtype).fit(X, y)
    loaded = fracdnn.load(fitted.save(tmp_path / "model.fracdnn"))
    assert (len(loaded.members_), loaded.temperature_) == (3, fitted.temperature_)
    answer = "predict_proba" if kind is FractionalClassifier else "predict"
    np.testing.assert_array_equal(getattr(loaded, answer)(X), getattr(fitted, answer)(X))
    assert loaded.order_ == fitted.order_


FORGERIES = [
    lambda d: d["members"][1]["state"]["W"].fill_(float("nan")),
    lambda d: d["members"][0]["options"].update(n_layers=10**9),
    lambda d: d["members"][0]["options"].update(activation="tanh"),
    lambda d: d["members"].append({}),
    lambda d: d.update(members=7),
    lambda d: d.update(temperature=0.0),
    lambda d: d.update(temperature=-1.0),
    lambda d: d.update(temperature="1"),
    lambda d: d.update(temperature=True),
    lambda d: d.pop("shaping"),
    lambda d: d["shaping"].update(clip=-3.0),
    lambda d: d["shaping"]["column"].fill_(4),
    lambda d: d["shaping"]["low"].fill_(float("nan")),
    lambda d: d["shaping"]["width"].zero_(),
    lambda d: d["shaping"].update(surprise=1),
    lambda d: d["shaping"].update({name: d["shaping"][name][1:] for name in ("column", "low", "width")}),
]


@pytest.fixture(scope="module")
def document(tmp_path_factory):
    return small().fit(X, y).save(tmp_path_factory.mktemp("members") / "model.fracdnn").read_bytes()


@pytest.mark.parametrize("forge", FORGERIES)
def test_members_that_lie_build_nothing(forge, document, tmp_path):
    path = tmp_path / "model.fracdnn"
    path.write_bytes(document)
    found = read_document(path, "model")
    forge(found)
    write_document(path, "model", found)
    with pytest.raises(FileContentError, match="must hold a whole model, got an inconsistent document"):
        fracdnn.load(path)


@pytest.mark.parametrize(("kind", "dtype"), [*product(KINDS, DTYPES)])
@pytest.mark.slow  # `test_export.py` exports a regressor of two members and a classifier of two
def test_exports_hold_members_bins_and_temperature(kind, dtype, tmp_path):
    fitted = small(kind, n_members=2, dtype=dtype).fit(X[:, :3], y if kind is FractionalClassifier else X[:, 3])
    features = X[:, :3].astype(dtype)
    expected = fitted.predict_proba(features) if kind is FractionalClassifier else fitted.predict(features)[:, None]
    session = onnxruntime.InferenceSession(fitted.export(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: features})[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    program = torch.export.load(fitted.export(tmp_path / "model.pt2")).module()
    with torch.no_grad():
        np.testing.assert_allclose(program(torch.from_numpy(features)).numpy(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_partial_fit_goes_on_with_the_first_member_alone(kind):
    fitted = small(kind).fit(X, y)
    first = fitted.network_
    fitted.partial_fit(X, y)
    assert fitted.members_ == [first]
    assert fitted.temperature_ is None
    assert fitted.history_.status == "partial"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_a_time_limit_holds_for_all_members_together(kind, optimizer, monkeypatch):
    data = (X, y) if kind is FractionalClassifier else load_diabetes(return_X_y=True)
    monkeypatch.setattr(fitting, "PATIENCE", 10**7)
    monkeypatch.setattr(fitting, "TOLERANCE_GRAD", 0.0)
    fitted = small(kind, optimizer=optimizer, max_time=0.5, max_iter=10**7)
    done = {"adam": r"\d+ epochs? of each of 3 members", "lbfgs": r"\d+ iterations? of the first of 3 members"}[
        optimizer
    ]
    words = rf"training reached max_time=0\.5 s after {done}; the model is usable"
    with pytest.warns(ConvergenceWarning, match=words) as told:
        fitted.fit(*data)
    assert told[0].filename == __file__
    assert fitted.history_.status == "time limit"
    assert np.isfinite(fitted.predict(data[0])).all()


def test_ctrl_c_in_the_second_member_keeps_the_first(tmp_path, monkeypatch):
    """A real signal, as its first checkpoint is in place; lbfgs trains members one after the other."""
    writes = []
    alone = small(optimizer="lbfgs", checkpoint_path=tmp_path / "whole.ckpt").fit(X, y)
    move = Path.replace

    def into_place(temporary, path):
        moved = move(temporary, path)
        writes.append(Path(path).name)
        if len(writes) == alone.n_iter_ + 2:
            signal.raise_signal(signal.SIGINT)
        return moved

    done = f"2 to {alone.n_iter_} iterations of each of the first 2 of 3 members"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(Path, "replace", into_place)
    try:
        with pytest.warns(ConvergenceWarning, match=f"interrupted by the user after {done}; the model is usable"):
            fitted = small(optimizer="lbfgs", checkpoint_path=tmp_path / "run.ckpt").fit(X, y)
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.undo()
    assert fitted.history_.status == "interrupted"
    assert len(fitted.members_) == 1
    for name, value in fitted.network_.state_dict().items():
        assert value.equal(alone.network_.state_dict()[name])
    assert fitted.predict_proba(X).shape == (150, 3)
    resumed = small(optimizer="lbfgs", checkpoint_path=tmp_path / "run.ckpt", resume=True).fit(X, y)
    np.testing.assert_array_equal(resumed.predict_proba(X), alone.predict_proba(X))
