"""Training on samples that do not fit into memory: Adam in windows; other methods on sums over all pieces."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import together
from fracdnn.training.adam import AdamLoop, AdamTraining
from fracdnn.training.evaluation import backward_together, data_loss_together, is_plain
from fracdnn.training.objective import Objective
from fracdnn.training.records import Record
from fracdnn.training.run import Run
from fracdnn.training.samples import Chunk, Samples, chunks, windows
from fracdnn.training.task import Task
from fracdnn.validation import check_count

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
    # Of the last `backward`: weight of the samples in the right class, and of all. Nobody holds all outputs.
    output: torch.Tensor = field(default_factory=lambda: torch.empty(0), init=False, repr=False)

    def __post_init__(self) -> None:
        if not is_plain(self.objective):
            raise InvalidArgumentError(
                f"objective must be an Objective with a Regularization for samples in pieces, got "
                f"{type(self.objective).__name__}; what a subclass computes cannot be split into sums"
            )
        if not self.n:
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

    part = x

    @property
    def n(self) -> int:
        return sum(self.samples.sizes)

    def digest(self) -> str:
        with together.joint("reading the samples"):
            return self.samples.digest()

    def check_labels(self) -> None:
        """Each window is looked at when it comes."""

    def check_alike(self) -> None:
        """Refuse processes that have other samples."""
        parts = [self.samples, *([] if self.validation is None else [self.validation.samples])]
        with together.joint("reading the samples"):
            said = [(list(part.sizes), part.digest()) for part in parts]
        together.check_same(samples=repr(said))

    def windows(self, rows: int, epoch: int, first: int = 0) -> Iterator[Task]:
        """Tasks on windows of samples, each with a generator that shuffles it; the same for the same epoch.

        Of each window a process reads its pieces, and holds their rows. What fails in it on one fails on all.
        """
        seed = self.generator.initial_seed()
        flow = windows(self.samples, rows, seed=seed, epoch=epoch, first=first, **self._share())
        for number in range(first, -(-self.n // rows)):
            with together.joint("reading the samples"):
                chunk, numbered = next(flow)
                drawn = np.random.SeedSequence([seed, epoch, number]).generate_state(1)[0]
                generator = torch.Generator().manual_seed(int(drawn))
                chunk = chunk or self._nothing()
                task = Task(self.network, self.objective, *chunk, generator=generator, rows=numbered)
                task.check_labels()
            yield task

    def backward(self) -> float:
        """The objective over all samples, its gradients added to those of the parameters."""
        value, _, self.output = backward_together(self.objective, self.network, self._chunks())
        return value

    @torch.no_grad()
    def data_loss(self) -> torch.Tensor:
        return data_loss_together(self.objective, self.network, self._chunks())

    @torch.no_grad()
    def loss(self) -> torch.Tensor:
        return self.data_loss() + self.objective.regularization(self.network)

    def accuracy(self, output: torch.Tensor) -> float | None:
        """The share of samples in the right class at the last `backward`; None for a regression."""
        if self.objective.loss != "cross_entropy" or not len(output):
            return None
        return float(output[0] / output[1])

    def _chunks(self) -> Iterator[Chunk]:
        return chunks(self.samples, ROWS_AT_A_TIME, **self._share())

    def _share(self) -> dict[str, int]:
        return {"rank": together.rank(), "n_ranks": together.count()}

    def _nothing(self) -> Chunk:
        """No samples, of the kind that the network takes."""
        architecture, parameter = self.network.architecture, next(self.network.parameters())
        x, target = (parameter.new_empty(0, n) for n in (architecture.n_features, architecture.n_outputs))
        return x, target[:, 0].long() if self.objective.loss == "cross_entropy" else target, None


@dataclass(frozen=True)
class StreamedAdamTraining(AdamTraining):
    """Adam on samples in pieces, a record an epoch: `AdamTraining` whose samples are shuffled within windows.

    A window has `window` samples, rounded up to whole mini-batches (None: as many as 64 MB hold); pieces come in a
    random order. So seed, epoch and window say which samples come next, a checkpoint is also written after every
    `every` windows, and `max_time` ends within an epoch, after a window.

    Several processes read the pieces of a window in turn: where it has fewer of them, some have nothing to do. A larger
    `window` gives each its part.
    """

    window: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None:
            check_count(self.window, "window", minimum=1)

    def _train(self, run: Run) -> str:
        task: Any = run.members[0].task
        if not isinstance(task, StreamedTask):
            raise InvalidArgumentError(
                f"task must be a StreamedTask for StreamedAdamTraining, got a {type(task).__name__}; "
                f"use AdamTraining for samples in memory"
            )
        return AdamLoop(self, run, self._batches_in_window(task)).train()

    def _batches_in_window(self, task: StreamedTask) -> int:
        rows = self.window
        if rows is None:
            parameter = next(task.network.parameters())
            rows = WINDOW_BYTES // (task.network.architecture.n_features * parameter.element_size())
        return max(1, -(-rows // self.batch_size))
