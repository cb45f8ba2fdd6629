"""The objective and its gradients, summed over ranks: one sum of one row of numbers for each evaluation.

Each rank evaluates its samples. Loss and gradients, times the weight of these samples, and that weight are added up in
float64, and divided. The regularisation is added once, after it. So all ranks have the same numbers to the last bit,
and those of one process up to the order of summation.
"""

from dataclasses import replace

import torch

from fracdnn.exceptions import InvalidArgumentError, NotFiniteError
from fracdnn.nn import FractionalNetwork
from fracdnn.training.evaluation import backward, is_plain
from fracdnn.training.objective import Objective, whole_weight
from fracdnn.training.regularization import Regularization
from fracdnn.training.together import Ranks

_WHAT = "the sum of loss and gradients"
_NOT_FINITE = "states must stay finite, got one on some rank that is not; scale the data, or take a smaller step_size"


def backward_together(
    ranks: Ranks,
    objective: Objective,
    network: FractionalNetwork,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
) -> tuple[float, torch.Tensor]:
    """As `evaluation.backward`, of the samples of all ranks; the outputs are those of the samples that are here.

    What fails on one rank fails on all.
    """
    parameters = [p for p in network.parameters() if p.requires_grad]
    before = [p.grad for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    share, value, outputs = whole_weight(x, weight), 0.0, _no_outputs(network, x)
    error: BaseException | None = None
    if share > 0:
        try:
            value, outputs = backward(_data_only(objective), network, x, target, weight)
        except (Exception, KeyboardInterrupt) as found:
            error = found
    not_finite = isinstance(error, NotFiniteError)
    head = [share * value, share, float(not_finite), float(error is not None and not not_finite)]
    sums = ranks.sum(_row(head, parameters, share if error is None else 0.0), _WHAT)
    n_not_finite, n_failed = sums[2:4].tolist()
    if n_failed:
        ranks.settle(None if not_finite else error, "an evaluation")
    if n_not_finite:
        raise error or NotFiniteError(_NOT_FINITE)
    for parameter, part, old in zip(parameters, _parts(sums[len(head) :] / sums[1], parameters), before, strict=True):
        parameter.grad = part if old is None else part + old
    with torch.no_grad():
        return float(sums[0] / sums[1]) + float(objective.regularization.add_to_gradients(network.weights())), outputs


def data_loss_together(
    ranks: Ranks,
    objective: Objective,
    network: FractionalNetwork,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
) -> torch.Tensor:
    """The mean loss of the samples of all ranks, without gradients."""
    share, value, not_finite = whole_weight(x, weight), 0.0, 0.0
    with torch.no_grad():
        try:
            value = float(objective.data_loss(network(x), target, weight)) if share > 0 else 0.0
        except NotFiniteError:
            not_finite = 1.0
    head = torch.tensor([share * value, share, not_finite], dtype=torch.float64)
    sums = ranks.sum(head, "the loss of held-out samples")
    if sums[2]:
        raise NotFiniteError(_NOT_FINITE)
    return sums[0] / sums[1]


def _no_outputs(network: FractionalNetwork, x: torch.Tensor) -> torch.Tensor:
    return x.new_zeros(len(x), network.architecture.n_outputs)


def _data_only(objective: Objective) -> Objective:
    if not is_plain(objective):
        raise InvalidArgumentError(
            f"objective must be an Objective itself on several processes, got a {type(objective).__name__}; "
            f"its data and its regularisation are summed apart"
        )
    return replace(objective, regularization=Regularization())


def _row(head: list[float], parameters: list[torch.nn.Parameter], share: float) -> torch.Tensor:
    """The head and all gradients times the share, in float64."""
    row = torch.zeros(len(head) + sum(p.numel() for p in parameters), dtype=torch.float64, device=parameters[0].device)
    row[: len(head)] = torch.tensor(head, dtype=torch.float64)
    for parameter, part in zip(parameters, row[len(head) :].split([p.numel() for p in parameters]), strict=True):
        if parameter.grad is not None and share:
            part.copy_(parameter.grad.reshape(-1)).mul_(share)
    return row


def _parts(row: torch.Tensor, parameters: list[torch.nn.Parameter]) -> list[torch.Tensor]:
    parts = row.split([p.numel() for p in parameters])
    return [part.view(p.shape).to(p.dtype) for part, p in zip(parts, parameters, strict=True)]
