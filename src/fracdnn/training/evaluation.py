"""The objective and its gradients, evaluated: the one place that decides how.

Usually autograd goes back through loss and network, and the gradients of the regularization, which are known, are
added. Hooked parameters and subclasses of the objective have all of it from autograd.

On several ranks each evaluates its samples, at once or chunk by chunk. Loss and gradients, times the weight of these
samples, and that weight are one row of float64, summed over ranks and divided. The regularization is added once, after
that. So all ranks have the same bits, and those of one process up to the order of summation.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import FractionalNetwork
from fracdnn.tracing import has_tensor_hooks
from fracdnn.training import together
from fracdnn.training.objective import Chunk, Objective, Regularization, weighted_hits, whole_weight

# The objective, on a GPU as a tensor, and the outputs.
Evaluation = tuple[float | torch.Tensor, torch.Tensor]


def backward(
    objective: Objective,
    network: FractionalNetwork,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
) -> tuple[float, torch.Tensor]:
    """The objective as a number and the outputs; the gradients are added to those of the parameters."""
    value, outputs = evaluate(objective, network, (x, target, weight))
    number = float(value)
    if not math.isfinite(number) and x.is_cuda:
        check_labels(objective.loss, network.architecture.n_outputs, target)
    return number, outputs


def evaluate(objective: Objective, network: FractionalNetwork, chunk: Chunk) -> Evaluation:
    """The same with a value that stays on a GPU, for which nobody waits."""
    (x, target, weight), weights = chunk, network.weights()
    plain = is_plain(objective) and not has_tensor_hooks(*weights)
    with torch.enable_grad():
        outputs = network(x)
        loss = (objective.data_loss if plain else partial(objective.of_outputs, network))(outputs, target, weight)
        loss.backward()
    with torch.no_grad():
        value, decay = loss.detach(), objective.regularization.add_to_gradients(weights) if plain else 0.0
        return (value if value.is_cuda else float(value)) + decay, outputs.detach()


def is_plain(objective: Objective) -> bool:
    """Whether an objective is what its fields say."""
    return type(objective) is Objective and type(objective.regularization) is Regularization


def check_plain(objective: Objective, where: str) -> None:
    """Refuse what cannot be split into sums."""
    if not is_plain(objective):
        raise InvalidArgumentError(
            f"objective must be an Objective with a Regularization {where}, got {type(objective).__name__}; "
            f"what a subclass computes cannot be split into sums"
        )


def check_labels(loss: str, n_outputs: int, target: torch.Tensor) -> None:
    """Refuse labels that have no output: on a GPU an evaluation does not look, and the loss is NaN."""
    if loss != "cross_entropy" or not len(target):
        return
    bad = target[(target < 0) | (target >= n_outputs)]
    if len(bad):
        raise InvalidArgumentError(
            f"target must hold classes from 0 to {n_outputs - 1} for {n_outputs} outputs, got {int(bad[0])}; "
            f"number the classes from 0, or give the network more outputs"
        )


def backward_together(
    objective: Objective, network: FractionalNetwork, chunks: Iterable[Chunk]
) -> tuple[float, torch.Tensor, torch.Tensor]:
    """The objective over the samples of all ranks, its gradients added to those of the parameters.

    Then the outputs of the last chunk, zeros where its samples weigh nothing and are left out, and what `weighted_hits`
    gives for all samples.
    """
    check_plain(objective, "on several processes")
    data = replace(objective, regularization=Regularization())
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
    sums = together.settle("an evaluation", *errors, values=row, sums="the sum of loss and gradients")
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
    row = torch.tensor([loss, whole], dtype=torch.float64)
    sums = together.settle("an evaluation", *errors, values=row, sums="the loss of held-out samples")
    return sums[0] / sums[1]
