"""A pass in segments that are computed again in the backward pass: how long they are, and whether they end alike.

Between the passes the positions are held in which segments began, and in the backward pass the graph of one segment.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from fracdnn.exceptions import StateChangedError
from fracdnn.tracing import in_dispatch_mode, values_are_unknown

# Numbers a layer saves for its backward pass, in states: two for a linear map and its activation, many for attention.
_SAVED_BY_A_LAYER = 4


def recomputed(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return function(*arguments) with a torch checkpoint: the backward pass computes it again.

    Torch 2.11 leaves its hooks in place while the traceback of what `function` raises lives, and whatever is
    computed until then would be taken for a part of it. So the error is raised when the checkpoint has ended.
    """
    if torch.compiler.is_compiling():
        return checkpoint(function, *arguments, use_reentrant=False)
    calls, errors = 0, list[BaseException]()

    def call(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        try:
            return function(*arguments)
        except BaseException as error:
            if calls > 1:  # of the backward pass, where torch ends the call in this way, too
                raise
            errors.append(error)
            return None

    result = checkpoint(call, *arguments, use_reentrant=False)
    if errors:
        raise errors.pop()
    return result


def segment_length(n_steps: int, position: float) -> float:
    """Steps of a segment for the least memory, where a position takes as much of it as so many steps' graph."""
    return (n_steps * position) ** 0.5


def segments(n_layers: int, *, states: int, block: int) -> list[range]:
    """Layers 1 … N in parts that begin at multiples of `block`, for positions of so many states."""
    blocks = round(segment_length(n_layers, states / _SAVED_BY_A_LAYER) / block)
    length = max(blocks, 1) * block
    edges = sorted({1, *range(length, n_layers + 1, length), n_layers + 1})
    return [range(begin, end) for begin, end in pairwise(edges)]


class SegmentEnd:
    """The state a segment ends with: the first call notes it, later ones are held to it.

    `name` is what messages call the segment, `remedy` what to do; `copy` where others may write into the state.
    """

    def __init__(self, name: str, remedy: str, *, copy: bool = False) -> None:
        self._name, self._remedy, self._copy = name, remedy, copy
        self._noted: torch.Tensor | None = None

    def check(self, begin: torch.Tensor, end: torch.Tensor) -> None:
        """The last thing that a segment does."""
        if self._noted is None:
            self._noted = end.detach().clone() if self._copy else end.detach()
        elif not (values_are_unknown() or in_dispatch_mode()) and not _alike(end.detach(), self._noted, begin.detach()):
            raise StateChangedError(
                f"{self._name} must compute the same when called again, as checkpointing does in the backward pass, "
                f"got another state; {self._remedy}"
            )
        end.square()  # saves the state: torch computes a segment again as far as it saved something, so up to here


def _alike(end: torch.Tensor, noted: torch.Tensor, begin: torch.Tensor) -> bool:
    """Whether states are the same but for rounding, half the digits, each component by its own size in the batch.

    On a CPU they are mostly the same bits; some kernels of a GPU sum in another order each time.
    """
    if torch.equal(end, noted):
        return True
    kind = end.device.type
    coarsest = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else end.dtype
    tolerance = max(torch.finfo(coarsest).eps, torch.finfo(end.dtype).eps) ** 0.5
    size = torch.stack([end, noted, begin.to(end.dtype)]).abs().amax((0, 1) if end.dim() > 1 else 0)
    return not bool((~((end - noted).abs() <= tolerance * size) & noted.isfinite()).any())
