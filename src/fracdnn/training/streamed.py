"""Training on samples that do not fit into memory: Adam in windows; other methods on sums over all pieces."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.optim import Status
from fracdnn.training.evaluation import backward, is_plain
from fracdnn.training.history import Record
from fracdnn.training.loops import Training, adam_position, falling_rates, finite_epoch, load_adam, new_adam
from fracdnn.training.objective import Objective, whole_weight
from fracdnn.training.regularization import Regularization
from fracdnn.training.run import Run, State
from fracdnn.training.samples import Chunk, Samples, chunks, count, windows
from fracdnn.training.task import Task
from fracdnn.training.together import Alone, Ranks
from fracdnn.validation import check_count, check_positive

# Evaluations take this many samples at a time.
ROWS_AT_A_TIME = 16_384
# A window of samples, unless it is given in rows.
WINDOW_BYTES = 64_000_000


@dataclass
class StreamedTask:
    """A `Task` whose samples come in pieces. `validation` is what early stopping looks at.

    Sums over samples are kept in float64; they differ from those of a `Task` by rounding.
    """

    network: FractionalNetwork
    objective: Objective
    samples: Samples
    generator: torch.Generator = field(default_factory=torch.Generator)
    watch: Callable[[Record], None] | None = None
    validation: "StreamedTask | None" = None
    ranks: Ranks = field(default_factory=Alone, init=False, repr=False)
    # Of the last `backward`: weight of the samples in the right class, and of all. Nobody holds all outputs.
    output: torch.Tensor = field(default_factory=lambda: torch.empty(0), init=False, repr=False)

    def __post_init__(self) -> None:
        if not is_plain(self.objective):
            raise InvalidArgumentError(
                f"objective must be an Objective with a Regularization for samples in pieces, got "
                f"{type(self.objective).__name__}; what a subclass computes cannot be told apart into sums"
            )

    @property
    def x(self) -> NoReturn:
        raise InvalidArgumentError(
            "training must be StreamedAdamTraining or FullBatchTraining for samples in pieces, got one that wants them "
            "all in memory; pass a Task"
        )

    part = n = x

    def digest(self) -> str:
        return self.samples.digest()

    def check_labels(self) -> None:
        """Each piece is looked at when it comes."""

    def windows(self, rows: int, epoch: int, first: int = 0) -> Iterator[Task]:
        """Tasks on windows of samples, each with a generator that shuffles it; the same for the same epoch."""
        seed = self.generator.initial_seed()
        for number, chunk in enumerate(windows(self.samples, rows, seed=seed, epoch=epoch, first=first), first):
            drawn = np.random.SeedSequence([seed, epoch, number]).generate_state(1)[0]
            yield replace(self._task(chunk), generator=torch.Generator().manual_seed(int(drawn)))

    def backward(self) -> float:
        """The objective over all samples, its gradients added to those of the parameters."""
        parameters = [p for p in self.network.parameters() if p.requires_grad]
        before = [p.grad for p in parameters]
        totals = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]
        data = replace(self.objective, regularization=Regularization())
        value = hits = whole = 0.0
        for chunk in chunks(self.samples, ROWS_AT_A_TIME):
            task, weight = self._task(chunk), whole_weight(chunk[0], chunk[2])
            if not weight:
                continue
            for parameter in parameters:
                parameter.grad = None
            loss, output = backward(data, self.network, task.x, task.target, task.weight)
            value, whole = value + weight * loss, whole + weight
            hits += weight * (task.accuracy(output) or 0.0)
            for total, parameter in zip(totals, parameters, strict=True):
                if parameter.grad is not None:
                    total.add_(parameter.grad, alpha=weight)
        for parameter, total, old in zip(parameters, totals, before, strict=True):
            gradient = (total / whole).to(parameter.dtype)
            parameter.grad = gradient if old is None else old + gradient
        self.output = torch.tensor([hits, whole], dtype=torch.float64)
        with torch.no_grad():
            return value / whole + float(self.objective.regularization.add_to_gradients(self.network.weights()))

    @torch.no_grad()
    def data_loss(self) -> torch.Tensor:
        value = whole = 0.0
        for chunk in chunks(self.samples, ROWS_AT_A_TIME):
            weight = whole_weight(chunk[0], chunk[2])
            if weight:
                value, whole = value + weight * float(self._task(chunk).data_loss()), whole + weight
        return torch.tensor(value / whole, dtype=torch.float64)

    @torch.no_grad()
    def loss(self) -> torch.Tensor:
        """The objective: data and regularisation."""
        return self.data_loss() + self.objective.regularization(self.network)

    def accuracy(self, output: torch.Tensor) -> float | None:
        """The share of samples in the right class at the last `backward`; None for a regression."""
        if self.objective.loss != "cross_entropy" or not len(output):
            return None
        return float(output[0] / output[1])

    def _task(self, chunk: Chunk) -> Task:
        return Task(self.network, self.objective, *chunk, ranks=self.ranks)


@dataclass(frozen=True)
class StreamedAdamTraining(Training):
    """Adam on samples in pieces, a record an epoch: `AdamTraining` whose samples are shuffled within windows.

    A window has `window` samples, rounded up to whole mini-batches (None: as many as 64 MB hold); pieces come in a
    random order. So seed, epoch and window say which samples come next, and a checkpoint is also written after every
    `every` windows.
    """

    learning_rate: float = 1e-3
    batch_size: int = 64
    max_epochs: int = 200
    window: int | None = None

    def __post_init__(self) -> None:
        check_positive(self.learning_rate, "learning_rate")
        for name in ("batch_size", "max_epochs"):
            check_count(getattr(self, name), name, minimum=1)
        if self.window is not None:
            check_count(self.window, "window", minimum=1)

    def _train(self, run: Run) -> str:
        if not isinstance(run.task, StreamedTask):
            raise InvalidArgumentError(
                f"task must be a StreamedTask for StreamedAdamTraining, got a {type(run.task).__name__}; "
                f"use AdamTraining for samples in memory"
            )
        optimizer = new_adam(run.task.network, self.learning_rate)
        epoch, state = 1, _Epoch()
        if run.position:
            with run.restoring():
                load_adam(optimizer, run.position["optimizer"])
                epoch = check_count(run.position["epoch"], "epoch", minimum=1)
                state = _Epoch.of_document(run.position["within"])
        for number in range(epoch, self.max_epochs + 1):
            if number > epoch:
                state = _Epoch()
            if not self._epoch(run, optimizer, number, state):
                return str(Status.NOT_FINITE)
        return "epoch limit"

    def _epoch(self, run: Run, optimizer: torch.optim.Adam, epoch: int, state: "_Epoch") -> bool:
        """The windows of an epoch from where it stands; False where one left what is finite."""
        task: Any = run.task
        n_batches, per_window = -(-count(task.samples) // self.batch_size), self._batches_in_window(task)
        n_windows = -(-n_batches // per_window)
        for window in task.windows(per_window * self.batch_size, epoch, state.window):
            first = state.window * per_window
            batches = range(first, first + per_window)
            rates = falling_rates(self.learning_rate, epoch, self.max_epochs, n_batches, batches)
            found = finite_epoch(window, optimizer, self.batch_size, rates)
            if found is None:
                return False
            loss, accuracy = found
            state.add(window, loss, accuracy)
            if state.window < n_windows:
                run.mark(state.window, lambda: _position(epoch, optimizer, state))
        run.note(state.loss, lambda: _position(epoch + 1, optimizer, _Epoch()), accuracy=state.accuracy)
        return True

    def _batches_in_window(self, task: StreamedTask) -> int:
        rows = self.window
        if rows is None:
            parameter = next(task.network.parameters())
            rows = WINDOW_BYTES // (task.network.architecture.n_features * parameter.element_size())
        return max(1, -(-rows // self.batch_size))


@dataclass
class _Epoch:
    """How far an epoch is: windows done, and sums for its record."""

    window: int = 0
    samples: int = 0
    summed_loss: float = 0.0
    weight: float = 0.0
    hits: float | None = 0.0

    @classmethod
    def of_document(cls, document: State) -> "_Epoch":
        """The inverse of `vars`; a ValueError or TypeError where it is something else."""
        found = cls(**document)
        for name in ("window", "samples"):
            check_count(getattr(found, name), name)
        numbers = (found.summed_loss, found.weight, 0.0 if found.hits is None else found.hits)
        if not all(isinstance(number, float | int) and math.isfinite(number) for number in numbers):
            raise ValueError("sums that are no numbers")
        return found

    def add(self, window: Task, loss: float, accuracy: float | None) -> None:
        weight = whole_weight(window.x, window.weight)
        self.window += 1
        self.samples += len(window.x)
        self.summed_loss += loss * len(window.x)
        self.weight += weight
        self.hits = None if accuracy is None or self.hits is None else self.hits + accuracy * weight

    @property
    def loss(self) -> float:
        return self.summed_loss / self.samples

    @property
    def accuracy(self) -> float | None:
        return None if self.hits is None else self.hits / self.weight


def _position(epoch: int, optimizer: torch.optim.Adam, state: _Epoch) -> State:
    return {**adam_position(epoch, optimizer), "within": dict(vars(state))}
