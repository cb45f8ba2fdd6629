"""How a network is trained: the paper's mini-batches, full batches, or Adam, behind one interface."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.optim import BFGS, LBFGS, Iteration, SteepestDescent
from fracdnn.training.history import History, Record, layer_gradient_norms
from fracdnn.training.objective import Objective
from fracdnn.validation import check_choice, check_count, check_positive

OPTIMIZERS = {"bfgs": BFGS, "lbfgs": LBFGS, "steepest": SteepestDescent}


@dataclass
class Task:
    """A network, what to minimise, and the data: x [n, n_features], target, and a weight for each sample or none.

    `generator` draws mini-batches; `watch` is told of each record as it comes.
    """

    network: FractionalNetwork
    objective: Objective
    x: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor | None = None
    generator: torch.Generator = field(default_factory=torch.Generator)
    watch: Callable[[Record], None] | None = None

    def part(self, index: torch.Tensor) -> "Task":
        """The same task on some of the samples."""
        weight = None if self.weight is None else self.weight[index]
        return Task(self.network, self.objective, self.x[index], self.target[index], weight, self.generator, self.watch)

    def loss(self) -> torch.Tensor:
        return self.objective(self.network, self.x, self.target, self.weight)

    def accuracy(self) -> float | None:
        """The share of samples whose class is the arg-max of their outputs; None for a regression."""
        if self.objective.loss != "cross_entropy":
            return None
        return accuracy(self.network, self.x, self.target)


@torch.no_grad()
def accuracy(network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor) -> float:
    """Alg. 4: the share of samples whose predicted class is the true one."""
    return float((network(x).argmax(1) == target).to(torch.float64).mean())


class Training(ABC):
    """A way to train; `fit` changes the network's parameters in place and tells what happened."""

    @abstractmethod
    def fit(self, task: Task) -> History: ...


@dataclass(frozen=True)
class FullBatchTraining(Training):
    """One optimiser on all samples, until the norm of the gradient is below `tolerance` or `max_iter` is reached."""

    optimizer: str = "lbfgs"
    max_iter: int = 200
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        check_choice(self.optimizer, "optimizer", tuple(OPTIMIZERS))
        check_count(self.max_iter, "max_iter", minimum=1)

    def fit(self, task: Task) -> History:
        history = History()
        history.status = _minimise(task, history, self.optimizer, self.max_iter, self.tolerance)
        return history


@dataclass(frozen=True)
class MiniBatchTraining(Training):
    """The paper's Alg. 3: `n_batches` (m1) random mini-batches, `iterations` (m2) of the optimiser on each.

    A mini-batch is a random `fraction` of the samples, drawn without replacement, and is put through `normalize` (the
    paper's batch normalisation, see `normalize_batch`). The optimiser starts anew with each: its curvature is that of
    another objective.
    """

    n_batches: int = 10
    iterations: int = 15
    fraction: float = 0.5
    optimizer: str = "bfgs"
    tolerance: float = 1e-6
    normalize: Callable[[torch.Tensor], torch.Tensor] | None = None

    def __post_init__(self) -> None:
        check_choice(self.optimizer, "optimizer", tuple(OPTIMIZERS))
        check_count(self.n_batches, "n_batches", minimum=1)
        check_count(self.iterations, "iterations", minimum=1)
        if not 0 < self.fraction <= 1:
            raise InvalidArgumentError(
                f"fraction must lie in (0, 1], got {self.fraction}; the paper takes half of the samples"
            )

    def fit(self, task: Task) -> History:
        history = History()
        size = max(1, round(self.fraction * len(task.x)))
        for _ in range(self.n_batches):
            index = torch.randperm(len(task.x), generator=task.generator)[:size].to(task.x.device)
            batch = task.part(index)
            if self.normalize is not None:
                batch.x = self.normalize(batch.x)
            history.status = _minimise(batch, history, self.optimizer, self.iterations, self.tolerance)
        return history


@dataclass(frozen=True)
class AdamTraining(Training):
    """Adam on shuffled mini-batches, a record an epoch.

    With a `validation_fraction` training stops when the loss on that part has not improved for `patience` epochs, and
    the best parameters are kept.
    """

    learning_rate: float = 1e-3
    batch_size: int = 64
    max_epochs: int = 200
    validation_fraction: float = 0.0
    patience: int = 20

    def __post_init__(self) -> None:
        check_positive(self.learning_rate, "learning_rate")
        for name in ("batch_size", "max_epochs", "patience"):
            check_count(getattr(self, name), name, minimum=1)
        if not 0 <= self.validation_fraction < 1:
            raise InvalidArgumentError(
                f"validation_fraction must lie in [0, 1), got {self.validation_fraction}; 0 keeps all for training"
            )

    def fit(self, task: Task) -> History:
        order = torch.randperm(len(task.x), generator=task.generator).to(task.x.device)
        held_out = int(self.validation_fraction * len(order))
        training, validation = task.part(order[held_out:]), task.part(order[:held_out]) if held_out else None
        optimizer = torch.optim.Adam(task.network.parameters(), lr=self.learning_rate)
        history, best, best_loss, waited = History(status="epoch limit"), None, float("inf"), 0
        for epoch in range(1, self.max_epochs + 1):
            loss = self._epoch(training, optimizer)
            score = None
            if validation is not None:
                with torch.no_grad():
                    score = float(validation.loss())
                waited += 1
                if score < best_loss:
                    best_loss, waited = score, 0
                    best = {name: value.clone() for name, value in task.network.state_dict().items()}
            _append(history, task, epoch, loss, accuracy=training.accuracy(), validation_score=score)
            if waited >= self.patience:
                history.status = "no improvement"
                break
        if best is not None:
            task.network.load_state_dict(best)
        return history

    def _epoch(self, task: Task, optimizer: torch.optim.Optimizer) -> float:
        total = 0.0
        order = torch.randperm(len(task.x), generator=task.generator).to(task.x.device)
        for index in order.split(self.batch_size):
            optimizer.zero_grad()
            loss = task.part(index).loss()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(index)
        return total / len(order)


def _minimise(task: Task, history: History, optimizer: str, max_iter: int, tolerance: float) -> str:
    """Run a line-search optimiser on the task, with a record for each iteration; returns why it stopped."""
    start = len(history.records)

    def note(iteration: Iteration) -> None:
        _append(
            history,
            task,
            start + iteration.iteration,
            iteration.loss,
            gradient_norm=iteration.gradient_norm,
            line_search_trials=iteration.line_search_trials,
        )

    parameters = task.network.parameters()
    minimizer = OPTIMIZERS[optimizer](parameters, max_iter=max_iter, tolerance=tolerance, callback=note)

    def closure() -> torch.Tensor:
        minimizer.zero_grad()
        loss = task.loss()
        loss.backward()
        return loss

    minimizer.step(closure)
    assert minimizer.result is not None
    return str(minimizer.result.status)


def _append(
    history: History,
    task: Task,
    iteration: int,
    loss: float,
    *,
    gradient_norm: float | None = None,
    line_search_trials: int = 0,
    accuracy: float | None = None,
    validation_score: float | None = None,
) -> None:
    layers = layer_gradient_norms(task.network)
    if gradient_norm is None:
        gradients = [p.grad for p in task.network.parameters() if p.grad is not None]
        gradient_norm = float(torch.nn.utils.get_total_norm(gradients))
    record = Record(iteration, loss, gradient_norm, layers, line_search_trials, accuracy, validation_score)
    history.records.append(record)
    if task.watch is not None:
        task.watch(record)
