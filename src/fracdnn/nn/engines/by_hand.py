"""Dense networks of one shape forward and back by stacked matrix products: the CPU's fast path for members.

Autograd takes about as long between operations as a table's network takes for one: a few hundred rows, some tens of
features. A dense layer goes back by one slope and two products, and the memory by the transposed sum of
`fracdnn.memory`. Samples and weights have one more axis, the first, for the networks, and biases are vectors.
`fracdnn.training.stacked` trains members so.
"""

from typing import Any, NamedTuple

import torch

from fracdnn.memory.plan import MemoryPlan
from fracdnn.memory.sums import wide
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.operators import ACTIVATIONS, SLOPES


class LayerGradients(NamedTuple):
    """Of Y_0, all K, all b, and `plan.weight_tensors` where these are learned."""

    start: Any
    K: torch.Tensor
    b: torch.Tensor | None
    memory: tuple[torch.Tensor, ...]


class MatmulLayers:
    """Layers by matrix products: any width, any activation, also with a learned memory."""

    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Any) -> None:
        self._activation, self._slope = ACTIVATIONS[architecture.activation], SLOPES[architecture.activation]
        self._plan, self._K, self._b = plan, weights.operators, weights.b
        self._biases = [bias.unsqueeze(1) for bias in self._b.unbind(1)]
        self._factors: Any = plan.factor_numbers or plan.factors.detach().to(weights.W.device, wide(weights.W.dtype))

    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        keeps_value, activation, factors = self._slope.keeps_value, self._activation, self._factors
        history = self._plan.history_sum(y0)
        # Small matrix products are faster with a contiguous right operand.
        operators = self._K.mT.contiguous().unbind(1)
        y = history.first(y0)
        # Of each layer its input, what its slope needs, and what it gave where weights of the memory are learned.
        self._states, self._kept, self._changes = [y], [], []
        for j, (K, b) in enumerate(zip(operators, self._biases, strict=True)):
            argument = torch.baddbmm(b, y, K)
            change = activation(argument)
            self._kept.append(change if keeps_value else argument)
            if self._plan.learned:
                self._changes.append(change)
            y = history.advance(j + 1, change, factors[j])
            self._states.append(y)
        return y

    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        n_layers, slope, learned = self._plan.n_layers, self._slope.back, self._plan.learned
        grad_K, operators = torch.empty_like(self._K), self._K.unbind(1)
        grad_b = torch.empty_like(self._b)
        into_K, into_b = grad_K.unbind(1), grad_b.unbind(1)
        adjoint, factors = self._plan.history_sum(cotangent, n_layers), self._plan.scales(cotangent)
        state, adjoints = adjoint.first(cotangent), []
        for n, j in enumerate(reversed(range(n_layers)), 1):
            if learned:
                adjoints.append(state)
            cotangent = slope(state, self._kept[j])
            cotangent = cotangent * factors[j] if cotangent is state else cotangent.mul_(factors[j])
            torch.bmm(cotangent.mT, self._states[j], out=into_K[j])
            torch.sum(cotangent, 1, out=into_b[j])
            state = adjoint.advance(n, torch.bmm(cotangent, operators[j]), 1.0)
        memory = self._plan.learned_gradients(self._states[:-1], adjoints[::-1], self._changes) if learned else ()
        return LayerGradients(state, grad_K, grad_b, memory)


class Walk:
    """Samples x on their way through a network: input projection, which may be none, layers, W."""

    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Any) -> None:
        name = architecture.input_activation
        self._activation, self._slope = ACTIVATIONS[name], SLOPES[name]
        self._layers = MatmulLayers(architecture, plan, weights)
        self._weights = weights

    def outputs(self, x: torch.Tensor) -> torch.Tensor:
        """W Y_N."""
        self._last = self._layers.forward(self._project(x))
        return torch.bmm(self._last, self._weights.W.mT)

    def back(self, cotangent: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the gradients of all weights, and of the memory's weights if they are learned."""
        W = torch.bmm(cotangent.mT, self._last)
        found = self._layers.back(torch.bmm(cotangent, self._weights.W))
        return (*Weights(found.K, found.b, W, *self._back_to_input(found.start)), *found.memory)

    def _project(self, x: torch.Tensor) -> torch.Tensor:
        """Y_0."""
        self._x, weight, bias = x, self._weights.input_weight, self._weights.input_bias
        argument = torch.baddbmm(bias.unsqueeze(1), x, weight.mT.contiguous())
        value = self._activation(argument)
        self._kept = value if self._slope.keeps_value else argument
        return value

    def _back_to_input(self, cotangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the gradients of the input projection's weight and bias."""
        cotangent = self._slope.back(cotangent, self._kept)
        return torch.bmm(self._x.mT, cotangent).mT, cotangent.sum(1)
