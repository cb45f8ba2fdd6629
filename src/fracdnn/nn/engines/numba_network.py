"""Layers of a small dense network in one compiled pass, forward and back: see `fracdnn.kernels.small_network`.

Networks of the paper's size spend their time between operations, not in them: states of a few thousand numbers, a
dozen calls a layer. Samples do not depend on one another, so a tile of them goes through all the layers, and back,
inside the kernel with its history in cache.
"""

from typing import Any

import torch

from fracdnn.kernels.tiles import Loss, Tiles
from fracdnn.memory import ExactPlan, MemoryPlan
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines.by_hand import LayerGradients, LossLayers


class NumbaLayers(LossLayers):
    """See the module. Going back computes the states once more."""

    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None:
        self._architecture, self._plan = architecture, plan
        self._layers = weights.operators, weights.b

    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        self._y0, self._tiles = y0, self._tiles_for(y0)
        return self._tiles.forward(y0, *self._layers)

    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        return LayerGradients(*self._tiles.gradients(cotangent, self._y0, *self._layers), ())

    def loss(self, y0: torch.Tensor, W: torch.Tensor, loss: Loss) -> Any:
        to_start = self._architecture.has_input_projection
        found = self._tiles_for(y0).loss(loss, y0, *self._layers, W, to_start=to_start)
        if found is None:
            return None
        value, outputs, of_W, *gradients = found
        return value, outputs, of_W, LayerGradients._make([*gradients, ()])

    def _tiles_for(self, y0: torch.Tensor) -> Tiles:
        """How states like these go through the kernel; kept with the plan, since training asks again and again."""
        a, plan = self._architecture, self._plan

        def make() -> Tiles:
            weights = (plan.forward_matrix(y0), plan.adjoint_matrix(y0)) if isinstance(plan, ExactPlan) else None
            (n, width), factors = y0.shape, plan.factors.tolist()
            return Tiles(n, width, y0.dtype, weights=weights, factors=factors, activation=a.activation, bias=a.bias)

        return plan.kept(("tiles", len(y0), y0.dtype, torch.get_num_threads()), make)
