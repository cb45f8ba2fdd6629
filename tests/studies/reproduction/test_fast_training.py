"""The compiled loops of the experiments against the library's trainings, from the same start."""

import numpy as np
import pytest
import torch

from fracdnn.training import FullBatchTraining, MiniBatchTraining, Objective, Regularization, Task
from fracdnn.training.records import layer_gradient_norms
from reproduction.fast_training import fit_all, fit_batches
from reproduction.printed_adjoint import network_with
from tests.campaign.plain import minimise

KINDS = {
    "residual": {"order": 1.0},
    "fractional": {"order": 0.6},
    "plain": {"order": 1.0, "residual": False},
    "printed": {"order": 0.6, "adjoint": "continuous"},
    "transposed": {"order": 0.6, "adjoint": "continuous-transposed"},
    "classical": {"order": 1.0, "adjoint": "classical"},
    "printed at order 1": {"order": 1.0, "adjoint": "continuous"},
}


def problem(seed=0, adjoint="exact", **options):
    generator = torch.Generator().manual_seed(seed)
    settings = {"n_layers": 7, "step_size": 0.3, "bias": "scalar", "generator": generator, **options}
    network = network_with(adjoint, 3, 4, **settings).double()
    with torch.no_grad():
        network.b.normal_(0, 0.3, generator=generator)
    X = torch.randn(41, 3, dtype=torch.float64, generator=generator)
    return network, X, torch.randint(4, (41,), generator=generator)


def parameters(network):
    return torch.cat([p.detach().reshape(-1) for p in network.parameters()])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["bfgs", "textbook-bfgs"])
def test_an_optimiser_on_all_samples_takes_the_librarys_steps(kind, method):
    (ours, X, y), (theirs, _, _) = problem(**KINDS[kind]), problem(**KINDS[kind])
    objective = Objective(regularization=Regularization(decay_output=1e-3, decay=1e-4))
    history = FullBatchTraining(method, 12, tolerance_grad=0.0).fit(Task(theirs, objective, X, y))
    options = {"decay_class_map": 1e-3, "decay": 1e-4, "tolerance": 0.0, "with_norms": True}
    fit = fit_all(ours, X, y, max_iter=12, method=method, **options)
    assert fit.status == history.status
    assert fit.trials.tolist() == history.column("line_search_trials")
    np.testing.assert_allclose(fit.losses, history.column("loss"), rtol=1e-8)
    np.testing.assert_allclose(fit.norms, history.column("layer_gradients"), rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(parameters(ours), parameters(theirs), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_steepest_descent_takes_the_steps_of_plain_numpy(kind):
    (ours, X, y), (theirs, _, _) = problem(**KINDS[kind]), problem(**KINDS[kind])
    task = Task(theirs, Objective(regularization=Regularization(decay_output=1e-3, decay=1e-4)), X, y)

    def value_and_gradient(row):
        torch.nn.utils.vector_to_parameters(torch.from_numpy(row), theirs.parameters())
        theirs.zero_grad()
        loss = task.loss()
        loss.backward()
        return loss.item(), torch.cat([p.grad.reshape(-1) for p in theirs.parameters()]).numpy()

    walk = minimise(value_and_gradient, parameters(theirs).numpy(), "steepest", 12, 0.0)
    options = {"decay_class_map": 1e-3, "decay": 1e-4, "tolerance": 0.0}
    fit = fit_all(ours, X, y, max_iter=12, method="steepest", **options)
    assert fit.trials.tolist() == walk.trials
    np.testing.assert_allclose(parameters(ours), walk.points[-1], rtol=1e-6, atol=1e-7)


def test_vector_biases_and_squared_errors():
    (ours, X, _), (theirs, _, _) = problem(order=0.3, bias=True), problem(order=0.3, bias=True)
    values = torch.cat([X.abs(), X[:, :1]], 1)
    history = FullBatchTraining("bfgs", 15).fit(Task(theirs, Objective("squared_error"), X, values))
    fit = fit_all(ours, X, values, max_iter=15)
    np.testing.assert_allclose(fit.losses, history.column("loss"), rtol=1e-8)
    torch.testing.assert_close(parameters(ours), parameters(theirs), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("normalization", ["none", "feature", "global"])
def test_mini_batches_are_those_of_alg_3(normalization):
    (ours, X, y), (theirs, _, _) = problem(order=0.9), problem(order=0.9)
    X = X * torch.tensor([1.0, 10.0, 100.0]) + 5
    objective = Objective(regularization=Regularization(decay_output=1e-3))
    task = Task(theirs, objective, X, y, None, torch.Generator().manual_seed(3))
    history = MiniBatchTraining(4, 5, normalization=normalization).fit(task)
    generator = torch.Generator().manual_seed(3)
    batches = torch.stack([torch.randperm(41, generator=generator)[:20] for _ in range(4)])
    fit = fit_batches(ours, X, y, batches, iterations=5, normalization=normalization, decay_class_map=1e-3)
    np.testing.assert_allclose(fit.losses, history.column("loss"), rtol=1e-7)
    assert fit.trials.tolist() == history.column("line_search_trials")
    assert fit.batch_accuracy == pytest.approx(history.records[-1].accuracy)


def test_a_search_that_ends_says_why():
    network, X, y = problem(order=1.0)
    assert fit_all(network, X, y, max_iter=3, tolerance=1e9).status == "converged"
    with torch.no_grad():
        network.W.fill_(torch.nan)
    assert fit_all(network, X, y, max_iter=3).status == "not finite"


def test_layer_norms_are_those_of_the_gradient():
    network, X, y = problem(order=0.5)
    fit = fit_all(network, X, y, max_iter=2, method="steepest", with_norms=True)
    Task(network, Objective(), X, y).loss().backward()
    np.testing.assert_allclose(fit.norms[-1], layer_gradient_norms(network), rtol=1e-9)
