"""A table that several processes go through together, in rounds of a piece each, with its rows in order."""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from fracdnn.columns.summaries import as_ipc, from_ipc
from fracdnn.exceptions import RankError
from fracdnn.tabular.encodings import UTF_8
from fracdnn.tabular.reading import read_parts
from fracdnn.tabular.streaming import TableStream, read_piece
from fracdnn.training.together import Ranks

if TYPE_CHECKING:
    import polars as pl

# A frame, and how many rows of the table are before it.
Part = tuple["pl.DataFrame", int]
_WRITING = "writing what the others made"


def parts_here(
    ranks: Ranks,
    source: str,
    numbers: list[str],
    kept: "Callable[[pl.DataFrame], pl.DataFrame]",
    encoding: str = UTF_8,
) -> "Iterator[list[Part]]":
    """For each round the parts that are here, none or more; of them, and of the rows counted, what `kept` leaves.

    All ranks have as many rounds. One process takes the table as it comes, from a pipe, too.
    """
    before = 0
    for frames in _rounds(ranks, source, numbers, kept, encoding):
        heights = ranks.each(sum(frame.height for frame in frames), "the number of rows")
        first = before + sum(heights[: ranks.rank])
        places = list(accumulate((frame.height for frame in frames), initial=first))
        before += sum(heights)
        yield list(zip(frames, places[:-1], strict=True))


def in_order(ranks: Ranks, made: "Iterator[pl.DataFrame | None]") -> "Generator[pl.DataFrame]":
    """What the ranks made in each round, in their order: on the first rank, the others only give.

    Where the first one stops taking, the others end with a RankError. It must then be closed.
    """
    if ranks.is_alone:
        yield from (frame for frame in made if frame is not None)
        return
    for frame in made:
        given = torch.empty(0, dtype=torch.uint8) if frame is None else as_ipc(frame)
        found = [ranks.from_rank(rank, given, "the parts of a table") for rank in range(ranks.count)]
        try:
            yield from (from_ipc(each) for each in found if ranks.is_first and len(each))
        except GeneratorExit:
            with suppress(RankError):
                ranks.settle(RankError("the first rank could not go on; it says why"), _WRITING)
            raise
        ranks.settle(None, _WRITING)


def _rounds(
    ranks: Ranks, source: str, numbers: list[str], kept: "Callable[[pl.DataFrame], pl.DataFrame]", encoding: str
) -> "Iterator[list[pl.DataFrame]]":
    if ranks.is_alone:
        yield from ([kept(frame)] for frame in read_parts(source, numbers, encoding))
        return
    with ranks.together("looking at the table"):
        stream = TableStream.of(source, encoding=encoding)
    ranks.check_same(table=repr(stream.spans))
    pieces = stream.pieces
    for begin in range(0, len(pieces), ranks.count):
        with ranks.together("reading the table"):
            mine = pieces[begin + ranks.rank : begin + ranks.rank + 1]
            frames = [kept(frame) for piece in mine for frame in read_piece(piece, numbers=numbers)]
        yield frames
