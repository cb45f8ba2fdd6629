"""A dense network forward and back by matrix products, without a graph.

Autograd needs about as long from one operation to the next as a table's network needs for the operation: batches of a
few hundred rows, layers of some tens of features. A dense network is simple enough to go back by hand: a layer is one
product and one slope, and the memory walks as in `fracdnn.memory`. The sums and products are those of autograd.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from fracdnn.memory import ResidualTape, Tape
from fracdnn.nn.network import FractionalNetwork
from fracdnn.nn.operators import SLOPES, DenseLayer, affine
from fracdnn.nn.stack import FractionalStack
from fracdnn.nn.watched import has_hooks, has_tensor_hooks, operations_are_watched


class Gradients(NamedTuple):
    """Of all K [N, width, width], all b [N, width], [N] or [0], W, the opening map where there is one, and the weights
    of the memory where they are learnt.
    """

    K: torch.Tensor
    b: torch.Tensor
    W: torch.Tensor
    opening: tuple[torch.Tensor, ...]
    memory: tuple[torch.Tensor, ...]


class DensePass:
    """Samples x on their way through a network, which must be one that `dense_pass` takes: `outputs`, then `back`."""

    def __init__(self, network: FractionalNetwork, x: torch.Tensor) -> None:
        stack: Any = network.stack
        self._network, self._x = network, x
        self._plan = None if stack.is_residual else stack.plan(x)
        self._activation = stack.layers[0]._activation
        # Of each layer what its slope needs, and what it gave where weights of the memory are learnt.
        self._kept: list[torch.Tensor] = []
        self._changes: list[torch.Tensor] = []
        with torch.no_grad():
            self.K, self.b, self.W = network.matrices()
            self._states = [self._open()]
            self._walk()
            self.outputs = self._states[-1] @ self.W.T

    @property
    def is_finite(self) -> bool:
        """Whether all states are: one that is not makes all later ones so."""
        return math.isfinite(self._states[-1].sum())

    def _open(self) -> torch.Tensor:
        if self._network.opening is None:
            return self._x
        return self._activate(self._network._opening_activation, affine(self._x, *self._network.opening.parameters()))

    def _activate(self, activation: Any, argument: torch.Tensor) -> torch.Tensor:
        value = activation(argument)
        self._kept.append(value if SLOPES[activation].keeps_value else argument)
        return value

    def _walk(self) -> None:
        stack: Any = self._network.stack
        y = self._states[0]
        self._tape: Any = ResidualTape(stack.step_sizes.tolist()) if self._plan is None else Tape(self._plan, y)
        self._states = [self._tape.first(y)]
        for j, K in enumerate(self.K):
            change = self._activate(self._activation, affine(self._states[-1], K, self.b[j] if len(self.b) else None))
            if self._plan is not None and self._plan.learnt:
                self._changes.append(change)
            self._states.append(self._tape.advance(j + 1, change))

    def back(self, cotangent: torch.Tensor) -> Gradients:
        """The gradients, from that of the outputs; to be asked for once."""
        with torch.no_grad():
            K, b = torch.empty_like(self.K), torch.empty_like(self.b)
            opening: tuple[torch.Tensor, ...] = ()
            W = cotangent.T @ self._states.pop()
            cotangent = cotangent @ self.W
            way = self._tape.way_back(cotangent)
            for j in reversed(range(len(K))):
                y = self._states.pop()
                saved = (y, self._changes.pop()) if self._changes else ()
                cotangent = self._slope(self._activation, way.change_cotangent(j + 1, cotangent, saved))
                torch.mm(cotangent.T, y, out=K[j])
                if len(b):
                    torch.sum(cotangent, 0 if b.dim() == 2 else (0, 1), out=b[j])
                cotangent = cotangent @ self.K[j]
            if self._network.opening is not None:
                cotangent = self._slope(self._network._opening_activation, way.input_cotangent(cotangent))
                opening = (cotangent.T @ self._x, cotangent.sum(0))
            learnt = self._plan is not None and self._plan.learnt
            return Gradients(K, b, W, opening, way.weight_gradients() if learnt else ())

    def _slope(self, activation: Any, cotangent: torch.Tensor) -> torch.Tensor:
        return SLOPES[activation].back(cotangent, self._kept.pop())

    def give(self, gradients: Gradients) -> None:
        """Add gradients to those of the network's parameters."""
        for parameter, gradient in self._pairs(gradients):
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                parameter.grad = gradient
            else:
                parameter.grad.add_(gradient)
        if gradients.memory:
            assert self._plan is not None
            torch.autograd.backward(self._plan.weight_tensors(), gradients.memory)

    def _pairs(self, gradients: Gradients) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        yield self._network.W.weight, gradients.W
        parameters: list[Any] = [layer._parameters for layer in self._network.layers]
        yield from zip((each["K"] for each in parameters), gradients.K.unbind(), strict=True)
        if len(gradients.b):
            yield from zip((each["b"] for each in parameters), gradients.b.unbind(), strict=True)
        if self._network.opening is not None:
            yield from zip(self._network.opening.parameters(), gradients.opening, strict=True)


def dense_pass(network: FractionalNetwork, x: torch.Tensor) -> DensePass | None:
    """The pass of x through a network, or nothing: where that is no plain dense network, or where somebody looks on."""
    stack, opening, W = network.stack, network.opening, network.W
    if type(network) is not FractionalNetwork or type(stack) is not FractionalStack or network.adjoint != "exact":
        return None
    layers: list[Any] = list(stack.layers)
    maps: list[nn.Module] = [W] if opening is None else [W, opening]
    if any(type(layer) is not DenseLayer for layer in layers) or any(type(each) is not nn.Linear for each in maps):
        return None
    if W.bias is not None or (opening is not None and opening.bias is None):
        return None
    shapes = {(layer.K.shape, None if layer.b is None else layer.b.shape) for layer in layers}
    activations = {layer._activation for layer in layers}
    if len(shapes) > 1 or len(activations) > 1 or not activations | {network._opening_activation} <= SLOPES.keys():
        return None
    if operations_are_watched() or any(map(has_hooks, (network, stack, stack.layers, *layers, *maps))):
        return None
    parameters = (p for each in (*layers, *maps) for p in each._parameters.values() if p is not None)
    if not _are_samples_for(network, x) or any(p.dtype is not x.dtype or not _is_plain(p) for p in parameters):
        return None
    return DensePass(network, x)


def _are_samples_for(network: FractionalNetwork, x: torch.Tensor) -> bool:
    plain = type(x) is torch.Tensor and x.is_cpu and not x.requires_grad
    return plain and x.dim() == 2 and x.shape[1] == network.n_features and len(x) > 0


def _is_plain(parameter: torch.Tensor) -> bool:
    return type(parameter) is nn.Parameter and parameter.is_cpu and not has_tensor_hooks(parameter)
