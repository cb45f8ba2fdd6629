"""The layers of the paper's network: σ(K y + b), with K dense or a stencil on a grid."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn


def identity(y: torch.Tensor) -> torch.Tensor:
    return y


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
    "silu": nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "identity": identity,
}


class Slope(NamedTuple):
    """How a cotangent goes back through an activation: `back` takes it and what was kept, the value or its argument."""

    back: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    keeps_value: bool


_aten = torch.ops.aten
SLOPES = {
    ACTIVATIONS["tanh"]: Slope(_aten.tanh_backward, True),
    ACTIVATIONS["relu"]: Slope(lambda cotangent, value: _aten.threshold_backward(cotangent, value, 0), True),
    ACTIVATIONS["gelu"]: Slope(_aten.gelu_backward, False),
    ACTIVATIONS["silu"]: Slope(_aten.silu_backward, False),
    ACTIVATIONS["sigmoid"]: Slope(_aten.sigmoid_backward, True),
    ACTIVATIONS["identity"]: Slope(lambda cotangent, value: cotangent, True),
}
BIASES = ("vector", "scalar", "none")
STENCILS = {"five-point": 5, "nine-point": 9}


def uniform_bound(fan_in: int, activation: str) -> float:
    """A of the initial U[−a, a]: √(3/fan_in) for tanh, 1/√fan_in otherwise (paper, section 6.1 (v))."""
    return math.sqrt((3.0 if activation == "tanh" else 1.0) / fan_in)


def affine(y: torch.Tensor, K: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
    """K y + b for each row y, b a vector, a number or nothing."""
    if b is None or b.dim():
        return nn.functional.linear(y, K, b)
    return nn.functional.linear(y, K) + b


class DenseLayer(nn.Module):
    """σ(y Kᵀ + b) for rows y of `width` features; a bias for each feature, one for the layer (the paper's), or none."""

    def __init__(self, width: int, *, activation: str, bias: str, generator: torch.Generator | None) -> None:
        super().__init__()
        self.K = nn.Parameter(torch.empty(width, width))
        self.b = _bias(width, bias)
        self._activation = ACTIVATIONS[activation]
        bound = uniform_bound(width, activation)
        nn.init.uniform_(self.K, -bound, bound, generator=generator)

    def linear(self, y: torch.Tensor) -> torch.Tensor:
        """K y + b."""
        return affine(y, self.K, self.b)

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return self._activation(self.linear(y))


class StencilLayer(nn.Module):
    """σ(K(ψ) y + b), K(ψ) a 3 × 3 or five-point stencil ψ on features that form a grid, zero outside it.

    The paper's Remark on parametric kernels.
    """

    _places: torch.Tensor

    def __init__(
        self,
        grid_shape: tuple[int, int],
        *,
        stencil: str,
        activation: str,
        bias: str,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        self.grid_shape = grid_shape
        points = STENCILS[stencil]
        self.psi = nn.Parameter(torch.empty(points))
        self.b = _bias(math.prod(grid_shape), bias)
        self._activation = ACTIVATIONS[activation]
        cross = torch.tensor([1, 3, 4, 5, 7]) if points == 5 else torch.arange(9)
        self.register_buffer("_places", cross, persistent=False)
        bound = uniform_bound(points, activation)
        nn.init.uniform_(self.psi, -bound, bound, generator=generator)

    def linear(self, y: torch.Tensor) -> torch.Tensor:
        """K(ψ) y + b."""
        kernel = self.psi.new_zeros(9).index_copy(0, self._places, self.psi).view(1, 1, 3, 3)
        grid = nn.functional.conv2d(y.reshape(-1, 1, *self.grid_shape), kernel, padding=1).reshape(y.shape)
        return grid if self.b is None else grid + self.b

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return self._activation(self.linear(y))


def _bias(width: int, kind: str) -> nn.Parameter | None:
    if kind == "none":
        return None
    return nn.Parameter(torch.zeros(width if kind == "vector" else ()))
