"""The objective and its gradients, summed over ranks: one sum of one row of numbers for each evaluation.

Each rank evaluates its samples, at once or chunk by chunk. Loss and gradients, times the weight of these samples, and
that weight are added up in float64, and divided. The regularisation is added once, after it. So all ranks have the same
numbers to the last bit, and those of one process up to the order of summation.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from fracdnn.exceptions import InvalidArgumentError, NotFiniteError
from fracdnn.nn import FractionalNetwork
from fracdnn.training.evaluation import backward, is_plain
from fracdnn.training.objective import Objective, whole_weight
from fracdnn.training.regularization import Regularization
from fracdnn.training.samples import Chunk
from fracdnn.training.together import Ranks

_NOT_FINITE = "states must stay finite, got one on some rank that is not; scale the data, or take a smaller step_size"


class GradientSums:
    """Loss and gradients of the samples added in the block `over(ranks)`; after it, of those that all ranks added.

    `hits` is for whoever counts samples in the right class, by weight.
    """

    def __init__(self, objective: Objective, network: FractionalNetwork) -> None:
        self._objective, self._network = objective, network
        self._data = _data_only(objective)
        self._parameters = [p for p in network.parameters() if p.requires_grad]
        self._before = [p.grad for p in self._parameters]
        self._sizes = [p.numel() for p in self._parameters]
        device = self._parameters[0].device
        self._gradients = torch.zeros(sum(self._sizes), dtype=torch.float64, device=device)
        self._loss = self.weight = self.hits = 0.0

    def add(self, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> torch.Tensor:
        """The outputs; zeros where the samples weigh nothing and are left out."""
        share = whole_weight(x, weight)
        if not share:
            return x.new_zeros(len(x), self._network.architecture.n_outputs)
        for parameter in self._parameters:
            parameter.grad = None
        value, outputs = backward(self._data, self._network, x, target, weight)
        self._loss, self.weight = self._loss + share * value, self.weight + share
        for parameter, part in zip(self._parameters, self._gradients.split(self._sizes), strict=True):
            if parameter.grad is not None:
                part.add_(parameter.grad.reshape(-1), alpha=share)
        return outputs

    @contextmanager
    def over(self, ranks: Ranks) -> Iterator[None]:
        """What fails in here on one rank fails on all at its end."""
        error: BaseException | None = None
        try:
            yield
        except (Exception, KeyboardInterrupt) as found:
            error = found
        head = self._gradients.new_tensor([self._loss, self.weight, self.hits])
        sums = _agreed_sum(ranks, torch.cat([head, self._gradients]), error, "the sum of loss and gradients")
        self._loss, self.weight, self.hits = sums[:3].tolist()
        self._gradients = sums[3:]

    def backward(self) -> float:
        """The objective, its gradients added to those of the parameters."""
        parts = (self._gradients / self.weight).split(self._sizes)
        for parameter, part, old in zip(self._parameters, parts, self._before, strict=True):
            gradient = part.view(parameter.shape).to(parameter.dtype)
            parameter.grad = gradient if old is None else old + gradient
        value = self._loss / self.weight if self.weight else math.nan
        with torch.no_grad():
            return value + float(self._objective.regularization.add_to_gradients(self._network.weights()))


@torch.no_grad()
def data_loss_together(
    ranks: Ranks, objective: Objective, network: FractionalNetwork, chunks: Iterable[Chunk]
) -> torch.Tensor:
    """The mean loss of the samples of all ranks, without gradients. What fails on one rank fails on all."""
    loss = whole = 0.0
    error: BaseException | None = None
    try:
        for x, target, weight in chunks:
            share = whole_weight(x, weight)
            if share:
                loss, whole = loss + share * float(objective.data_loss(network(x), target, weight)), whole + share
    except (Exception, KeyboardInterrupt) as found:
        error = found
    row = torch.tensor([loss, whole], dtype=torch.float64)
    sums = _agreed_sum(ranks, row, error, "the loss of held-out samples")
    return sums[0] / sums[1]


def _agreed_sum(ranks: Ranks, row: torch.Tensor, error: BaseException | None, what: str) -> torch.Tensor:
    """The sum over ranks; where a rank has an error, one on all of them."""
    not_finite = isinstance(error, NotFiniteError)
    flags = row.new_tensor([not_finite, error is not None and not not_finite])
    sums = ranks.sum(torch.cat([flags, row]), what)
    n_not_finite, n_failed = sums[:2].tolist()
    if n_failed:
        ranks.settle(None if not_finite else error, "an evaluation")
    if n_not_finite:
        raise error or NotFiniteError(_NOT_FINITE)
    return sums[2:]


def _data_only(objective: Objective) -> Objective:
    if not is_plain(objective):
        raise InvalidArgumentError(
            f"objective must be an Objective itself on several processes, got a {type(objective).__name__}; "
            f"its data and its regularisation are summed apart"
        )
    return replace(objective, regularization=Regularization())
