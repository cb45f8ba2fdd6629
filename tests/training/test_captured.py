"""Training from CUDA graphs ends where training step by step ends, and says that it was captured."""

import warnings
from dataclasses import replace
from itertools import product

import pytest
import torch

from fracdnn.estimators import FractionalClassifier
from fracdnn.exceptions import InvalidArgumentError, KernelWarning
from fracdnn.training import (
    AdamTraining,
    Checkpoints,
    EarlyStopping,
    FullBatchTraining,
    MiniBatchTraining,
    Objective,
    Regularization,
    Task,
    adam,
    captured,
    loops,
)
from tests.nn.problems import network
from tests.training.test_side_by_side import outputs_of, tasks_of

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none")
REGULARIZATION = Regularization(0.1, 0.2, 0.3, 0.4)
WAYS = {
    "adam": AdamTraining(1e-2, batch_size=16, max_epochs=6),
    "adam, whole batches": AdamTraining(1e-2, batch_size=11, max_epochs=6),
    "lbfgs": FullBatchTraining("lbfgs", max_iter=12),
    "bfgs": FullBatchTraining("bfgs", max_iter=12),
    "Alg. 3": MiniBatchTraining(n_batches=4, max_iter=5, optimizer="bfgs", normalization="feature"),
}
NETWORKS = {
    "exact": {"dtype": torch.float64},
    "learned": {"dtype": torch.float64, "learn_order": True, "activation": "gelu"},
    "by layer": {"dtype": torch.float64, "learn_order": "layer", "step_size": [0.1] * 5},
    "steps": {"dtype": torch.float64, "learn_steps": True},
    "frozen": {"dtype": torch.float64, "learn_order": True, "frozen": True},
    "stencil": {"n_features": 6, "operator": "five-point", "grid_shape": (2, 3)},
    "wide": {"dtype": torch.float64, "n_features": 70},
    "compressed": {"dtype": torch.float64, "n_features": 70, "n_layers": 18},
}


def made_task(device="cuda", loss="cross_entropy", *, weighted=True, **options):
    frozen = options.pop("frozen", False)
    net = network(**options).to(device)
    net.memory.requires_grad_(not frozen)
    dtype, generator = net.W.dtype, torch.Generator().manual_seed(1)
    n, n_features = 55, net.architecture.n_features
    x = torch.randn(n, n_features, dtype=torch.float64, generator=generator)
    target = torch.randint(4, (n,), generator=generator)
    if loss == "squared_error":
        target = torch.randn(n, 4, dtype=torch.float64, generator=generator).to(dtype)
    weight = torch.rand(n, dtype=torch.float64, generator=generator).to(device, dtype) + 0.1 if weighted else None
    data = x.to(device, dtype), target.to(device), weight
    return Task(net, Objective(loss, REGULARIZATION), *data, generator=torch.Generator().manual_seed(2))


def trained(training, task):
    history = training.fit(task)
    return history, [parameter.detach().clone() for parameter in task.network.parameters()]


def step_by_step(monkeypatch, training, task):
    with monkeypatch.context() as patched:
        for module in (adam, loops):
            patched.setattr(module, "can_capture", lambda task: False)
        history, parameters = trained(training, task)
    assert not history.captured
    return history, parameters


@needs_cuda
@pytest.mark.parametrize(
    ("way", "options"),
    # BFGS has a matrix of all parameters by all parameters.
    [
        (way, NETWORKS[name])
        for way, name in product(WAYS, NETWORKS)
        if name != "compressed" or way in ("adam", "lbfgs")
    ],
    ids=str,
)
def test_it_ends_where_single_steps_end(monkeypatch, way, options):
    task = made_task(**options)
    history, parameters = trained(WAYS[way], task)
    assert history.captured
    expected_history, expected = step_by_step(monkeypatch, WAYS[way], made_task(**options))
    assert len(history.records) == len(expected_history.records)
    for mine, theirs in zip(history.records, expected_history.records, strict=True):
        assert mine.loss == pytest.approx(theirs.loss, rel=1e-9)
        assert mine.gradient_norm == pytest.approx(theirs.gradient_norm, rel=1e-6)
        assert mine.layer_gradients == pytest.approx(theirs.layer_gradients, rel=1e-6)
        assert mine.accuracy == theirs.accuracy
    for mine, theirs in zip(parameters, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-7, atol=1e-9)


@needs_cuda
@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_losses_without_weights_in_single_precision(monkeypatch, loss):
    options = {"loss": loss, "weighted": False, "dtype": torch.float32}
    history, _ = trained(WAYS["adam"], made_task(**options))
    assert history.captured
    expected, _ = step_by_step(monkeypatch, WAYS["adam"], made_task(**options))
    assert history.column("loss") == pytest.approx(expected.column("loss"), rel=1e-5)


@needs_cuda
@pytest.mark.parametrize("way", ["adam", "lbfgs"])
def test_a_resumed_training_ends_at_the_same_bits(tmp_path, way):
    whole = WAYS[way]
    _, expected = trained(whole, made_task())

    class StopError(Exception):
        pass

    def stop(record):
        if record.iteration == 5:
            raise StopError

    first = replace(whole, checkpoints=Checkpoints(tmp_path / "run", every=4))
    task = made_task()
    task.watch = stop
    with pytest.raises(StopError):
        first.fit(task)
    again = replace(whole, checkpoints=Checkpoints(tmp_path / "run", every=4, resume=True))
    history, parameters = trained(again, made_task())
    assert history.captured
    for mine, theirs in zip(parameters, expected, strict=True):
        assert torch.equal(mine, theirs)


@needs_cuda
def test_frozen_parameters_stay():
    task = made_task()
    task.network.W.requires_grad_(False)
    before = task.network.W.detach().clone()
    history, _ = trained(WAYS["lbfgs"], task)
    assert history.captured
    assert torch.equal(task.network.W, before)
    assert task.network.W.grad is None


@needs_cuda
@pytest.mark.parametrize("way", ["adam", "lbfgs"])
def test_hooks_see_every_step(way):
    task = made_task()
    seen = []
    task.network.K.register_hook(lambda gradient: seen.append(gradient.norm()) or gradient)
    history, _ = trained(WAYS[way], task)
    assert not history.captured
    assert len(seen) >= len(history.records)


@needs_cuda
@pytest.mark.parametrize("way", ["adam", "lbfgs"])
def test_labels_without_an_output_are_refused(way):
    task = made_task()
    task.target[3] = 4
    with pytest.raises(InvalidArgumentError, match="target must hold classes from 0 to 3 for 4 outputs, got 4"):
        trained(WAYS[way], task)


@needs_cuda
def test_a_training_that_diverges_says_so():
    task = made_task(activation="identity", dtype=torch.float32)
    history = AdamTraining(1e30, batch_size=16, max_epochs=6).fit(task)
    assert history.status == "not finite"
    assert all(parameter.isfinite().all() for parameter in task.network.parameters())


@needs_cuda
def test_an_estimator_says_so_too(tmp_path):
    X = torch.randn(300, 5, generator=torch.Generator().manual_seed(0)).numpy()
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = FractionalClassifier(device="cuda", max_iter=20, batch_size=32, random_state=0).fit(X, y)
    assert model.history_.captured
    assert model.score(X, y) > 0.8
    model.save(tmp_path / "model.fracdnn")
    assert FractionalClassifier.load(tmp_path / "model.fracdnn").history_.captured


@needs_cuda
def test_a_capture_that_fails_is_told_and_changes_nothing(monkeypatch):
    evaluate = Task.evaluate

    def waiting(task):
        value = evaluate(task)
        float(value)  # which no capture may do
        return value

    expected, _ = step_by_step(monkeypatch, WAYS["adam"], made_task())
    monkeypatch.setattr(Task, "evaluate", waiting)
    with pytest.warns(KernelWarning, match="a step could not be captured in a CUDA graph"):
        history, _ = trained(WAYS["adam"], made_task())
    assert not history.captured
    assert history.column("loss") == pytest.approx(expected.column("loss"), rel=1e-9)


def test_on_the_cpu_nothing_is_captured():
    history, _ = trained(WAYS["adam"], made_task("cpu"))
    assert not history.captured


class AsItComes:
    """In place of `Repeated`: the same work on the same tensors, without a GPU."""

    graph = "none, but as if there were one"

    def __init__(self, network, device):
        pass

    def __call__(self, work):
        return work()


@pytest.fixture
def without_gpu(monkeypatch):
    """Trainings that are captured, as far as a CPU can: what is told to graphs, and what is read from them."""
    monkeypatch.setattr(captured, "Repeated", AsItComes)
    for module in (adam, loops):
        monkeypatch.setattr(module, "can_capture", lambda task: True)
    without_graphs = adam.Adam
    monkeypatch.setattr(adam, "Adam", lambda parameters, captured: without_graphs(parameters))
    # On a CPU a value is a number.
    evaluate = Task.evaluate
    monkeypatch.setattr(Task, "evaluate", lambda task: torch.as_tensor(evaluate(task), dtype=torch.float64))


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
@pytest.mark.parametrize("way", WAYS)
def test_samples_rates_and_gradients_are_those_of_single_steps(monkeypatch, without_gpu, way, loss):
    history, parameters = trained(WAYS[way], made_task("cpu", loss))
    assert history.captured
    expected_history, expected = step_by_step(monkeypatch, WAYS[way], made_task("cpu", loss))
    assert history.column("loss") == pytest.approx(expected_history.column("loss"), rel=1e-6)
    assert history.column("accuracy") == pytest.approx(expected_history.column("accuracy"))
    for mine, theirs in zip(parameters, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)


def test_steps_of_members_are_those_of_single_steps(monkeypatch, without_gpu):
    """Of 61 rows, 48 are three batches of 16 and 49 are four: two stacks."""
    training = AdamTraining(1e-2, batch_size=16, max_epochs=6, early_stopping=EarlyStopping(0.2, n_iter_no_change=6))

    def fitted():
        tasks = tasks_of(3)
        for task, held_out in zip(tasks, (13, 12, 12), strict=True):
            task.held_out = torch.arange(held_out)
        return training.fit_all(tasks), tasks

    histories, tasks = fitted()
    assert all(history.captured for history in histories)
    with monkeypatch.context() as patched:
        patched.setattr(adam, "can_capture", lambda task: False)
        expected_histories, expected = fitted()
    for found, wanted in zip(histories, expected_histories, strict=True):
        for name in ("loss", "accuracy", "gradient_norm", "validation_score"):
            assert found.column(name) == pytest.approx(wanted.column(name), rel=1e-12)
    torch.testing.assert_close(outputs_of(tasks), outputs_of(expected), rtol=1e-12, atol=1e-12)
