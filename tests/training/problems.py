"""Small networks with data, and their objective written out."""

import copy
import itertools
import math

import torch

from fracdnn.training import Objective, Regularization
from tests.nn.problems import outputs_by_definition

REGULARIZATION = Regularization(decay_output=0.3, smooth=0.2, decay_bias=0.1, decay=0.05)
OBJECTIVES = [
    Objective(),
    Objective(label_smoothing=0.2),
    Objective("squared_error"),
    Objective("squared_error", REGULARIZATION),
    Objective("cross_entropy", REGULARIZATION, label_smoothing=0.1),
    Objective(regularization=Regularization(smooth=2.0, laplacian="matrix", exponent=0.7)),
    Objective(regularization=Regularization(smooth=2.0, exponent=0.4)),
    Objective(regularization=Regularization(decay=2.0)),
    Objective(regularization=Regularization(decay_bias=2.0)),
]


def data(n, net, loss="cross_entropy", weighted=False, seed=3):
    """x, target and weight for a network, some weights 0."""
    generator = torch.Generator().manual_seed(seed)
    dtype, n_outputs = net.W.dtype, len(net.W)
    x = torch.randn(n, net.architecture.n_features, dtype=torch.float64, generator=generator).to(dtype)
    if loss == "cross_entropy":
        target = torch.randint(n_outputs, (n,), generator=generator)
    else:
        target = torch.randn(n, n_outputs, dtype=torch.float64, generator=generator).to(dtype)
    weight = torch.rand(n, dtype=torch.float64, generator=generator).to(dtype)
    weight[::3] = 0.0
    weight[-1] = 2.0
    return x, target, weight if weighted else None


def by_definition(objective, net, x, target, weight):
    """The loss written out, of the states of the definition, and the regularisation under autograd."""
    outputs = outputs_by_definition(net, x)
    if objective.loss == "cross_entropy":
        smoothing, n_outputs = objective.label_smoothing, outputs.shape[1]
        labels = torch.eye(n_outputs, dtype=x.dtype)[target] * (1 - smoothing) + smoothing / n_outputs
        losses = -(labels * outputs.log_softmax(1)).sum(1)
    else:
        losses = 0.5 * (outputs - target).square().mean(1)
    weight = torch.ones_like(losses) if weight is None else weight
    return (losses * weight).sum() / weight.sum() + objective.regularization(net)


def orders_of_remainders(value, net, start, slopes, first):
    """The orders in which the remainder of a Taylor expansion falls as a step is halved: 2 for right slopes."""
    generator = torch.Generator().manual_seed(5)
    direction = [torch.randn(p.shape, dtype=p.dtype, generator=generator) for p in net.parameters()]
    linear = sum(float((g * d).sum()) for g, d in zip(slopes, direction, strict=True))
    remainders = []
    for step in (first, first / 2, first / 4, first / 8):
        moved = copy.deepcopy(net)
        with torch.no_grad():
            for parameter, d in zip(moved.parameters(), direction, strict=True):
                parameter.add_(d, alpha=step)
        remainders.append(abs(float(value(moved).detach()) - start - step * linear))
    return [math.log2(coarse / fine) for coarse, fine in itertools.pairwise(remainders)]
