"""The processes ("ranks") that `torchrun` starts for one training, and what they send to each other.

Each rank trains on rows of its own. Rank 0 learns what the columns are and draws the seed, and tells the others. Adam
averages gradients over all ranks, weighted by what their samples weigh, so that all ranks have bit-identical networks.
Where torch.distributed is not initialized, every function returns what it was given.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed

from fracdnn.exceptions import RankError


def count() -> int:
    """Return the number of ranks, 1 without torch.distributed."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def rank() -> int:
    """Return the number of this rank, from 0."""
    return distributed.get_rank() if count() > 1 else 0


def is_first() -> bool:
    """Return True on the rank that learns the columns, writes files, and prints messages."""
    return rank() == 0


@contextmanager
def _all_ranks() -> Iterator[None]:
    """Raise RankError where torch.distributed finds that another rank has ended or does not answer."""
    try:
        yield
    except RuntimeError as error:
        words = " ".join(str(error).split())[:120]
        raise RankError(
            f"all {count()} processes must run until the training ends, but one ended or did not answer ({words}); "
            f"see what it wrote, then start torchrun again with --resume"
        ) from error


def from_each(value: Any) -> list[Any]:
    """Return the values of all ranks: arrays, tensors on the CPU, text, plain values."""
    values = [value] * count()
    if count() > 1:
        with _all_ranks():
            distributed.all_gather_object(values, value)
    return values


def from_first(value: Any) -> Any:
    """Return rank 0's value on every rank."""
    values = [value]
    if count() > 1:
        with _all_ranks():
            distributed.broadcast_object_list(values)
    return values[0]


def add_up(values: torch.Tensor) -> torch.Tensor:
    """Return the sum over ranks."""
    if count() > 1:
        with _all_ranks():
            distributed.all_reduce(values)
    return values


def is_true_on_any(value: bool) -> bool:
    """Return True if the value is true on some rank."""
    return value if count() == 1 else bool(add_up(torch.tensor(int(value))))


def average_gradients(parameters: list[torch.Tensor], losses: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Average gradients and losses [n_members] over ranks by the `weights` [n_members] of their samples.

    A parameter of several members has them as its first axis. Gradients are summed in one message in float64.
    """
    if count() == 1:
        return losses
    shares = weights.double()
    rows = [losses.double() * shares, shares]
    for parameter in parameters:
        gradient = parameter.grad.double().reshape(len(shares), -1)  # type: ignore[union-attr]
        rows.append((gradient * shares.unsqueeze(1)).reshape(-1))
    sums = add_up(torch.cat(rows)).split([len(row) for row in rows])
    whole = sums[1].clamp(min=torch.finfo(torch.float64).tiny)
    for parameter, total in zip(parameters, sums[2:], strict=True):
        parameter.grad.copy_((total.view(len(whole), -1) / whole.unsqueeze(1)).view_as(parameter))  # type: ignore[union-attr]
    return sums[0] / whole
