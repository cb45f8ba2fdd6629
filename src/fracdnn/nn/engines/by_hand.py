"""A dense network forward and back by hand, as one operation of autograd; the engine "matmul".

Autograd takes about as long between operations as a table's network takes for one: a few hundred rows, some tens of
features. A dense layer goes back by one slope and two products, and the memory by the transposed sum of
`fracdnn.memory`. The sums and products are those of autograd. Other engines bring `Layers` of their own.

`Walk` and `MatmulLayers` also take several networks of one shape at once: samples and weights with one more axis, the
first, and vectors as biases. `fracdnn.training.stacked` trains members so.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from fracdnn.memory import MemoryPlan
from fracdnn.memory.sums import wide
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.operators import ACTIVATIONS, SLOPES
from fracdnn.tracing import is_batch_of_cotangents


class LayerGradients(NamedTuple):
    """Of Y_0, all K, all b, and `plan.weight_tensors` where these are learned."""

    start: Any
    K: torch.Tensor
    b: torch.Tensor | None
    memory: tuple[torch.Tensor, ...]


class Loss(NamedTuple):
    """A loss of the outputs W Y_N: its kind, what the outputs are compared with, and the weights of the samples.

    "cross_entropy" compares with int64 labels [n], "squared_error" with [n, n_outputs] numbers of the network's dtype.
    """

    kind: str
    target: torch.Tensor
    weight: torch.Tensor | None
    label_smoothing: float


class Layers(ABC):
    """The layers between input projection and W: `forward` once, then `back` as often as needed.

    Kernels of whole networks also have `loss(y0, W, loss)`, forward and back in one pass: the value, the outputs W Y_N,
    and the gradients of W and the layers (of Y_0 only if there is an input projection). It is None where labels or
    values are out of range.
    """

    @abstractmethod
    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None: ...

    @abstractmethod
    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        """Y_N."""

    @abstractmethod
    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        """All gradients, from that of Y_N."""


def feature_biases(K: torch.Tensor, b: torch.Tensor | None) -> Sequence[torch.Tensor | None]:
    """The biases of each layer, a number for each feature; contiguous, as kernels read them."""
    if b is None:
        return [None] * len(K)
    if b.dim() == 3:
        return b.unbind(1)
    return (b if b.dim() == 2 else b.unsqueeze(1).expand(K.shape[:2])).contiguous().resolve_neg().unbind()


class MatmulLayers(Layers):
    """Layers by matrix products: any width, any activation, also with a learned memory."""

    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None:
        self._activation, self._slope = ACTIVATIONS[architecture.activation], SLOPES[architecture.activation]
        self._plan, self._K, self._b = plan, weights.operators, weights.b
        # Of several networks each has its own products. By `matmul` torch takes longer to find the axes.
        self._several = self._K.dim() == 4
        self._product = torch.bmm if self._several else torch.mm
        biases: Any = feature_biases(self._K, self._b)
        self._biases = [bias.unsqueeze(1) for bias in biases] if self._several else biases
        self._factors: Any = plan.factor_numbers or plan.factors.detach().to(weights.W.device, wide(weights.W.dtype))

    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        keeps_value, activation, factors = self._slope.keeps_value, self._activation, self._factors
        history, several = self._plan.history_sum(y0), self._several
        # Small products like their right factor contiguous.
        operators = (self._K.mT.contiguous() if several else self._K).unbind(-3)
        y = history.first(y0)
        # Of each layer its input, what its slope needs, and what it gave where weights of the memory are learned.
        self._states, self._kept, self._changes = [y], [], []
        for j, (K, b) in enumerate(zip(operators, self._biases, strict=True)):
            argument = torch.baddbmm(b, y, K) if several else linear(y, K, b)
            change = activation(argument)
            self._kept.append(change if keeps_value else argument)
            if self._plan.learned:
                self._changes.append(change)
            y = history.advance(j + 1, change, factors[j])
            self._states.append(y)
        return y

    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        n_layers, slope, learned = self._plan.n_layers, self._slope.back, self._plan.learned
        grad_K, operators = torch.empty_like(self._K), self._K.unbind(-3)
        grad_b = None if self._b is None else torch.empty_like(self._b)
        into_K, into_b = grad_K.unbind(-3), None if grad_b is None else grad_b.unbind(-2 if grad_b.dim() > 1 else 0)
        adjoint, factors = self._plan.history_sum(cotangent, n_layers), self._plan.scales(cotangent)
        product = self._product
        state, adjoints = adjoint.first(cotangent), []
        for n, j in enumerate(reversed(range(n_layers)), 1):
            if learned:
                adjoints.append(state)
            cotangent = slope(state, self._kept[j])
            cotangent = cotangent * factors[j] if cotangent is state else cotangent.mul_(factors[j])
            product(cotangent.mT, self._states[j], out=into_K[j])
            if into_b is not None:
                torch.sum(cotangent, -2 if into_b[j].dim() else (0, 1), out=into_b[j])
            state = adjoint.advance(n, product(cotangent, operators[j]), 1.0)
        memory = self._plan.learned_gradients(self._states[:-1], adjoints[::-1], self._changes) if learned else ()
        return LayerGradients(state, grad_K, grad_b, memory)


class Walk:
    """Samples x on their way through a network: input projection, which may be none, layers, W."""

    def __init__(self, kind: type[Layers], architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None:
        name = architecture.input_activation
        self._activation, self._slope = ACTIVATIONS[name], SLOPES[name]
        self._layers: Any = kind(architecture, plan, weights)
        self._weights, self._product = weights, torch.mm if weights.W.dim() == 2 else torch.bmm

    def outputs(self, x: torch.Tensor) -> torch.Tensor:
        """W Y_N."""
        self._last = self._layers.forward(self._project(x))
        return self._product(self._last, self._weights.W.mT)

    def back(self, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of x, of all weights, and of the memory's weights where they are learned."""
        W = self._product(cotangent.mT, self._last)
        found = self._layers.back(self._product(cotangent, self._weights.W))
        x, *projection = self._back_to_input(found.start)
        return (x, *Weights(found.K, found.b, W, *projection), *found.memory)

    def loss(self, x: torch.Tensor, loss: Loss) -> Any:
        """A loss, the outputs, its gradients, and those of the memory's weights if these are learned.

        None where labels or values are out of range.
        """
        found = self._layers.loss(self._project(x), self._weights.W, loss)
        if found is None:
            return None
        value, outputs, W, (start, K, b, memory) = found
        return value, outputs, Weights(K, b, W, *self._back_to_input(start)[1:]), memory

    def _project(self, x: torch.Tensor) -> torch.Tensor:
        """Y_0."""
        self._x = x
        weight, bias = self._weights.input_weight, self._weights.input_bias
        if weight is None:
            return x
        if weight.dim() == 2 or bias is None:
            argument = linear(x, weight, bias)
        else:
            argument = torch.baddbmm(bias.unsqueeze(1), x, weight.mT.contiguous())
        value = self._activation(argument)
        self._kept = value if self._slope.keeps_value else argument
        return value

    def _back_to_input(self, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Gradients of x, weight and bias; of x only where it needs one."""
        weight = self._weights.input_weight
        if weight is None:
            return cotangent, None, None
        cotangent = self._slope.back(cotangent, self._kept)
        of_weight = torch.bmm(self._x.mT, cotangent).mT if weight.dim() == 3 else torch.mm(cotangent.mT, self._x)
        return cotangent @ weight if self._x.requires_grad else None, of_weight, cotangent.sum(-2)


def run(
    kind: type[Layers], architecture: Architecture, plan: MemoryPlan, x: torch.Tensor, weights: Weights
) -> torch.Tensor:
    """The outputs, by layers that can run this network and batch."""
    if torch.is_grad_enabled():
        memory = plan.weight_tensors if plan.learned else ()
        result = _Function.apply(kind, architecture, plan, x, *weights, *memory)
    else:
        result = Walk(kind, architecture, plan, weights).outputs(x)
    if result.is_cpu and not math.isfinite(result.detach().sum()):
        with torch.no_grad():
            architecture.outputs(plan, x, weights)  # raises, and names the layer, unless only the sum did
    return result


class _Function(torch.autograd.Function):
    """The outputs from x, the weights, and the memory's weights where they are learned."""

    @staticmethod
    def forward(
        ctx: Any,
        kind: type[Layers],
        architecture: Architecture,
        plan: MemoryPlan,
        x: torch.Tensor,
        *tensors: torch.Tensor | None,
    ) -> torch.Tensor:
        weights = Weights(*tensors[: len(Weights._fields)])  # type: ignore[arg-type]
        ctx.kind, ctx.architecture, ctx.plan = kind, architecture, plan
        ctx.save_for_backward(x, *weights)
        ctx.walk = Walk(kind, architecture, plan, weights)
        return ctx.walk.outputs(x)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs = ctx.saved_tensors  # also checks that nobody wrote into them since
        needed = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled() or is_batch_of_cotangents(cotangent):
            gradients: Sequence[torch.Tensor | None] = _differentiable_gradients(ctx, inputs, needed, cotangent)
        else:
            with torch.no_grad():
                gradients = ctx.walk.back(cotangent)
        return (None, None, None, *[each if need else None for each, need in zip(gradients, needed, strict=True)])


def _differentiable_gradients(
    ctx: Any, inputs: Sequence[torch.Tensor | None], needed: Sequence[bool], cotangent: torch.Tensor
) -> list[torch.Tensor | None]:
    """The gradients in torch operations, for second derivatives and for many cotangents at once."""
    with torch.enable_grad():
        # Aliases, so that hooks on the inputs run once: where the gradients arrive, not here.
        aliases = [None if each is None else each.view_as(each) for each in inputs]
        x, *weights = aliases
        result = ctx.architecture.outputs(ctx.plan, x, Weights(*weights))  # type: ignore[arg-type]
    sources = (*aliases, *(ctx.plan.weight_tensors if ctx.plan.learned else ()))
    wanted: Any = [each for each, need in zip(sources, needed, strict=True) if need]
    graph = torch.is_grad_enabled()
    found = iter(torch.autograd.grad(result, wanted, cotangent, create_graph=graph, allow_unused=True))
    return [next(found) if need else None for need in needed]
