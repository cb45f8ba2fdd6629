"""Layers of a small dense network in one compiled pass, forward and back: see `fracdnn.kernels.small_network`.

Networks of the paper's size spend their time between operations, not in them: states of a few thousand numbers, a
dozen calls a layer. Samples do not depend on one another, so a tile of them goes through all the layers, and back,
inside the kernel with its history in cache. A loss of the outputs knows its cotangent as soon as it is known itself:
`loss_and_gradients` has both in one pass.
"""

from typing import NamedTuple

import torch

from fracdnn.kernels.tiles import Loss, Tiles
from fracdnn.memory import ExactPlan, MemoryPlan
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines.by_hand import InputProjection, LayerGradients, Layers


class Evaluation(NamedTuple):
    """A loss, the outputs it was taken of, and its gradients; those of the memory's weights where they are learned."""

    value: float | torch.Tensor
    outputs: torch.Tensor
    gradients: Weights
    memory: tuple[torch.Tensor, ...] = ()


class NumbaLayers(Layers):
    """See the module. Going back computes the states once more."""

    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None:
        self._architecture, self._plan = architecture, plan
        self._K, self._b = weights.operators, weights.b

    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        self._y0, self._tiles = y0, _tiles(self._architecture, self._plan, y0)
        return self._tiles.forward(y0, self._K, self._b)

    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        return LayerGradients(*self._tiles.gradients(cotangent, self._y0, self._K, self._b), ())


@torch.no_grad()
def loss_and_gradients(
    architecture: Architecture, plan: MemoryPlan, x: torch.Tensor, weights: Weights, loss: Loss
) -> Evaluation | None:
    """A loss of the outputs with its gradients; None where labels or values are out of range."""
    projection = InputProjection(architecture, weights)
    y0 = projection.forward(x)
    tiles, K, b, W = _tiles(architecture, plan, y0), weights.operators, weights.b, weights.W
    found = tiles.loss(loss, y0, K, b, W, to_start=architecture.has_input_projection)
    if found is None:
        return None
    projected = projection.back(found.y)[1:] if found.y is not None else (None, None)
    return Evaluation(found.value, found.outputs, Weights(found.K, found.b, found.W, *projected))


def _tiles(architecture: Architecture, plan: MemoryPlan, y0: torch.Tensor) -> Tiles:
    """How states like these go through the kernel; kept with the plan, since training asks again and again."""

    def make() -> Tiles:
        weights = (plan.forward_matrix(y0), plan.adjoint_matrix(y0)) if isinstance(plan, ExactPlan) else None
        (n, width), factors = y0.shape, plan.factors.tolist()
        activation, bias = architecture.activation, architecture.bias
        return Tiles(n, width, y0.dtype, weights=weights, factors=factors, activation=activation, bias=bias)

    return plan.kept(("tiles", len(y0), y0.dtype, torch.get_num_threads()), make)
