"""Samples in pieces, each of which fits into memory, all of which may not; and training on them.

Adam goes through them in windows; other methods add up all pieces. Every process can read any piece; of several, each
reads some of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import together
from fracdnn.training.adam import AdamLoop, AdamTraining
from fracdnn.training.evaluation import backward_together, check_plain, data_loss_together
from fracdnn.training.objective import Chunk as Chunk
from fracdnn.training.objective import Objective
from fracdnn.training.records import Record
from fracdnn.training.run import Run
from fracdnn.training.task import Task
from fracdnn.training.together import Rows
from fracdnn.validation import check_count

# Evaluations take this many samples at a time.
ROWS_AT_A_TIME = 16_384
# A window of samples, unless it is given in rows.
WINDOW_BYTES = 64_000_000


class Samples(ABC):
    """Pieces that can be read in any order, as often as needed; the same each time, and on every process."""

    @property
    @abstractmethod
    def sizes(self) -> Sequence[int]:
        """The number of samples in each piece, known without reading it."""

    @abstractmethod
    def read(self, piece: int) -> Iterator[Chunk]:
        """The samples of a piece, in one chunk or several."""

    @abstractmethod
    def digest(self) -> str:
        """The same for the same samples, and other for others."""


def chunks(samples: Samples, rows: int, *, rank: int = 0, n_ranks: int = 1) -> Iterator[Chunk]:
    """All samples in order, at most `rows` at a time; of several ranks, this one has every `n_ranks`-th piece."""
    for chunk in _flow(samples, range(rank, len(samples.sizes), n_ranks)):
        yield from (_part(chunk, begin, begin + rows) for begin in range(0, len(chunk[0]), rows))


def windows(
    samples: Samples, rows: int, *, seed: int, epoch: int, first: int = 0, rank: int = 0, n_ranks: int = 1
) -> Iterator[tuple[Chunk | None, Rows]]:
    """All samples in windows of `rows`, the last one shorter, from window `first` on.

    Pieces come in an order drawn by seed and epoch; a window may have parts of several. What earlier windows hold is
    not read, but for the piece that they share with the first. Of several ranks, this one reads every `n_ranks`-th
    piece in that order, and has those rows of a window that are in them; None where there are none.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(samples.sizes))
    sizes = np.array(samples.sizes, dtype=np.int64)[order]
    n, mine = int(sizes.sum()), slice(rank, None, n_ranks)
    ends = np.cumsum(sizes)[mine]
    begins = ends - sizes[mine]
    done = int(np.searchsorted(ends, first * rows, side="right"))
    skipped = int(np.maximum(first * rows - begins[done : done + 1], 0).sum())
    reader = _Reader(_flow(samples, order[mine][done:].tolist()))
    reader.take(skipped)
    for begin in range(first * rows, n, rows):
        end = min(begin + rows, n)
        places = _within(begins, ends, begin, end)
        yield reader.take(len(places)), Rows(end - begin, None if n_ranks == 1 else torch.from_numpy(places))


def _within(begins: np.ndarray, ends: np.ndarray, begin: int, end: int) -> np.ndarray:
    """The numbers from `begin` to `end` that lie in one of these ranges, counted from `begin`."""
    some = slice(np.searchsorted(ends, begin, side="right"), np.searchsorted(begins, end))
    ranges = zip(np.maximum(begins[some], begin), np.minimum(ends[some], end), strict=True)
    return np.concatenate([np.empty(0, dtype=np.int64), *(np.arange(*each) for each in ranges)]) - begin


def _flow(samples: Samples, pieces: Iterable[int]) -> Iterator[Chunk]:
    """The chunks of these pieces; a piece that has become another size is refused."""
    sizes = samples.sizes
    for piece in pieces:
        n = 0
        for chunk in samples.read(piece):
            n += len(chunk[0])
            if n <= sizes[piece]:
                yield chunk
        if n != sizes[piece]:
            raise InvalidArgumentError(
                f"samples must hold {sizes[piece]} rows in piece {piece}, as sizes say, got {n}; "
                f"leave them as they are during a training"
            )


class _Reader:
    """So many rows of a flow after the other; of a chunk that is read, the rest is kept for the next ones."""

    def __init__(self, flow: Iterator[Chunk]) -> None:
        self._flow = flow
        self._rest: Chunk | None = None

    def take(self, rows: int) -> Chunk | None:
        """The next rows; None where they are to be none."""
        held: list[Chunk] = []
        while rows:
            chunk = self._rest or next(self._flow)
            held.append(_part(chunk, 0, rows))
            self._rest = _part(chunk, rows, len(chunk[0])) if rows < len(chunk[0]) else None
            rows -= len(held[-1][0])
        if not held:
            return None
        x, target, weight = zip(*held, strict=True)
        return torch.cat(x), torch.cat(target), None if weight[0] is None else torch.cat(weight)


def _part(chunk: Chunk, begin: int, end: int) -> Chunk:
    x, target, weight = chunk
    return x[begin:end], target[begin:end], None if weight is None else weight[begin:end]


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
        check_plain(self.objective, "for samples in pieces")
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
        seed, share = self.generator.initial_seed(), {"rank": together.rank(), "n_ranks": together.count()}
        flow = windows(self.samples, rows, seed=seed, epoch=epoch, first=first, **share)
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
        return chunks(self.samples, ROWS_AT_A_TIME, rank=together.rank(), n_ranks=together.count())

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
        rows = self.window
        if rows is None:
            parameter = next(task.network.parameters())
            rows = WINDOW_BYTES // (task.network.architecture.n_features * parameter.element_size())
        return AdamLoop(self, run, window=max(1, -(-rows // self.batch_size))).train()
