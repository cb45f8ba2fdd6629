"""What `products` and `kernel` share: a dense network forward and back by hand, without a graph."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch

from fracdnn.memory import MemoryPlan
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.operators import ACTIVATIONS, SLOPES, affine


class LayerGradients(NamedTuple):
    """Of Y_0, all K, all b, and `plan.weight_tensors` where these are learned."""

    start: torch.Tensor
    K: torch.Tensor
    b: torch.Tensor | None
    memory: tuple[torch.Tensor, ...]


class Layers(ABC):
    """The layers between opening map and W: `forward` once, then `back` as often as is asked for."""

    @abstractmethod
    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        """Y_N."""

    @abstractmethod
    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        """All gradients, from that of Y_N."""


MakeLayers = Callable[[Architecture, MemoryPlan, Weights], Layers]


class NetworkPass:
    """Samples x on their way through a network: opening map, layers, W."""

    def __init__(self, make: MakeLayers, architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None:
        self._weights = weights
        self._layers = make(architecture, plan, weights)
        self.opening = OpeningPass(architecture.opening_activation, weights)
        self.last: torch.Tensor

    def outputs(self, x: torch.Tensor) -> torch.Tensor:
        """W Y_N."""
        self.last = self._layers.forward(self.opening.forward(x))
        return self.last @ self._weights.W.T

    def back(self, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of x, of all weights, and of the memory's weights where they are learned."""
        W = cotangent.T @ self.last
        found = self._layers.back(cotangent @ self._weights.W)
        x, *opening = self.opening.back(found.start)
        return (x, *Weights(found.K, found.b, W, *opening), *found.memory)


class OpeningPass:
    """The opening map forward and back; the identity where there is none."""

    def __init__(self, activation: str, weights: Weights) -> None:
        self._activation, self._slope = ACTIVATIONS[activation], SLOPES[activation]
        self._weight, self._bias = weights.opening_weight, weights.opening_bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Y_0."""
        self._x = x
        if self._weight is None:
            return x
        argument = affine(x, self._weight, self._bias)
        value = self._activation(argument)
        self._kept = value if self._slope.keeps_value else argument
        return value

    def back(self, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of x, weight and bias; of x only where it needs one."""
        if self._weight is None:
            return cotangent, None, None
        cotangent = self._slope.back(cotangent, self._kept)
        x = cotangent @ self._weight if self._x.requires_grad else None
        return x, cotangent.T @ self._x, cotangent.sum(0)
