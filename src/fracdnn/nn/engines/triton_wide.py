"""Wide layers on a GPU: products by torch, all the rest of a layer in the kernel of its row; the engine "triton-wide".

A layer is two launches in each pass. Forward these are K y, and the kernel that makes σ(K y + b) and the next state of
it; back they are the kernel that makes the cotangent of K y + b, and its product with K. The gradients of K and b are
those of eight layers at once: states lie in blocks of eight, and the cotangents beside them.

No layer has more memory than its state and one more tensor, which holds K y, then σ(K y + b), then its cotangent. Going
back uses that up, so that going back once more computes the layers again.
"""

from typing import Any

import torch

from fracdnn.memory import MemoryPlan
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines.by_hand import LayerGradients, Layers, feature_biases
from fracdnn.nn.operators import SLOPES


class TritonWideLayers(Layers):
    """See the module. For a fixed memory that is summed by Triton's kernels, and activations that these know."""

    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None:
        self._activation, self._factors = architecture.activation, plan.factor_numbers or []
        self._plan, self._K, self._b = plan, weights.operators, weights.b

    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        history: Any = self._plan.history_sum(y0)  # a `TritonCompressedSum`
        n_layers, block, operators = len(self._K), history.block, self._K.mT.unbind()
        self._y0, y, biases = y0, history.first(y0), feature_biases(self._K, self._b)
        # Of eight layers each: their inputs, and what becomes of their products.
        self._blocks: list[tuple[torch.Tensor, torch.Tensor]] = []
        for j in range(n_layers):
            if j % block == 0:
                states = history.block_of_states[: n_layers - j]
                values = torch.empty_like(states)
                self._blocks.append((states, values))
            products = torch.mm(y, operators[j], out=values[j % block])
            y = history.advance_layer(j + 1, products, biases[j], self._factors[j], self._activation)
        return y

    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        if not self._blocks:
            self.forward(self._y0)
        blocks, self._blocks = self._blocks, []  # also where this ends in an error: half of them would be wrong
        n_layers, operators = len(self._K), self._K.unbind()
        grad_K, grad_b = torch.empty_like(self._K), None if self._b is None else torch.empty_like(self._b)
        adjoint: Any = self._plan.history_sum(cotangent, n_layers)
        end = n_layers
        while blocks:
            states, values = blocks.pop()
            begin = end - len(values)
            for j in reversed(range(begin, end)):
                value, factor = values[j - begin], self._factors[j]
                if j == n_layers - 1:
                    value.copy_(SLOPES[self._activation].back(factor * adjoint.first(cotangent), value))
                else:
                    adjoint.retreat_layer(n_layers - 1 - j, cotangent, factor, value, self._activation)
                cotangent = value @ operators[j]
            torch.bmm(values.mT, states, out=grad_K[begin:end])
            if grad_b is not None:
                torch.sum(values, 1 if grad_b.dim() == 2 else (1, 2), out=grad_b[begin:end])
            end = begin
        return LayerGradients(adjoint.advance(n_layers, cotangent, 1.0), grad_K, grad_b, ())
