"""What a `FractionalNetwork` is apart from its numbers, and those numbers as whole tensors."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from fracdnn.memory import run_chain
from fracdnn.memory.plan import MemoryPlan
from fracdnn.nn.operators import activate, affine, stencil_map


class Weights(NamedTuple):
    """The parameters beside the memory's: all layers' K [N, width, width], or ψ [N, points] of stencils; all b,
    [N, width], [N] or None; W [n_outputs, width]; and the input projection [width, n_features] with its bias [width].

    Also what has their shapes: the gradients.
    """

    operators: torch.Tensor
    b: torch.Tensor | None
    W: torch.Tensor
    input_weight: torch.Tensor | None
    input_bias: torch.Tensor | None

    def layers(self) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Operator and bias of each layer. All at once, so that their gradients go back in one operation."""
        operators = self.operators.unbind()
        biases = [None] * len(operators) if self.b is None else self.b.unbind()
        return list(zip(operators, biases, strict=True))


@dataclass(frozen=True)
class Architecture:
    """x → input projection → N layers σ(K_j y + b_j) with memory → W."""

    n_features: int
    n_outputs: int
    n_layers: int
    width: int
    has_input_projection: bool
    # Names, or functions of a tensor.
    input_activation: Any
    activation: Any
    bias: bool | str
    has_skip: bool
    operator: str
    grid_shape: tuple[int, int] | None

    def project_input(self, x: torch.Tensor, weights: Weights) -> torch.Tensor:
        """Y_0."""
        if weights.input_weight is None:
            return x
        y0 = activate(self.input_activation, affine(x, weights.input_weight, weights.input_bias))
        # Under autocast the input projection gives a coarser dtype: the states stay in that of the input.
        return y0.to(x.dtype)

    def outputs(self, plan: MemoryPlan, x: torch.Tensor, weights: Weights) -> torch.Tensor:
        """W Y_N."""
        return linear(self.states(plan, x, weights, trajectory=False), weights.W)

    def states(self, plan: MemoryPlan, x: torch.Tensor, weights: Weights, *, trajectory: bool = True) -> torch.Tensor:
        """Y_N, or Y_0 … Y_N stacked."""
        layers, y0 = weights.layers(), self.project_input(x, weights)
        name = "layer {}".format
        return run_chain(plan, lambda j, y: self.layer(y, *layers[j]), y0, trajectory=trajectory, name=name)

    def layer(self, y: torch.Tensor, operator: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        """σ(K y + b)."""
        if self.grid_shape is None:
            return activate(self.activation, affine(y, operator, b))
        return activate(self.activation, stencil_map(y, operator, b, self.grid_shape, self.operator))
