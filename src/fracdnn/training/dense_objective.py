"""The objective and its gradients by a pass through a dense network that records no graph, see `nn.dense_pass`."""

import math
from typing import TYPE_CHECKING

import torch

from fracdnn.nn import FractionalNetwork
from fracdnn.nn.dense_pass import dense_pass
from fracdnn.training.fused_objective import are_plain_data

if TYPE_CHECKING:
    from fracdnn.training.objective import Objective


def backward(
    objective: "Objective",
    network: FractionalNetwork,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
) -> tuple[float, torch.Tensor] | None:
    """The objective and the outputs, the gradients added to those of the parameters.

    Nothing where that does not apply, or where the usual path has to say what is wrong.
    """
    if not torch.is_grad_enabled() or not are_plain_data(objective.loss, network, x, target, weight):
        return None
    passed = dense_pass(network, x)
    if passed is None or not passed.is_finite:
        return None
    with torch.no_grad():
        found = _loss_and_cotangent(objective, passed.outputs, target, weight)
        if found is None:
            return None
        value, cotangent = found
        gradients = passed.back(cotangent)
        others = () if network.opening is None else (network.opening.weight,)
        value += objective.regularization.add_gradients(
            (passed.K, passed.b, passed.W, *others), (gradients.K, gradients.b, gradients.W, *gradients.opening[:1])
        )
    passed.give(gradients)
    return value, passed.outputs


def _loss_and_cotangent(
    objective: "Objective", outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None
) -> tuple[float, torch.Tensor] | None:
    """What `Objective.data_loss` gives, and its gradient; nothing for labels or values that are out of range."""
    n, n_outputs = outputs.shape
    shares = outputs.new_full((n,), 1.0 / n) if weight is None else weight / weight.sum()
    if objective.loss == "cross_entropy":
        least, greatest = target.aminmax()
        if least < 0 or greatest >= n_outputs:
            return None
        even = objective.label_smoothing / n_outputs
        labels = torch.full_like(outputs, even).scatter_(1, target.unsqueeze(1), 1.0 - objective.label_smoothing + even)
        logarithms = outputs.log_softmax(1)
        losses = (labels * logarithms).sum(1).neg_()
        slopes = logarithms.exp_().sub_(labels)
    else:
        difference = outputs - target
        losses = 0.5 * difference.square().mean(1)
        slopes = difference.div_(n_outputs)
    value = float(losses @ shares)
    return (value, slopes.mul_(shares.unsqueeze(1))) if math.isfinite(value) else None
