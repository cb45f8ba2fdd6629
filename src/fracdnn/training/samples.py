"""Samples that come in pieces, each of which fits into memory, all of which may not."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

# Features, targets, and weights or None.
Chunk = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


class Samples(ABC):
    """Pieces that can be read in any order, as often as needed; the same each time."""

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


def count(samples: Samples) -> int:
    return int(sum(samples.sizes))


def chunks(samples: Samples, rows: int) -> Iterator[Chunk]:
    """All samples in order, at most `rows` at a time."""
    for piece in range(len(samples.sizes)):
        for chunk in samples.read(piece):
            yield from _split(chunk, rows)


def windows(samples: Samples, rows: int, *, seed: int, epoch: int, first: int = 0) -> Iterator[Chunk]:
    """All samples in windows of `rows`, the last one shorter, from window `first` on.

    Pieces come in an order drawn by seed and epoch; a window may have parts of several. What earlier windows hold is
    not read, but for the piece that they share with the first.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(samples.sizes))
    ends = np.cumsum(np.array(samples.sizes, dtype=np.int64)[order])
    done = int(np.searchsorted(ends, first * rows, side="right"))
    skipped = first * rows - (int(ends[done - 1]) if done else 0)
    flow = (chunk for piece in order[done:].tolist() for chunk in samples.read(piece))
    yield from _cut(_without_first(flow, skipped), rows)


def _cut(flow: Iterable[Chunk], rows: int) -> Iterator[Chunk]:
    held: list[Chunk] = []
    n = 0
    for chunk in flow:
        begin = 0
        while begin < len(chunk[0]):
            part = _part(chunk, begin, begin + rows - n)
            held.append(part)
            n, begin = n + len(part[0]), begin + len(part[0])
            if n == rows:
                yield _joined(held)
                held, n = [], 0
    if held:
        yield _joined(held)


def _without_first(flow: Iterable[Chunk], n: int) -> Iterator[Chunk]:
    for chunk in flow:
        if n < len(chunk[0]):
            yield _part(chunk, n, len(chunk[0]))
        n = max(0, n - len(chunk[0]))


def _split(chunk: Chunk, rows: int) -> Iterator[Chunk]:
    for begin in range(0, len(chunk[0]), rows):
        yield _part(chunk, begin, begin + rows)


def _part(chunk: Chunk, begin: int, end: int) -> Chunk:
    x, target, weight = chunk
    return x[begin:end], target[begin:end], None if weight is None else weight[begin:end]


def _joined(held: list[Chunk]) -> Chunk:
    weights = [weight for _, _, weight in held if weight is not None]
    x, target = (torch.cat(parts) for parts in ([x for x, _, _ in held], [target for _, target, _ in held]))
    return x, target, torch.cat(weights) if weights else None
