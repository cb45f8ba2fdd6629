"""Several networks for one answer: which rows each is not trained on, and how sure they may be together."""

from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import History, Task, together

# Factors of the logits that are tried, evenly in the logarithm; one far from 1 needs rows that speak for it.
_FACTORS = torch.linspace(-1.5, 1.5, 121, dtype=torch.float64)
_PENALTY, _COARSE = 1.0, 8
# What BFGS may take for its matrix, in bytes.
MOST_FOR_MATRIX = 2 * 2**30


def parts(task: Task, n_parts: int, generator: torch.Generator) -> list[torch.Tensor]:
    """The row numbers of random parts of nearly the same size, over which each class is spread evenly."""
    order = torch.randperm(task.n, generator=generator)
    if task.objective.loss == "cross_entropy":
        order = order[torch.sort(task.all_targets()[order], stable=True).indices]
    return [order[k::n_parts] for k in range(n_parts)]


def how_far(histories: Sequence[History], unit: str, n_members: int) -> str:
    """What each member did, of those that were begun, such as "3 to 5 epochs of each of 8 members"."""
    fewest, most = (pick(len(history.records) for history in histories) for pick in (min, max))
    counted = f"{'' if fewest == most else f'{fewest} to '}{most} {unit}{'' if most == 1 else 's'}"
    if n_members == 1:
        return counted
    begun = len(histories)
    which = "each of " if begun == n_members else "the first of " if begun == 1 else f"each of the first {begun} of "
    return f"{counted} of {which}{n_members} members"


def temperature_of(held_out: Sequence[Task], outputs: Sequence[torch.Tensor]) -> float:
    """By what to divide logits so that their probabilities have the least log-loss on samples held out of training.

    Each task has the samples that its network, whose `outputs` they are, was not trained on. The tempered log-loss of a
    handful of samples says little, so that one sample's worth of (log T)² is added.
    """
    n, logits = sum(task.n for task in held_out), torch.cat(list(outputs))
    target = torch.cat([task.target.cpu() for task in held_out])
    weights = [torch.ones(len(task.x)) if task.weight is None else task.weight.cpu() for task in held_out]
    weight = torch.cat(weights).to(torch.float64)

    def losses(logs: torch.Tensor) -> torch.Tensor:
        with together.joint("calibrating"):
            several = (cross_entropy(logits * factor, target, reduction="none") for factor in logs.exp())
            found = torch.stack([weight @ each for each in several] + [weight.sum()])
        found = together.total(found, "the held-out losses")
        return found[:-1] / found[-1] * n + _PENALTY * logs**2

    # First all over, then next to the best one.
    coarse = _FACTORS[::_COARSE]
    best = int(losses(coarse).argmin()) * _COARSE
    logs = _FACTORS[max(0, best - _COARSE) : best + _COARSE + 1]
    return float(torch.exp(-_lowest(logs, losses(logs))))


def _lowest(logs: torch.Tensor, losses: torch.Tensor) -> torch.Tensor:
    """Where the parabola through the least one and its neighbors has its lowest point."""
    place = int(losses.argmin().clamp(1, len(losses) - 2))
    before, here, after = losses[place - 1], losses[place], losses[place + 1]
    bend = before - 2 * here + after
    shift = 0.5 * (before - after) / bend if bend > 0 else torch.zeros(())
    return logs[place] + shift.clamp(-1, 1) * (logs[1] - logs[0])


def mean_order(networks: Sequence[FractionalNetwork]) -> float:
    """The mean of the orders as they stand: an estimator's network has one for all layers."""
    return float(np.mean([float(network.order.detach()) for network in networks]))


def mean_of(answers: Iterable[torch.Tensor]) -> torch.Tensor:
    found = list(answers)
    return found[0] if len(found) == 1 else reduce(torch.add, found) / len(found)


def check_matrix_fits(network: FractionalNetwork, solver: str) -> None:
    """Refuse BFGS for a network of so many parameters that its matrix would fill the memory."""
    n = sum(parameter.numel() for parameter in network.parameters())
    needed = n * n * network.W.element_size()
    if solver == "bfgs" and needed > MOST_FOR_MATRIX:
        dtype = str(network.W.dtype).removeprefix("torch.")
        raise InvalidArgumentError(
            f"solver={solver!r} must have at most {_gib(MOST_FOR_MATRIX)} for its matrix of n × n numbers, got "
            f"{_gib(needed)} for n = {n:,} parameters in {dtype}; use solver='lbfgs' or 'adam', a smaller width, fewer "
            f"n_layers or n_bins=0"
        )


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.3g} GiB"
