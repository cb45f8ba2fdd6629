"""A pass in segments that are computed again in the backward pass: how long they are.

Between the passes the positions are held in which segments began, and in the backward pass the graph of one segment.
"""

from itertools import pairwise

# Numbers a layer saves for its backward pass, in states: two for a linear map and its activation, many for attention.
_SAVED_BY_A_LAYER = 4


def segment_length(n_steps: int, position: float) -> float:
    """Steps of a segment for the least memory, where a position takes as much of it as so many steps' graph."""
    return (n_steps * position) ** 0.5


def segments(n_layers: int, *, states: int, block: int) -> list[range]:
    """Layers 1 … N in parts that begin at multiples of `block`, for positions of so many states."""
    blocks = round(segment_length(n_layers, states / _SAVED_BY_A_LAYER) / block)
    length = max(blocks, 1) * block
    edges = sorted({1, *range(length, n_layers + 1, length), n_layers + 1})
    return [range(begin, end) for begin, end in pairwise(edges)]
