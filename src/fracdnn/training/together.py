"""One training on several processes ("ranks"): what they add up, agree on, and wait for.

Where torch.distributed is initialized with more than one process, trainings run on all of them together, and all make
the same calls here in the same order. Elsewhere every function gives back what it was given, and costs nothing.
`what` says in an error what was waited for.
"""

import hashlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from fracdnn.exceptions import InvalidArgumentError, NotFiniteError, RankError
from fracdnn.tracing import default_store

# Of an error's words, what the other ranks are told.
_MOST_CHARACTERS = 2000
# Up to so many bytes, ranks tell all others what they have instead of adding up on the way.
_GATHERED_BYTES = 2_000_000
# Seconds in which ranks that lost another one say that they are still there.
_ROLL_CALL = 3.0
# Kinds of errors; the worst one counts.
_KINDS = {1: NotFiniteError, 2: KeyboardInterrupt}
_INTERRUPTED, _FAILED = 2, 3
_NOTHING = torch.zeros(0, dtype=torch.float64)
_NOT_FINITE = "states must stay finite, got one on some rank that is not; scale the data, or take a smaller step_size"
# Whether Ctrl-C came in a block of `interrupts_noted`.
_interrupted = False


@dataclass(frozen=True)
class Rows:
    """`n` rows on all processes together; `places` are the numbers of those that are here, None where all are.

    Mini-batches and what is held out are drawn as numbers from 0 to n − 1, alike on all processes; each takes those of
    its rows that are among them. So nothing that is drawn depends on how many processes there are.
    """

    n: int
    places: torch.Tensor | None = None

    def taken(self, numbers: torch.Tensor) -> tuple[torch.Tensor, "Rows"]:
        """Where the rows of these numbers are that are here, and the rows of these numbers, numbered anew from 0."""
        if self.places is None:
            return numbers, Rows(len(numbers))
        index = torch.full((self.n,), -1)
        index[self.places] = torch.arange(len(self.places))
        index = index[numbers.cpu()]
        here = index >= 0
        return index[here].to(numbers.device), Rows(len(numbers), here.nonzero().squeeze(1))

    def batches(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """How many rows there are in each `size` of them, and how many of these are here, which must be in order."""
        begins = torch.arange(0, self.n, size)
        whole = (self.n - begins).clamp(max=size)
        if self.places is None:
            return whole, whole
        ends = torch.searchsorted(self.places, begins + whole)
        return whole, torch.diff(ends, prepend=ends.new_zeros(1))


def count() -> int:
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def is_alone() -> bool:
    """Whether nothing has to be added up: everything is here."""
    return count() == 1


def rank() -> int:
    """Which of the ranks this process is, from 0 on."""
    return 0 if is_alone() else distributed.get_rank()


def is_first() -> bool:
    """Whether this rank writes files and talks to people."""
    return rank() == 0


def total(values: torch.Tensor, what: str) -> torch.Tensor:
    """The sum over ranks, the same bits on all."""
    return _combined(values, torch.sum, "SUM", what)


def largest(values: torch.Tensor, what: str) -> torch.Tensor:
    """The largest over ranks, element by element."""
    return _combined(values, torch.amax, "MAX", what)


def from_each(value: Any, what: str) -> list[Any]:
    """What each rank has, anything that can be pickled: arrays and tensors of the CPU, text, plain values."""
    if is_alone():
        return [value]
    found = [None] * count()
    _wait(what, lambda: distributed.all_gather_object(found, value))
    return found


def from_rank(source: int, value: Any, what: str) -> Any:
    if is_alone():
        return value
    found = [value if source == rank() else None]
    _wait(what, lambda: distributed.broadcast_object_list(found, source))
    return found[0]


def numbers(number: int, what: str) -> list[int]:
    found = torch.zeros(count(), dtype=torch.int64)
    found[rank()] = number
    return total(found, what).tolist()


def rows(n: int) -> Rows:
    """The rows of all ranks, numbered in the order of ranks, of which this one holds `n`."""
    if is_alone():
        return Rows(n)
    sizes = numbers(n, "the number of samples")
    first = sum(sizes[: rank()])
    return Rows(sum(sizes), torch.arange(first, first + n))


def check_same(**values: bytes | str) -> None:
    """Refuse values that are not the same on all ranks."""
    if is_alone():
        return
    digests = [hashlib.sha256(v if isinstance(v, bytes) else v.encode()).hexdigest() for v in values.values()]
    given = from_each(digests, "settings")
    for place, name in enumerate(values):
        others = [other for other in range(count()) if given[other][place] != given[0][place]]
        if others:
            raise InvalidArgumentError(
                f"{name} must be the same on all {count()} ranks, got other on rank {others[0]} than on rank 0; "
                f"pass the same settings and seeds to every process"
            )


@contextmanager
def caught() -> Iterator[list[BaseException]]:
    """A block whose error is put into a list, for `settle`."""
    found: list[BaseException] = []
    try:
        yield found
    except (Exception, KeyboardInterrupt) as error:
        found.append(error)


@contextmanager
def joint(what: str) -> Iterator[None]:
    """A block without a call to other ranks; where it fails on one of them, it fails on all."""
    with caught() as errors:
        yield
    settle(what, *errors)


def settle(what: str, *errors: BaseException, values: torch.Tensor = _NOTHING, sums: str = "") -> torch.Tensor:
    """Raise if a rank has an error: its own on that rank, a RankError, KeyboardInterrupt or NotFiniteError on others.

    Else the sum of `values` over ranks, of which `sums` says what it is.
    """
    error = errors[0] if errors else KeyboardInterrupt() if _interrupted else None
    if is_alone():
        if error is not None:
            raise error
        return values
    kind = 0 if error is None else next((k for k, one in _KINDS.items() if isinstance(error, one)), _FAILED)
    kinds = values.new_zeros(count())
    kinds[rank()] = kind
    found = total(torch.cat([kinds, values]), sums or what)
    kinds, values = found[: count()], found[count() :]
    worst = int(kinds.max())
    if worst > _FAILED:
        raise RankError(f"all {count()} ranks must make the same calls, got other ones on some in {what}")
    words = from_each(str(error)[:_MOST_CHARACTERS], "the error of a rank") if worst == _FAILED else []
    if error is not None and kind == worst:
        raise error
    if words:
        first = int(kinds.argmax())
        raise RankError(f"rank {first} failed in {what}: {words[first]}")
    if worst:
        raise KeyboardInterrupt if worst == _INTERRUPTED else NotFiniteError(_NOT_FINITE)
    return values


@contextmanager
def interrupts_noted() -> Iterator[None]:
    """A block in which Ctrl-C waits for the next `settle`; a second one takes effect at once. Alone, it never waits."""
    global _interrupted
    handler = signal.getsignal(signal.SIGINT)
    if is_alone() or threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return

    def note(*received: Any) -> None:
        global _interrupted
        if _interrupted:
            handler(*received)
        _interrupted = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        _interrupted = False


def _combined(values: torch.Tensor, operation: Callable[..., torch.Tensor], name: str, what: str) -> torch.Tensor:
    """Of all ranks. On a GPU, or where it is much, torch adds up on the way.

    Elsewhere each rank tells all others what it has: some milliseconds of gloo's own make its sums slower than this for
    what an evaluation of a few ranks sends.
    """
    if is_alone():
        return values
    mine = values.to(_device_of(values)).contiguous()
    if mine.is_cuda or count() * mine.nbytes > _GATHERED_BYTES:
        found = mine.clone()
        _wait(what, lambda: distributed.all_reduce(found, getattr(distributed.ReduceOp, name)))
        return found.to(values.device)
    gathered = mine.new_empty(count(), *mine.shape)
    _wait(what, lambda: distributed.all_gather(list(gathered.unbind()), mine))
    return operation(gathered, dim=0).to(values.device)


def _device_of(values: torch.Tensor) -> torch.device:
    """Where a collective takes these values: on a GPU by NCCL, else by gloo; by what there is where one is not."""
    backends = distributed.get_backend_config()
    if "gloo" not in backends or (values.is_cuda and "nccl" in backends):
        return values.device if values.is_cuda else torch.device("cuda")
    return torch.device("cpu")


def _wait(what: str, collective: Callable[[], object]) -> None:
    begin = time.monotonic()
    try:
        collective()
    except RuntimeError as error:
        waited, present = time.monotonic() - begin, _present()
        lost = [str(other) for other in range(count()) if other not in present]
        raise RankError(
            f"all {count()} ranks must take part in {what}, got nothing from rank {' and '.join(lost) or '?'} "
            f"in {waited:.1f} s ({' '.join(str(error).split())[:120]}); see whether its process ended or hangs, "
            f"or give it a longer timeout",
            reporter=min(present),
        ) from error


def _present() -> set[int]:
    """The ranks that wait in vain as this one does, which they say by torch's store."""
    present, ends = {rank()}, time.monotonic() + _ROLL_CALL
    try:
        store = default_store()
        store.set(f"fracdnn/present/{rank()}", "")
        while len(present) < count() and time.monotonic() < ends:
            time.sleep(0.05)
            present |= {other for other in range(count()) if store.check([f"fracdnn/present/{other}"])}
    except RuntimeError:
        pass  # the store went with the rank that kept it
    return present
