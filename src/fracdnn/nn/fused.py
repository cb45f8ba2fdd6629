"""A small dense network in one compiled pass: what `FractionalStack` computes, and its gradients, sooner.

Networks of the paper's size spend their time between operations, not in them: states of a few thousand numbers, a
dozen calls a layer. Samples do not depend on one another, so here a tile of them goes through all the layers, and
back, inside a compiled kernel with its history in cache (`fracdnn.kernels.small_network`, by Numba; the first use
compiles it, later ones find it on disk). Torch's threads share the tiles. Gradients of the parameters are summed over
fixed groups of tiles in a fixed order, so that they do not depend on the threads.

`last_state` is Y_N, with gradients that go through the tiles once more, forward and back. A loss of the outputs knows
what comes back as soon as it is known itself: `Tiles.loss` gives value and gradients together, in one pass.

`tiles` says whether all this applies; everything else, second derivatives among it, takes the usual path.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from fracdnn.kernels import loading
from fracdnn.kernels import tiles as tiles_of
from fracdnn.kernels.tensors import NUMPY_TYPES, is_readable
from fracdnn.kernels.tiles import Loss as Loss
from fracdnn.memory import MemoryPlan, propagate, propagate_residual
from fracdnn.nn.operators import ACTIVATIONS, DenseLayer, affine
from fracdnn.nn.stack import FractionalStack
from fracdnn.tracing import has_module_hooks, is_batch_of_cotangents, operations_are_watched

# At this width and 5,000 samples the kernel is still 4 times as fast as matrix products (docs/benchmarks.md).
MAX_WIDTH = 16
# Deeper, all pairs of layers are too many: the memory of all others goes by exponentials.
_MAX_LAYERS = 192

_CODES = tiles_of.ACTIVATIONS
LOSSES = tiles_of.LOSSES


class LossGradients(NamedTuple):
    """A loss with the outputs it was taken of, and its gradients; that of Y_0 only where it was asked for."""

    value: float
    outputs: torch.Tensor
    y: torch.Tensor | None
    parameters: torch.Tensor


def last_state(
    stack: FractionalStack, y: torch.Tensor, stacked: Callable[[], tuple[torch.Tensor, torch.Tensor]]
) -> torch.Tensor:
    """Y_N of a stack, by the kernel where it applies; `stacked()` gives the K and b of all layers, see `_Pass`."""
    parameters = _parameters(stack, y)
    if not parameters or _kernel(y.dtype) is None:
        return stack(y)
    return joined_state(stack, y, *stacked(), parameters)


def joined_state(
    stack: FractionalStack, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor, parameters: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Y_N of a stack by the kernel, which must apply, from the K and b of all layers, which come from `parameters`."""
    if torch.is_grad_enabled():
        result = _Pass.apply(stack, parameters, y, K, b)
    else:
        result = tiles(stack, y).forward(y, one_row(K, b))
    if not math.isfinite(result.detach().sum()):
        with torch.no_grad():
            stack(y)  # raises, and names the layer that left the finite numbers; unless only the sum did
    return result


def one_row(*parameters: torch.Tensor) -> torch.Tensor:
    """Parameters as the kernel takes them."""
    return torch.cat([each.reshape(-1) for each in parameters])


def usual_state(stack: FractionalStack, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Y_N from the K and b of all layers, in torch operations."""
    activation: Any = stack.layers[0]._activation

    def step(j: int, state: torch.Tensor) -> torch.Tensor:
        return activation(affine(state, K[j], b[j] if len(b) else None))

    if stack.is_residual:
        return propagate_residual(stack.step_numbers, step, y)
    return propagate(stack.plan(y), step, y)


def applies(stack: FractionalStack, y: torch.Tensor) -> bool:
    """Whether a state like y would go through the kernel."""
    return bool(_parameters(stack, y)) and _kernel(y.dtype) is not None


def tiles(stack: FractionalStack, y: torch.Tensor) -> "Tiles":
    """How states like y go through the kernel, which must apply; kept while they are alike, as in training."""
    plan = None if stack.is_residual else stack.plan(y)
    layer: Any = stack.layers[0]
    key = (y.shape, y.dtype, torch.get_num_threads(), layer._activation, None if layer.b is None else layer.b.dim())
    kept = stack.__dict__.get("_fused")
    if kept is None or kept[0] != key or kept[1].plan is not plan:
        factors = stack.step_numbers if plan is None else plan.factors.tolist()
        kept = (key, Tiles(y, plan, factors, layer._activation, key[-1]))
        stack.__dict__["_fused"] = kept
    return kept[1]


def _parameters(stack: FractionalStack, y: torch.Tensor) -> list[torch.Tensor]:
    """All K, then all b; nothing where the kernel does not apply."""
    if y.dim() != 2 or not len(y) or y.shape[1] > MAX_WIDTH or y.dtype not in NUMPY_TYPES:
        return []
    if stack.history != "auto" or len(stack.layers) > _MAX_LAYERS or not is_plain_call(stack):
        return []
    layers: list[Any] = list(stack.layers)
    if any(type(layer) is not DenseLayer or has_module_hooks(layer) for layer in layers):
        return []
    activations = {layer._activation for layer in layers}
    matrices = [layer._parameters["K"] for layer in layers]
    biases = [b for layer in layers if (b := layer._parameters.get("b")) is not None]
    width = y.shape[1]
    plain = (
        len(activations) == 1
        and activations <= {ACTIVATIONS[name] for name in _CODES}
        and len(biases) in (0, len(layers))
        and all(tensor.dtype is y.dtype and is_readable(tensor) for tensor in (y, *matrices, *biases))
        and {K.shape for K in matrices} == {(width, width)}
        and {b.shape for b in biases} in (set(), {()}, {(width,)})
    )
    return matrices + biases if plain else []


def is_plain_call(stack: FractionalStack) -> bool:
    """Whether order and steps are numbers and nobody watches or transforms the operations."""
    return not (
        operations_are_watched()
        or type(stack) is not FractionalStack
        or has_module_hooks(stack)
        or has_module_hooks(stack.layers)
        or stack.learned_order is not None
        or stack.learned_steps is not None
    )


_kernel = loading.small_network


class Tiles:
    """`fracdnn.kernels.tiles.Tiles` with the parameters as one row; `bias` is the number of axes of b in a layer."""

    def __init__(
        self,
        y: torch.Tensor,
        plan: MemoryPlan | None,
        factors: Sequence[float],
        activation: Callable[[torch.Tensor], torch.Tensor],
        bias: int | None,
    ) -> None:
        self.plan, self._n_layers = plan, len(factors)
        self._bias = {None: "none", 0: "scalar", 1: "vector"}[bias]
        self._tiles = tiles_of.Tiles(
            len(y),
            y.shape[1],
            y.dtype,
            weights=None if plan is None else (plan.forward_matrix(y), plan.adjoint_matrix(y)),
            factors=factors,
            activation=next(name for name in _CODES if ACTIVATIONS[name] is activation),
            bias=self._bias,
        )

    def forward(self, y: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
        """Y_N."""
        return self._tiles.forward(y, *self._parts(parameters)[:2])

    def gradients(
        self, cotangent: torch.Tensor, y: torch.Tensor, parameters: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of y and of the parameters from that of Y_N; the states are computed again."""
        of_y, *rest = self._tiles.gradients(cotangent, y, *self._parts(parameters)[:2])
        return of_y, one_row(*(each for each in rest if each is not None))

    def loss(self, loss: Loss, y: torch.Tensor, parameters: torch.Tensor, *, to_start: bool) -> LossGradients | None:
        """A loss of outputs W Y_N and its gradients; nothing where the usual path has to say what is wrong."""
        found = self._tiles.loss(loss, y, *self._parts(parameters), to_start=to_start)
        if found is None:
            return None
        row = one_row(*(each for each in (found.K, found.b, found.W) if each is not None))
        return LossGradients(found.value, found.outputs, found.y, row)

    def _parts(self, parameters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        n_layers, (_, width) = self._n_layers, self._tiles._shape
        n_K, n_b = n_layers * width**2, self._tiles._n_b
        K, b, W = parameters[:n_K], parameters[n_K : n_K + n_b], parameters[n_K + n_b :]
        shape = self._tiles._b_shape
        return K.view(n_layers, width, width), None if shape is None else b.view(shape), W.view(-1, width)


class _Pass(torch.autograd.Function):
    """Y_N from Y_0, K [N, width, width] and b [N, width], [N] or [0]; the parameters these came from are watched."""

    @staticmethod
    def forward(
        ctx: Any,
        stack: FractionalStack,
        parameters: Sequence[torch.Tensor],
        y: torch.Tensor,
        K: torch.Tensor,
        b: torch.Tensor,
    ) -> torch.Tensor:
        ctx.stack, ctx.tiles = stack, tiles(stack, y)
        ctx.save_for_backward(y, K, b, *parameters)
        return ctx.tiles.forward(y, one_row(K, b))

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, needed = ctx.saved_tensors[:3], ctx.needs_input_grad[2:]
        if torch.is_grad_enabled() or is_batch_of_cotangents(cotangent):
            return (None, None, *usual_gradients(partial(usual_state, ctx.stack), inputs, needed, cotangent))
        y, K, b = inputs
        of_y, row = ctx.tiles.gradients(cotangent, y, one_row(K, b))
        gradients = (of_y, row[: K.numel()].view_as(K), row[K.numel() :].view_as(b))
        return (None, None, *(gradient if need else None for gradient, need in zip(gradients, needed, strict=True)))


def usual_gradients(
    usual: Callable[..., torch.Tensor],
    inputs: Sequence[torch.Tensor],
    needed: Sequence[bool],
    cotangent: torch.Tensor,
) -> list[torch.Tensor | None]:
    """The gradients in torch operations, for second derivatives and for many cotangents at once."""
    with torch.enable_grad():
        # Aliases, so that hooks on the inputs run once: where the gradients arrive, not here.
        aliases = [tensor.view_as(tensor) for tensor in inputs]
        result = usual(*aliases)
    wanted = [tensor for tensor, need in zip(aliases, needed, strict=True) if need]
    found = iter(torch.autograd.grad(result, wanted, cotangent, create_graph=torch.is_grad_enabled()))
    return [next(found) if need else None for need in needed]
