"""The objective and its gradients, summed over ranks: one sum of one row of numbers for each evaluation.

Each rank evaluates its samples, at once or chunk by chunk. Loss and gradients, times the weight of these samples, and
that weight are added up in float64, and divided. The regularization is added once, after it. So all ranks have the same
numbers to the last bit, and those of one process up to the order of summation.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import torch

from fracdnn.exceptions import InvalidArgumentError, NotFiniteError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import together
from fracdnn.training.evaluation import backward, is_plain
from fracdnn.training.objective import Objective, weighted_hits, whole_weight
from fracdnn.training.regularization import Regularization
from fracdnn.training.samples import Chunk

_NOT_FINITE = "states must stay finite, got one on some rank that is not; scale the data, or take a smaller step_size"


def backward_together(
    objective: Objective, network: FractionalNetwork, chunks: Iterable[Chunk]
) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The objective over the samples of all ranks, its gradients added to those of the parameters.

    Then the outputs of the last chunk, zeros where its samples weigh nothing and are left out, and what `weighted_hits`
    gives for all samples.
    """
    data = _data_only(objective)
    parameters = [p for p in network.parameters() if p.requires_grad]
    before, sizes = [p.grad for p in parameters], [p.numel() for p in parameters]
    gradients = torch.zeros(sum(sizes), dtype=torch.float64, device=parameters[0].device)
    loss, whole, hits, outputs = 0.0, 0.0, 0.0, gradients[:0]
    with together.caught() as errors:
        for x, target, weight in chunks:
            share = whole_weight(x, weight)
            if not share:
                outputs = x.new_zeros(len(x), network.architecture.n_outputs)
                continue
            for parameter in parameters:
                parameter.grad = None
            value, outputs = backward(data, network, x, target, weight)
            loss, whole = loss + share * value, whole + share
            if objective.loss == "cross_entropy":
                hits += float(weighted_hits(outputs, target, weight)[0])
            found = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            gradients.add_(torch.cat([each.reshape(-1) for each in found]), alpha=share)
    row = torch.cat([gradients.new_tensor([loss, whole, hits]), gradients])
    sums = _agreed_sum(row, errors, "the sum of loss and gradients")
    loss, whole, hits = sums[:3].tolist()
    for parameter, part, old in zip(parameters, (sums[3:] / whole).split(sizes), before, strict=True):
        gradient = part.view(parameter.shape).to(parameter.dtype)
        parameter.grad = gradient if old is None else old + gradient
    with torch.no_grad():
        decay = float(objective.regularization.add_to_gradients(network.weights()))
    return (loss / whole if whole else math.nan) + decay, outputs, torch.tensor([hits, whole], dtype=torch.float64)


@torch.no_grad()
def data_loss_together(objective: Objective, network: FractionalNetwork, chunks: Iterable[Chunk]) -> torch.Tensor:
    """The mean loss of the samples of all ranks, without gradients. What fails on one rank fails on all."""
    loss = whole = 0.0
    with together.caught() as errors:
        for x, target, weight in chunks:
            share = whole_weight(x, weight)
            if share:
                loss, whole = loss + share * float(objective.data_loss(network(x), target, weight)), whole + share
    sums = _agreed_sum(torch.tensor([loss, whole], dtype=torch.float64), errors, "the loss of held-out samples")
    return sums[0] / sums[1]


def _agreed_sum(row: torch.Tensor, errors: list[BaseException], what: str) -> torch.Tensor:
    """The sum over ranks; where a rank has an error, one on all of them."""
    errors = errors or together.noted_interrupt()
    failures = [error for error in errors if not isinstance(error, NotFiniteError)]
    sums = together.total(torch.cat([row.new_tensor([len(errors), len(failures)]), row]), what)
    n_errors, n_failed = sums[:2].tolist()
    if n_failed:
        together.settle("an evaluation", *failures)
    if n_errors:
        raise errors[0] if errors else NotFiniteError(_NOT_FINITE)
    return sums[2:]


def _data_only(objective: Objective) -> Objective:
    if not is_plain(objective):
        raise InvalidArgumentError(
            f"objective must be an Objective itself on several processes, got a {type(objective).__name__}; "
            f"its data and its regularization are summed apart"
        )
    return replace(objective, regularization=Regularization())
