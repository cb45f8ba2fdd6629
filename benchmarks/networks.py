"""The paper's network run in other ways, and the step that training runs: all that the cases know of its insides."""

from typing import Any

import torch
from torch.nn.functional import linear

from benchmarks.ways import definition, double_loop, sum_by_layer
from fracdnn.nn import FractionalNetwork
from fracdnn.training import Objective, backward


class OtherNetwork(FractionalNetwork):
    """The paper's network, its layers run in another way; for networks as wide as their features."""

    way: Any

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        operators, biases = self.K.unbind(), self.b.unbind()
        order, step_size = self.options["order"], self.options["step_size"]

        def layer(j: int, y: torch.Tensor) -> torch.Tensor:
            return self.architecture.layer(y, operators[j], biases[j])

        return linear(self.way(layer, x, len(operators), order, step_size), self.W)


class DefinitionNetwork(OtherNetwork):
    way = staticmethod(definition)


class PlainNetwork(OtherNetwork):
    way = staticmethod(sum_by_layer)


class NaiveNetwork(OtherNetwork):
    way = staticmethod(double_loop)


def twin(network: FractionalNetwork, kind: type[FractionalNetwork]) -> FractionalNetwork:
    """Return the same numbers in a network of another kind."""
    other = kind(**network.options).to(network.W.dtype)
    other.load_state_dict(network.state_dict())
    return other


def step(objective: Objective, network: FractionalNetwork, *batch: torch.Tensor) -> float:
    """What training does with a batch (x, target, weight): the objective's value; gradients are added to those kept."""
    return backward(objective, network, *batch)[0]


def value_and_gradient(objective: Objective, network: FractionalNetwork, *batch: torch.Tensor) -> list[torch.Tensor]:
    """By the step that training runs: the value, and the gradient of each parameter."""
    network.zero_grad()
    value = step(objective, network, *batch)
    return [torch.tensor(value, dtype=torch.float64), *_gradients(network)]


def exact_value_and_gradient(
    objective: Objective, network: FractionalNetwork, x: torch.Tensor, target: torch.Tensor, chunk: int
) -> list[torch.Tensor]:
    """By the definition, under autograd, some samples at a time: its graph holds every pair of layers."""
    other = twin(network, DefinitionNetwork)
    value = objective.regularization(other)
    value.backward()
    for each, wanted in zip(x.split(chunk), target.split(chunk), strict=True):
        part = objective.data_loss(other(each), wanted, None) * (len(each) / len(x))
        part.backward()
        value = value + part.detach()
    return [value.detach(), *_gradients(other)]


def _gradients(network: FractionalNetwork) -> list[Any]:
    return [parameter.grad for parameter in network.parameters()]
