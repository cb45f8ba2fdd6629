"""One training on several processes ("ranks"): what they add up, agree on, and wait for.

Where torch.distributed is initialised with more than one process, trainings run on all of them together; elsewhere
`Alone` takes the place of `Together`, and costs nothing. All ranks make the same calls in the same order.
"""

import hashlib
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed

from fracdnn.exceptions import InvalidArgumentError, RankError
from fracdnn.tracing import default_store
from fracdnn.training.rows import Rows

# Of an error's words, what the other ranks are told.
_MOST_BYTES = 2000
# Up to so many bytes, ranks tell all others what they have instead of adding up on the way.
_GATHERED_BYTES = 2_000_000
# Seconds in which ranks that lost another one say that they are still there.
_ROLL_CALL = 3.0
_INTERRUPTED, _FAILED = 1, 2


class Ranks(ABC):
    """The processes of a training, of which this is number `rank` of `count`."""

    rank: int
    count: int
    # Whether nothing has to be added up: everything is here.
    is_alone = False

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and talks to people."""
        return self.rank == 0

    @abstractmethod
    def sum(self, values: torch.Tensor, what: str) -> torch.Tensor:
        """The sum over ranks, the same bits on all; `what` says in an error what was waited for."""

    @abstractmethod
    def largest(self, values: torch.Tensor, what: str) -> torch.Tensor:
        """The largest over ranks, element by element."""

    @abstractmethod
    def from_rank(self, rank: int, values: torch.Tensor, what: str) -> torch.Tensor:
        """What that rank has; others pass any tensor of its dtype and its number of dimensions."""

    @abstractmethod
    def texts(self, text: str, what: str) -> list[str]:
        """What each rank has to say."""

    @abstractmethod
    def rows(self, n: int) -> Rows:
        """The rows of all ranks, numbered in the order of ranks, of which this one holds `n`."""

    @abstractmethod
    def settle(self, error: BaseException | None, what: str) -> None:
        """Raise if a rank has an error: its own on that rank, a RankError or KeyboardInterrupt on others."""

    @abstractmethod
    def interrupts_noted(self) -> Any:
        """A block in which Ctrl-C waits for the next `settle`; a second one takes effect at once."""

    def each(self, number: int, what: str) -> list[int]:
        """The numbers of all ranks."""
        numbers = torch.zeros(self.count, dtype=torch.int64)
        numbers[self.rank] = number
        return [int(found) for found in self.sum(numbers, what)]

    @contextmanager
    def together(self, what: str) -> Iterator[None]:
        """A block without a call to other ranks; where it fails on one of them, it fails on all."""
        error: BaseException | None = None
        try:
            yield
        except (Exception, KeyboardInterrupt) as found:
            error = found
        self.settle(error, what)

    def check_same(self, **values: bytes | str) -> None:
        """Refuse values that are not the same on all ranks."""
        digests = {name: hashlib.sha256(v if isinstance(v, bytes) else v.encode()) for name, v in values.items()}
        told = [text.split() for text in self.texts(" ".join(d.hexdigest() for d in digests.values()), "settings")]
        for number, name in enumerate(values):
            others = [rank for rank in range(self.count) if told[rank][number] != told[0][number]]
            if others:
                raise InvalidArgumentError(
                    f"{name} must be the same on all {self.count} ranks, got other on rank {others[0]} than on rank 0; "
                    f"pass the same settings and seeds to every process"
                )


class Alone(Ranks):
    """One process: everything is as it is."""

    rank, count, is_alone = 0, 1, True

    def sum(self, values: torch.Tensor, what: str) -> torch.Tensor:
        return values

    def largest(self, values: torch.Tensor, what: str) -> torch.Tensor:
        return values

    def from_rank(self, rank: int, values: torch.Tensor, what: str) -> torch.Tensor:
        return values

    def texts(self, text: str, what: str) -> list[str]:
        return [text]

    def rows(self, n: int) -> Rows:
        return Rows(n)

    def check_same(self, **values: bytes | str) -> None:
        pass

    def settle(self, error: BaseException | None, what: str) -> None:
        if error is not None:
            raise error

    @contextmanager
    def interrupts_noted(self) -> Iterator[None]:
        yield


class Together(Ranks):
    """The processes of torch.distributed's default group."""

    def __init__(self) -> None:
        self.rank, self.count = distributed.get_rank(), distributed.get_world_size()
        self._backends = distributed.get_backend_config()
        self._interrupted = False

    def sum(self, values: torch.Tensor, what: str) -> torch.Tensor:
        gathered = self._gathered(values, what)
        return self._reduced(values, distributed.ReduceOp.SUM, what) if gathered is None else gathered.sum(0)

    def largest(self, values: torch.Tensor, what: str) -> torch.Tensor:
        gathered = self._gathered(values, what)
        return self._reduced(values, distributed.ReduceOp.MAX, what) if gathered is None else gathered.amax(0)

    def from_rank(self, rank: int, values: torch.Tensor, what: str) -> torch.Tensor:
        device = self._device_of(values)
        shape = torch.tensor(values.shape, device=device)
        self._wait(what, lambda: distributed.broadcast(shape, rank))
        mine = rank == self.rank
        found = (values if mine else values.new_empty(shape.tolist())).to(device).contiguous()
        self._wait(what, lambda: distributed.broadcast(found, rank))
        return found.to(values.device)

    def texts(self, text: str, what: str) -> list[str]:
        said = torch.tensor(list(text.encode()), dtype=torch.uint8)
        found = [self.from_rank(rank, said, what) for rank in range(self.count)]
        return [bytes(each.tolist()).decode() for each in found]

    def rows(self, n: int) -> Rows:
        sizes = self.each(n, "the number of samples")
        first = sum(sizes[: self.rank])
        return Rows(sum(sizes), torch.arange(first, first + n))

    def settle(self, error: BaseException | None, what: str) -> None:
        if error is None and self._interrupted:
            error = KeyboardInterrupt()
        kind = 0 if error is None else _INTERRUPTED if isinstance(error, KeyboardInterrupt) else _FAILED
        kinds = self.each(kind, what)
        worst = max(kinds)
        if worst > _FAILED:
            raise RankError(f"all {self.count} ranks must make the same calls, got other ones on some in {what}")
        if worst == _FAILED:
            words = self.texts(str(error)[:_MOST_BYTES] if kind == _FAILED else "", "the error of a rank")
            if kind == _FAILED and error is not None:
                raise error
            first = kinds.index(worst)
            raise RankError(f"rank {first} failed in {what}: {words[first]}")
        if worst == _INTERRUPTED:
            raise error or KeyboardInterrupt

    @contextmanager
    def interrupts_noted(self) -> Iterator[None]:
        self._interrupted = False
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            yield
            return

        def note(*received: Any) -> None:
            if self._interrupted:
                handler(*received)
            self._interrupted = True

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, handler)
            self._interrupted = False

    def _gathered(self, values: torch.Tensor, what: str) -> torch.Tensor | None:
        """What each rank has, one above the other; None where that is too much, or on a GPU.

        Some milliseconds of gloo's own make its sums slower than this for what an evaluation of a few ranks sends.
        """
        mine = values.to(self._device_of(values)).contiguous()
        if mine.is_cuda or self.count * mine.nbytes > _GATHERED_BYTES:
            return None
        found = mine.new_empty(self.count, *mine.shape)
        self._wait(what, lambda: distributed.all_gather(list(found.unbind()), mine))
        return found.to(values.device)

    def _reduced(self, values: torch.Tensor, operation: Any, what: str) -> torch.Tensor:
        found = values.to(self._device_of(values), copy=True)
        self._wait(what, lambda: distributed.all_reduce(found, operation))
        return found.to(values.device)

    def _device_of(self, values: torch.Tensor) -> torch.device:
        """Where a collective takes these values: on a GPU by NCCL, else by gloo; by what there is where one is not."""
        if "gloo" not in self._backends or (values.is_cuda and "nccl" in self._backends):
            return values.device if values.is_cuda else torch.device("cuda")
        return torch.device("cpu")

    def _wait(self, what: str, collective: Callable[[], object]) -> None:
        begin = time.monotonic()
        try:
            collective()
        except RuntimeError as error:
            waited, present = time.monotonic() - begin, self._present()
            lost = [str(rank) for rank in range(self.count) if rank not in present]
            raise RankError(
                f"all {self.count} ranks must take part in {what}, got nothing from rank {' and '.join(lost) or '?'} "
                f"in {waited:.1f} s ({' '.join(str(error).split())[:120]}); see whether its process ended or hangs, "
                f"or give it a longer timeout",
                told_by=min(present),
            ) from error

    def _present(self) -> set[int]:
        """The ranks that wait in vain as this one does, which they say by torch's store."""
        present, ends = {self.rank}, time.monotonic() + _ROLL_CALL
        try:
            store = default_store()
            store.set(f"fracdnn/present/{self.rank}", "")
            while len(present) < self.count and time.monotonic() < ends:
                time.sleep(0.05)
                present |= {rank for rank in range(self.count) if store.check([f"fracdnn/present/{rank}"])}
        except RuntimeError:
            pass  # the store went with the rank that kept it
        return present


def ranks_here() -> Ranks:
    """The ranks that a training started now would run on."""
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        return Together()
    return Alone()
