"""Samples that come in pieces, each of which fits into memory, all of which may not.

Every process can read any piece; of several, each reads some of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.training.together import Rows

# Features, targets, and weights or None.
Chunk = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]


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
        return _joined(held) if held else None


def _part(chunk: Chunk, begin: int, end: int) -> Chunk:
    x, target, weight = chunk
    return x[begin:end], target[begin:end], None if weight is None else weight[begin:end]


def _joined(held: list[Chunk]) -> Chunk:
    x, target, weight = zip(*held, strict=True)
    return torch.cat(x), torch.cat(target), None if weight[0] is None else torch.cat(weight)
