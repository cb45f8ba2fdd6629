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
from fracdnn.training import together

if TYPE_CHECKING:
    import polars as pl

# A frame, and how many rows of the table are before it.
Part = tuple["pl.DataFrame", int]
_WRITING = "writing what the others made"


def parts_here(
    source: str,
    numbers: list[str],
    kept: "Callable[[pl.DataFrame], pl.DataFrame]",
    encoding: str = UTF_8,
) -> "Iterator[list[Part]]":
    """For each round the parts that are here, none or more; of them, and of the rows counted, what `kept` leaves.

    All processes have as many rounds. One process takes the table as it comes, from a pipe, too.
    """
    before = 0
    for frames in _rounds(source, numbers, kept, encoding):
        heights = together.numbers(sum(frame.height for frame in frames), "the number of rows")
        first = before + sum(heights[: together.rank()])
        places = list(accumulate((frame.height for frame in frames), initial=first))
        before += sum(heights)
        yield list(zip(frames, places[:-1], strict=True))


def in_order(made: "Iterator[pl.DataFrame | None]") -> "Generator[pl.DataFrame]":
    """What the processes made in each round, in their order: on the first one, the others only give.

    Where the first one stops taking, the others end with a RankError. It must then be closed.
    """
    if together.is_alone():
        yield from (frame for frame in made if frame is not None)
        return
    for frame in made:
        given = torch.empty(0, dtype=torch.uint8) if frame is None else as_ipc(frame)
        found = list(together.from_each(given, "the parts of a table"))
        try:
            yield from (from_ipc(each) for each in found if together.is_first() and len(each))
        except GeneratorExit:
            with suppress(RankError):
                together.settle(_WRITING, RankError("the first rank could not go on; it says why"))
            raise
        together.settle(_WRITING)


def _rounds(
    source: str, numbers: list[str], kept: "Callable[[pl.DataFrame], pl.DataFrame]", encoding: str
) -> "Iterator[list[pl.DataFrame]]":
    if together.is_alone():
        yield from ([kept(frame)] for frame in read_parts(source, numbers, encoding))
        return
    with together.joint("looking at the table"):
        stream = TableStream.of(source, encoding=encoding)
    together.check_same(table=repr(stream.spans))
    pieces = stream.pieces
    for begin in range(0, len(pieces), together.count()):
        with together.joint("reading the table"):
            mine = pieces[begin + together.rank() : begin + together.rank() + 1]
            frames = [kept(frame) for piece in mine for frame in read_piece(piece, numbers=numbers)]
        yield frames
