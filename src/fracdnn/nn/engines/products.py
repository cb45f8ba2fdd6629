"""Layers by matrix products, forward and back by hand: dense networks of any size, also with a learned memory.

Autograd needs about as long from one operation to the next as a table's network needs for the operation: batches of a
few hundred rows, layers of some tens of features. A dense layer goes back by one slope and two products, and the memory
as in `fracdnn.memory`. The sums and products are those of autograd.
"""

import torch

from fracdnn.memory import MemoryPlan, Tape
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines.layers import LayerGradients, Layers
from fracdnn.nn.operators import ACTIVATIONS, SLOPES, affine


class ProductLayers(Layers):
    """See the module."""

    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None:
        self._activation, self._slope = ACTIVATIONS[architecture.activation], SLOPES[architecture.activation]
        self._plan, self._K, self._b = plan, weights.operators, weights.b
        self._states: list[torch.Tensor] = []
        # Of each layer what its slope needs, and what it gave where weights of the memory are learned.
        self._kept: list[torch.Tensor] = []
        self._changes: list[torch.Tensor] = []

    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        keep_value, activation = self._slope.keeps_value, self._activation
        self._tape = tape = Tape(self._plan, y0)
        states = self._states
        states.append(tape.first(y0))
        biases = [None] * len(self._K) if self._b is None else self._b.unbind()
        for j, (K, b) in enumerate(zip(self._K.unbind(), biases, strict=True), 1):
            argument = affine(states[-1], K, b)
            change = activation(argument)
            self._kept.append(change if keep_value else argument)
            if self._plan.learned:
                self._changes.append(change)
            states.append(tape.advance(j, change))
        del tape.history
        return states[-1]

    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        grad_K, operators = torch.empty_like(self._K), self._K.unbind()
        grad_b = None if self._b is None else torch.empty_like(self._b)
        across = 0 if grad_b is None or grad_b.dim() == 2 else (0, 1)
        way, slope, learned = self._tape.way_back(cotangent), self._slope.back, self._plan.learned
        for j in reversed(range(len(operators))):
            y = self._states[j]
            saved = (y, self._changes[j]) if learned else ()
            cotangent = slope(way.change_cotangent(j + 1, cotangent, saved), self._kept[j])
            torch.mm(cotangent.T, y, out=grad_K[j])
            if grad_b is not None:
                torch.sum(cotangent, across, out=grad_b[j])
            cotangent = cotangent @ operators[j]
        memory = way.weight_gradients() if learned else ()
        return LayerGradients(way.input_cotangent(cotangent), grad_K, grad_b, memory)
