"""What the studies train: which loss, which regularization, and which mini-batch counts as the last."""

import pytest
import torch

from fracdnn.nn import FractionalNetwork
from fracdnn.training import FullBatchTraining, Objective, Regularization, Task, accuracy, normalize_batch
from reproduction.paper_training import Setting, fit_all, task_of, trained_with_batch

SETTING = Setting("CLS", 0.7, n_layers=4, n_batches=3, iterations=4, class_map=1e-3, operator=0.0, bias=0.0)


def problem():
    generator = torch.Generator().manual_seed(0)
    network = FractionalNetwork(3, 2, n_layers=4, order=0.6, bias="scalar", generator=generator).double()
    X = torch.randn(41, 3, dtype=torch.float64, generator=generator)
    return network, X, torch.randint(2, (41,), generator=generator)


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
def test_all_samples_are_fitted_with_the_loss_of_their_targets(loss):
    (ours, X, y), (theirs, _, _) = problem(), problem()
    target = y if loss == "cross_entropy" else X[:, :2].abs()
    objective = Objective(loss, regularization=Regularization(class_map=0.1, decay=0.01))
    expected = FullBatchTraining("steepest", 7, tolerance=0.0).fit(Task(theirs, objective, X, target))
    options = {"class_map": 0.1, "decay": 0.01, "tolerance": 0.0}
    found = fit_all(ours, X, target, max_iter=7, method="steepest", **options)
    assert found.column("loss") == expected.column("loss")
    assert torch.equal(ours.W, theirs.W)


def test_the_last_mini_batch_is_the_one_that_was_drawn_last():
    _, X, y = problem()
    drawn = []

    class Watched(Objective):
        def data_loss(self, outputs, target, weight=None):
            drawn.append(target)
            return super().data_loss(outputs, target, weight)

    task = task_of(SETTING, (X[:40], X, y[:40], y), seed=3)
    task.objective = Watched(regularization=task.objective.regularization)
    generator = torch.Generator().set_state(task.generator.get_state())
    rows = [torch.randperm(40, generator=generator)[:20] for _ in range(3)][-1]
    history, share = trained_with_batch(SETTING, task)
    assert torch.equal(drawn[-1], y[rows])
    assert share == accuracy(task.network, normalize_batch(X[rows]), y[rows])
    assert share == pytest.approx(history.records[-1].accuracy)
