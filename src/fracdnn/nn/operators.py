"""What a layer of the paper's network computes, σ(K y + b), with K dense or a stencil on a grid."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import single


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


# Modules and functions that are the same.
_SAME = {
    **{getattr(nn, name): name.lower() for name in ("Tanh", "ReLU", "GELU", "SiLU", "Sigmoid", "Identity")},
    **{getattr(nn.functional, name): name for name in ("tanh", "relu", "gelu", "silu", "sigmoid")},
    **{function: name for name, function in ACTIVATIONS.items()},
}


def activation_name(activation: Any) -> str:
    """The name of an activation that is given as one, as a module of torch or as its function."""
    if isinstance(activation, str) and activation in ACTIVATIONS:
        return activation
    kind = type(activation) if isinstance(activation, nn.Module) else activation
    exact = getattr(activation, "approximate", "none") == "none"
    if not isinstance(activation, str) and callable(activation) and exact and kind in _SAME:
        return _SAME[kind]
    raise InvalidArgumentError(
        f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}, or torch's module or function of that name, "
        f"got {activation!r}; for another one build a FractionalStack of your own layers"
    )


class Slope(NamedTuple):
    """How a cotangent goes back through an activation: `back` takes it and what was kept, the value or its argument."""

    back: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    keeps_value: bool


_aten = torch.ops.aten
SLOPES = {
    "tanh": Slope(_aten.tanh_backward, True),
    "relu": Slope(lambda cotangent, value: _aten.threshold_backward(cotangent, value, 0), True),
    "gelu": Slope(_aten.gelu_backward, False),
    "silu": Slope(_aten.silu_backward, False),
    "sigmoid": Slope(_aten.sigmoid_backward, True),
    "identity": Slope(lambda cotangent, value: cotangent, True),
}
# Where the numbers of a stencil stand among the nine of a 3 × 3 one.
STENCILS = {"five-point": (1, 3, 4, 5, 7), "nine-point": tuple(range(9))}


def uniform_bound(fan_in: int, activation: str) -> float:
    """A of the initial U[−a, a]: √(3/fan_in) for tanh, 1/√fan_in otherwise (paper, section 6.1 (v))."""
    return math.sqrt((3.0 if activation == "tanh" else 1.0) / fan_in)


def affine(y: torch.Tensor, K: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
    """K y + b for each row y, b a vector, a number or nothing."""
    if b is None or b.shape[-1:] == K.shape[:1]:
        return nn.functional.linear(y, K, b)
    return nn.functional.linear(y, K) + b


def stencil_map(
    y: torch.Tensor, psi: torch.Tensor, b: torch.Tensor | None, grid_shape: tuple[int, int], operator: str
) -> torch.Tensor:
    """K(ψ) y + b, K(ψ) a 3 × 3 or five-point stencil ψ on features that form a grid, zero outside it."""
    if psi.numel() < 9:
        nothing, numbers = psi.new_zeros(()), dict(zip(STENCILS[operator], psi.unbind(), strict=True))
        psi = torch.stack([numbers.get(place, nothing) for place in range(9)])
    image = y.reshape(-1, 1, *grid_shape)
    mapped = nn.functional.conv2d(image, psi.view(1, 1, 3, 3), padding=1).reshape(y.shape)
    return mapped if b is None else mapped + b


class DenseLayer(nn.Module):
    """σ(y Kᵀ + b) for rows y; b is a number for each feature, one for the layer (the paper's), or None."""

    def __init__(self, K: torch.Tensor, b: torch.Tensor | None, activation: str) -> None:
        super().__init__()
        self.K = nn.Parameter(K)
        self.b = None if b is None else single.parameter(b)
        self.register_load_state_dict_pre_hook(single.take_without_axes)
        self.activation = activation

    def extra_repr(self) -> str:
        bias = self.b is not None and ("scalar" if self.b.shape != self.K.shape[:1] else True)
        return f"{self.K.shape[1]} → {self.K.shape[0]}, activation={self.activation!r}, bias={bias!r}"

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return ACTIVATIONS[self.activation](affine(y, self.K, self.b))


class StencilLayer(nn.Module):
    """σ(K(ψ) y + b), see `stencil_map`: the paper's Remark on parametric kernels."""

    def __init__(
        self,
        psi: torch.Tensor,
        b: torch.Tensor | None,
        activation: str,
        *,
        grid_shape: tuple[int, int],
        operator: str,
    ) -> None:
        super().__init__()
        self.psi = nn.Parameter(psi)
        self.b = None if b is None else single.parameter(b)
        self.register_load_state_dict_pre_hook(single.take_without_axes)
        self.activation, self.grid_shape, self.operator = activation, grid_shape, operator

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return ACTIVATIONS[self.activation](stencil_map(y, self.psi, self.b, self.grid_shape, self.operator))
