"""Training on samples that do not fit into memory: Adam in windows; other methods on sums over all pieces."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.optim import Status
from fracdnn.training.evaluation import is_plain
from fracdnn.training.history import Record
from fracdnn.training.loops import Training, adam_position, falling_rates, finite_epoch, load_adam, new_adam
from fracdnn.training.objective import Objective, whole_weight
from fracdnn.training.run import Run, State
from fracdnn.training.samples import Chunk, Samples, chunks, count, windows
from fracdnn.training.summed import GradientSums, data_loss_together
from fracdnn.training.task import Task
from fracdnn.training.together import Alone, Ranks, ranks_here
from fracdnn.validation import check_count, check_positive

# Evaluations take this many samples at a time.
ROWS_AT_A_TIME = 16_384
# A window of samples, unless it is given in rows.
WINDOW_BYTES = 64_000_000


@dataclass
class StreamedTask:
    """A `Task` whose samples come in pieces. `validation` is what early stopping looks at.

    Sums over samples are kept in float64; they differ from those of a `Task` by rounding.

    On several processes `samples` are all of them on each, which reads those pieces that it is to evaluate; what is
    computed is that of one process up to the order of summation.
    """

    network: FractionalNetwork
    objective: Objective
    samples: Samples
    generator: torch.Generator = field(default_factory=torch.Generator)
    watch: Callable[[Record], None] | None = None
    validation: "StreamedTask | None" = None
    held_out: ClassVar[None] = None  # nobody knows rows by numbers
    ranks: Ranks = field(default_factory=ranks_here, repr=False)
    # Of the last `backward`: weight of the samples in the right class, and of all. Nobody holds all outputs.
    output: torch.Tensor = field(default_factory=lambda: torch.empty(0), init=False, repr=False)

    def __post_init__(self) -> None:
        if not is_plain(self.objective):
            raise InvalidArgumentError(
                f"objective must be an Objective with a Regularization for samples in pieces, got "
                f"{type(self.objective).__name__}; what a subclass computes cannot be told apart into sums"
            )
        if not count(self.samples):
            raise InvalidArgumentError(
                f"samples must hold at least one, got none in {len(self.samples.sizes)} pieces; pass some, "
                f"or for validation None"
            )

    @property
    def x(self) -> NoReturn:
        raise InvalidArgumentError(
            "training must be StreamedAdamTraining or FullBatchTraining for samples in pieces, got one that wants them "
            "all in memory; pass a Task"
        )

    part = n = x

    def digest(self) -> str:
        with self.ranks.together("reading the samples"):
            return self.samples.digest()

    def check_labels(self) -> None:
        """Each window is looked at when it comes."""

    def check_alike(self) -> None:
        """Refuse processes that have other samples."""
        parts = [self.samples, *([] if self.validation is None else [self.validation.samples])]
        with self.ranks.together("reading the samples"):
            said = [(list(part.sizes), part.digest()) for part in parts]
        self.ranks.check_same(samples=repr(said))

    def windows(self, rows: int, epoch: int, first: int = 0) -> Iterator[Task]:
        """Tasks on windows of samples, each with a generator that shuffles it; the same for the same epoch.

        Of each window a process reads its pieces, and holds their rows. What fails in it on one fails on all.
        """
        seed = self.generator.initial_seed()
        flow = windows(self.samples, rows, seed=seed, epoch=epoch, first=first, **self._share())
        for number in range(first, -(-count(self.samples) // rows)):
            with self.ranks.together("reading the samples"):
                chunk, numbered = next(flow)
                drawn = np.random.SeedSequence([seed, epoch, number]).generate_state(1)[0]
                generator = torch.Generator().manual_seed(int(drawn))
                task = replace(self._task(chunk or self._nothing(), self.ranks), generator=generator, rows=numbered)
                task.check_labels()
            yield task

    def backward(self) -> float:
        """The objective over all samples, its gradients added to those of the parameters."""
        sums = GradientSums(self.objective, self.network)
        with sums.over(self.ranks):
            for chunk in self._chunks():
                output = sums.add(*chunk)
                weight = whole_weight(chunk[0], chunk[2])
                if weight:
                    sums.hits += weight * (self._task(chunk, Alone()).accuracy(output) or 0.0)
        self.output = torch.tensor([sums.hits, sums.weight], dtype=torch.float64)
        return sums.backward()

    @torch.no_grad()
    def data_loss(self) -> torch.Tensor:
        return data_loss_together(self.ranks, self.objective, self.network, self._chunks())

    @torch.no_grad()
    def loss(self) -> torch.Tensor:
        """The objective: data and regularisation."""
        return self.data_loss() + self.objective.regularization(self.network)

    def accuracy(self, output: torch.Tensor) -> float | None:
        """The share of samples in the right class at the last `backward`; None for a regression."""
        if self.objective.loss != "cross_entropy" or not len(output):
            return None
        return float(output[0] / output[1])

    def _chunks(self) -> Iterator[Chunk]:
        return chunks(self.samples, ROWS_AT_A_TIME, **self._share())

    def _share(self) -> dict[str, int]:
        return {"rank": self.ranks.rank, "n_ranks": self.ranks.count}

    def _nothing(self) -> Chunk:
        """No samples, of the kind that the network takes."""
        architecture, parameter = self.network.architecture, next(self.network.parameters())
        x, target = (parameter.new_empty(0, n) for n in (architecture.n_features, architecture.n_outputs))
        return x, target[:, 0].long() if self.objective.loss == "cross_entropy" else target, None

    def _task(self, chunk: Chunk, ranks: Ranks) -> Task:
        return Task(self.network, self.objective, *chunk, ranks=ranks)


@dataclass(frozen=True)
class StreamedAdamTraining(Training):
    """Adam on samples in pieces, a record an epoch: `AdamTraining` whose samples are shuffled within windows.

    A window has `window` samples, rounded up to whole mini-batches (None: as many as 64 MB hold); pieces come in a
    random order. So seed, epoch and window say which samples come next, a checkpoint is also written after every
    `every` windows, and `max_time` ends within an epoch, after a window.

    Several processes read the pieces of a window in turn: where it has fewer of them, some have nothing to do. A larger
    `window` gives each its part.
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
                run.mark(state.window, state.loss, lambda: _position(epoch, optimizer, state), accuracy=state.accuracy)
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
        weight = window.whole_weight
        self.window += 1
        self.samples += window.n
        self.summed_loss += loss * window.n
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
