"""Networks trained and tested as in the paper's Table 2: Alg. 3 and 4 on level sets (CLS) and perfumes (PD)."""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from fracdnn.datasets import Perfume, make_level_set
from fracdnn.nn import FractionalNetwork
from fracdnn.training import MiniBatchTraining, Objective, Regularization, Task, accuracy, normalize_batch
from reproduction.printed_adjoint import network_with

Split = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Setting:
    """A column of Table 2; `n_batches` is m1, `iterations` m2, and ξ_W, ξ_K, ξ_b are `class_map`, `operator`, `bias`.

    `laplacian`, `normalization` and `by_class` (whether the half that makes a mini-batch is drawn class by class) are
    what the paper leaves open. Features are normalized by the batch's own statistics, the test set's too.
    """

    data: str
    order: float
    n_layers: int
    n_batches: int
    iterations: int
    class_map: float
    operator: float
    bias: float
    step_size: float = 0.2
    laplacian: str = "time"
    normalization: str = "feature"
    by_class: bool = False

    def with_order(self, order: float) -> "Setting":
        return replace(self, order=order)

    def short(self, n_batches: int) -> "Setting":
        return replace(self, n_batches=n_batches)


@dataclass(frozen=True)
class Outcome:
    """Accuracies as shares; line-search trials over all iterations of the optimizer."""

    train: float
    test: float
    iterations: int
    line_search_trials: int
    seconds: float


def level_set_split(n: int, seed: int) -> Split:
    """X_train, X_test, y_train, y_test with n points each."""
    X, y = (torch.from_numpy(part) for part in make_level_set(2 * n, random_state=seed))
    return X[:n], X[n:], y[:n], y[n:]


def perfume_split(perfume: Perfume, *, by_time: bool) -> Split:
    """By time, the first 14 seconds for training and the last 14 for testing; else all 560 for both."""
    if by_time:
        X_train, X_test, y_train, y_test = (torch.from_numpy(part) for part in perfume.split_by_time())
        return X_train, X_test, y_train, y_test
    X, y = torch.from_numpy(perfume.data), torch.from_numpy(perfume.target)
    return X, X, y, y


def paper_network(
    X: torch.Tensor, y: torch.Tensor, generator: torch.Generator, *, adjoint: str = "exact", **options: Any
) -> FractionalNetwork:
    """The paper's: as wide as the features, a number as the bias of each layer, an output for each class; float64."""
    n_features, n_classes = X.shape[1], int(y.max()) + 1
    return network_with(adjoint, n_features, n_classes, bias="scalar", generator=generator, **options).double()


def task_of(setting: Setting, split: Split, seed: int) -> Task:
    """The network with random weights, the objective, and the training part."""
    X_train, _, y_train, _ = split
    generator = torch.Generator().manual_seed(seed)
    network = paper_network(
        X_train, y_train, generator, n_layers=setting.n_layers, order=setting.order, step_size=setting.step_size
    )
    regularization = Regularization(setting.class_map, setting.operator, setting.bias, laplacian=setting.laplacian)
    return Task(network, Objective(regularization=regularization), X_train, y_train, None, generator)


def training_of(setting: Setting) -> MiniBatchTraining:
    return MiniBatchTraining(
        setting.n_batches, setting.iterations, normalization=setting.normalization, by_class=setting.by_class
    )


def trained(setting: Setting, split: Split, seed: int) -> tuple[FractionalNetwork, Outcome]:
    X_train, X_test, y_train, y_test = split
    task = task_of(setting, split, seed)
    begun = time.perf_counter()
    history = training_of(setting).fit(task)
    return task.network, Outcome(
        train=accuracy(task.network, normalized(setting, X_train), y_train),
        test=accuracy(task.network, normalized(setting, X_test), y_test),
        iterations=len(history.records),
        line_search_trials=history.line_search_trials,
        seconds=time.perf_counter() - begun,
    )


def normalized(setting: Setting, x: torch.Tensor) -> torch.Tensor:
    """As the paper does it: a set by its own mean and deviation."""
    return normalize_batch(x, per_feature=setting.normalization == "feature")
