"""The network in torch operations: any operator, any transform, any derivative."""

import torch
from torch.nn.functional import linear

from fracdnn.memory import MemoryPlan, propagate
from fracdnn.nn.architecture import Architecture, Weights


def outputs(architecture: Architecture, plan: MemoryPlan, x: torch.Tensor, weights: Weights) -> torch.Tensor:
    """W Y_N."""
    return linear(states(architecture, plan, x, weights), weights.W)


def states(
    architecture: Architecture, plan: MemoryPlan, x: torch.Tensor, weights: Weights, *, trajectory: bool = False
) -> torch.Tensor:
    """Y_N, or Y_0 … Y_N stacked."""
    layers = weights.layers()

    def step(j: int, y: torch.Tensor) -> torch.Tensor:
        return architecture.layer(y, *layers[j])

    y0 = architecture.project_input(x, weights)
    return propagate(plan, step, y0, trajectory=trajectory, name="layer {}".format)
