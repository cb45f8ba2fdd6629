"""What a `FractionalNetwork` is apart from its numbers, and those numbers as whole tensors."""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from fracdnn.nn.operators import ACTIVATIONS, affine, stencil_map


class Weights(NamedTuple):
    """The parameters beside the memory's: all layers' K [N, width, width], or ψ [N, points] of stencils; all b,
    [N, width], [N] or None; W [n_outputs, width]; and the opening map [width, n_features] with its bias [width].

    Also what has their shapes: the gradients.
    """

    operators: torch.Tensor
    b: torch.Tensor | None
    W: torch.Tensor
    opening_weight: torch.Tensor | None
    opening_bias: torch.Tensor | None

    def layers(self) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Operator and bias of each layer. All at once, so that their gradients go back in one operation."""
        operators = self.operators.unbind()
        biases = [None] * len(operators) if self.b is None else self.b.unbind()
        return list(zip(operators, biases, strict=True))


@dataclass(frozen=True)
class Architecture:
    """x → opening map → N layers σ(K_j y + b_j) with memory → W."""

    n_features: int
    n_outputs: int
    n_layers: int
    width: int
    has_opening: bool
    opening_activation: str
    activation: str
    bias: str
    has_skip: bool
    operator: str
    grid_shape: tuple[int, int] | None
    stencil: str

    def opened(self, x: torch.Tensor, weights: Weights) -> torch.Tensor:
        """Y_0."""
        if weights.opening_weight is None:
            return x
        opened = ACTIVATIONS[self.opening_activation](affine(x, weights.opening_weight, weights.opening_bias))
        # Under autocast the opening map gives a coarser dtype: the states stay in that of the input.
        return opened.to(x.dtype)

    def layer(self, y: torch.Tensor, operator: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        """σ(K y + b)."""
        if self.grid_shape is None:
            return ACTIVATIONS[self.activation](affine(y, operator, b))
        return ACTIVATIONS[self.activation](stencil_map(y, operator, b, self.grid_shape, self.stencil))
