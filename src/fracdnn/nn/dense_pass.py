"""A dense network forward and back by matrix products, without a graph.

Autograd needs about as long from one operation to the next as a table's network needs for the operation: batches of a
few hundred rows, layers of some tens of features. A dense network is simple enough to go back by hand: a layer is one
product and one slope, and the memory walks as in `fracdnn.memory`. The sums and products are those of autograd. Only
hooks on autograd's own nodes, which nobody can see, go unheard.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from fracdnn.kernels.tensors import NUMPY_TYPES
from fracdnn.memory import ResidualTape, Tape
from fracdnn.nn.network import FractionalNetwork
from fracdnn.nn.operators import SLOPES, DenseLayer, affine
from fracdnn.nn.stack import FractionalStack
from fracdnn.tracing import has_module_hooks, has_tensor_hooks, operations_are_watched


class Parameters(NamedTuple):
    """Of all layers K and, where they have any, b; W; weight and bias of the opening map where there is one."""

    K: list[torch.Tensor]
    b: list[torch.Tensor]
    W: torch.Tensor
    opening: tuple[torch.Tensor, ...]


class Gradients(NamedTuple):
    """Of all K [N, width, width], all b [N, width], [N] or [0], W, the opening map, and the weights of the memory where
    they are learned.
    """

    K: torch.Tensor
    b: torch.Tensor
    W: torch.Tensor
    opening: tuple[torch.Tensor, ...]
    memory: tuple[torch.Tensor, ...]


class DensePass:
    """Samples x on their way through a network, which must be one that `dense_pass` takes: `outputs`, then `back`."""

    def __init__(self, network: FractionalNetwork, parameters: Parameters, x: torch.Tensor) -> None:
        stack: Any = network.stack
        self._x, self._parameters = x, parameters
        self._plan = None if stack.is_residual else stack.plan(x)
        self._is_learned = self._plan is not None and self._plan.learned
        self._activation, self._opening_activation = stack.layers[0]._activation, network._opening_activation
        # Of each layer what its slope needs, and what it gave where weights of the memory are learned.
        self._kept: list[torch.Tensor] = []
        self._changes: list[torch.Tensor] = []
        with torch.no_grad():
            self.K, self.b, self.W = network.matrices()
            y = self._open()
            self._tape: Any = ResidualTape(stack.step_numbers) if self._plan is None else Tape(self._plan, y)
            self._states = [self._tape.first(y)]
            self._walk()
            self.outputs = self._states[-1] @ self.W.T

    @property
    def is_finite(self) -> bool:
        """Whether all states are: one that is not makes all later ones so."""
        return math.isfinite(self._states[-1].sum())

    def _open(self) -> torch.Tensor:
        if not self._parameters.opening:
            return self._x
        return self._activate(self._opening_activation, affine(self._x, *self._parameters.opening))

    def _activate(self, activation: Any, argument: torch.Tensor) -> torch.Tensor:
        value = activation(argument)
        self._kept.append(value if SLOPES[activation].keeps_value else argument)
        return value

    def _walk(self) -> None:
        for j, K in enumerate(self.K):
            change = self._activate(self._activation, affine(self._states[-1], K, self.b[j] if len(self.b) else None))
            if self._is_learned:
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
                saved = (y, self._changes.pop()) if self._is_learned else ()
                cotangent = self._slope(self._activation, way.change_cotangent(j + 1, cotangent, saved))
                torch.mm(cotangent.T, y, out=K[j])
                if len(b):
                    torch.sum(cotangent, 0 if b.dim() == 2 else (0, 1), out=b[j])
                cotangent = cotangent @ self.K[j]
            if self._parameters.opening:
                cotangent = self._slope(self._opening_activation, way.input_cotangent(cotangent))
                opening = (cotangent.T @ self._x, cotangent.sum(0))
            return Gradients(K, b, W, opening, way.weight_gradients() if self._is_learned else ())

    def _slope(self, activation: Any, cotangent: torch.Tensor) -> torch.Tensor:
        return SLOPES[activation].back(cotangent, self._kept.pop())

    def give(self, gradients: Gradients) -> None:
        """Add gradients to those of the network's parameters."""
        with torch.no_grad():
            for parameter, gradient in self._pairs(gradients):
                if parameter.requires_grad:
                    _accumulate(parameter, gradient)
        if gradients.memory:
            assert self._plan is not None
            torch.autograd.backward(self._plan.weight_tensors(), gradients.memory)

    def _pairs(self, gradients: Gradients) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        parameters = self._parameters
        yield parameters.W, gradients.W
        yield from zip(parameters.K, gradients.K.unbind(), strict=True)
        yield from zip(parameters.b, gradients.b.unbind(), strict=True)
        yield from zip(parameters.opening, gradients.opening, strict=True)


def _accumulate(parameter: torch.Tensor, gradient: torch.Tensor) -> None:
    """As autograd would: a gradient lies in memory as its parameter does, and is nobody's view."""
    if parameter.grad is not None:
        parameter.grad.add_(gradient)
    elif parameter.stride() == gradient.stride():
        parameter.grad = gradient.detach()
    else:
        parameter.grad = torch.empty_like(parameter).copy_(gradient)


def dense_pass(network: FractionalNetwork, x: torch.Tensor) -> DensePass | None:
    """The pass of x through a network, or nothing: where that is no plain dense network, or where somebody looks on."""
    parameters = _plain_parameters(network)
    if parameters is None or type(x) is not torch.Tensor or x.dtype not in NUMPY_TYPES or not x.is_cpu:
        return None
    if x.dim() != 2 or x.shape[1] != network.n_features or not len(x) or x.requires_grad:
        return None
    every = (*parameters.K, *parameters.b, parameters.W, *parameters.opening)
    if any(type(p) is not nn.Parameter or p.dtype is not x.dtype or not p.is_cpu or has_tensor_hooks(p) for p in every):
        return None
    return DensePass(network, parameters, x) if any(p.requires_grad for p in network.parameters()) else None


def _plain_parameters(network: FractionalNetwork) -> Parameters | None:
    """What there is to learn beside the memory, where every module is what it was made as and nobody looks on."""
    stack, opening, W = network.stack, network.opening, network.W
    if type(network) is not FractionalNetwork or type(stack) is not FractionalStack or network.adjoint != "exact":
        return None
    if network._joined is not None:  # then gradients belong elsewhere
        return None
    layers: list[Any] = list(stack.layers)
    maps: list[nn.Module] = [W] if opening is None else [W, opening]
    if any(type(layer) is not DenseLayer for layer in layers) or any(type(each) is not nn.Linear for each in maps):
        return None
    if W.bias is not None or (opening is not None and opening.bias is None):
        return None
    if operations_are_watched() or any(map(has_module_hooks, (network, stack, stack.layers, *layers, *maps))):
        return None
    K, b = [layer.K for layer in layers], [layer.b for layer in layers if layer.b is not None]
    activations = {layer._activation for layer in layers}
    alike = len(b) in (0, len(K)) and len({each.shape for each in K}) == 1 and len({each.shape for each in b}) < 2
    if not alike or len(activations) > 1 or not activations | {network._opening_activation} <= SLOPES.keys():
        return None
    return Parameters(K, b, W.weight, () if opening is None else (opening.weight, opening.bias))
