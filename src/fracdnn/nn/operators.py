"""The layer of the paper's network, σ(K y + b), with K dense or a stencil on a grid."""

import math
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn.learned import Device, DType

# A name, or any function of a tensor that keeps its shape, modules among them.
Activation = str | Callable[[torch.Tensor], torch.Tensor]


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


# Names of modules and functions of torch.
_NAMES = {
    **{getattr(nn, name): name.lower() for name in ("Tanh", "ReLU", "GELU", "SiLU", "Sigmoid", "Identity")},
    **{getattr(nn.functional, name): name for name in ("tanh", "relu", "gelu", "silu", "sigmoid")},
    **{function: name for name, function in ACTIVATIONS.items()},
}


def check_activation(activation: Any) -> Activation:
    """Return the name of an activation given by name, as a module of torch or as its function; others unchanged."""
    if isinstance(activation, str) and activation in ACTIVATIONS:
        return activation
    kind = type(activation) if isinstance(activation, nn.Module) else activation
    exact = getattr(activation, "approximate", "none") == "none"
    if not callable(activation) or (isinstance(activation, type) and activation not in _NAMES):
        raise InvalidArgumentError(
            f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}, a module or a function of a tensor, "
            f"got {activation!r}; pass for example 'silu', nn.PReLU() or torch.sin"
        )
    return _NAMES[kind] if exact and isinstance(kind, Hashable) and kind in _NAMES else activation


def activate(activation: Activation, y: torch.Tensor) -> torch.Tensor:
    """Return σ(y); a function of the user's must keep the shape of y."""
    if isinstance(activation, str):
        return ACTIVATIONS[activation](y)
    value = activation(y)
    if not isinstance(value, torch.Tensor) or value.shape != y.shape:
        got = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise InvalidArgumentError(
            f"activation must return a tensor of the shape it is given, {tuple(y.shape)}, got {got} from "
            f"{describe(activation)}; apply a function to each number"
        )
    return value


def describe(activation: Activation) -> str:
    """Return the name of an activation, the representation of a module, or the name of a function."""
    if isinstance(activation, str | nn.Module):
        return str(activation)
    return getattr(activation, "__name__", type(activation).__name__)


# Positions of a stencil's numbers among the nine of a 3 × 3 one.
STENCILS = {"five-point": (1, 3, 4, 5, 7), "nine-point": tuple(range(9))}


@torch.no_grad()
def draw_initial_values(
    weights: Iterable[Any], biases: Iterable[Any], activation: Activation, generator: torch.Generator | None
) -> None:
    """Draw weights from U[−a, a], a = √(3/fan_in) for tanh and 1/√fan_in otherwise (paper, 6.1 (v)); biases are 0."""
    for weight in weights:
        if weight is not None:
            bound = math.sqrt((3.0 if activation == "tanh" else 1.0) / weight.shape[-1])
            weight.uniform_(-bound, bound, generator=generator)
    for bias in biases:
        if bias is not None:
            bias.zero_()


def affine(y: torch.Tensor, K: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
    """Return K y + b for each row y; b is a vector, a number or None."""
    if b is None or b.shape[-1:] == K.shape[:1]:
        return nn.functional.linear(y, K, b)
    return nn.functional.linear(y, K) + b


def stencil_map(
    y: torch.Tensor, psi: torch.Tensor, b: torch.Tensor | None, grid_shape: tuple[int, int], operator: str
) -> torch.Tensor:
    """Return K(ψ) y + b, with the 3 × 3 or five-point stencil ψ on features that form a grid, zero outside it."""
    if operator != "nine-point":
        zero, numbers = psi.new_zeros(()), dict(zip(STENCILS[operator], psi.unbind(), strict=True))
        psi = torch.stack([numbers.get(position, zero) for position in range(9)])
    image = y.reshape(-1, 1, *grid_shape)
    mapped = nn.functional.conv2d(image, psi.view(1, 1, 3, 3), padding=1).reshape(y.shape)
    return mapped if b is None else mapped + b


class _Layer(nn.Module):
    """An operator and a bias as parameters, and an activation."""

    def __init__(self, name: str, operator: Any, b: Any, activation: Any, device: Device, dtype: DType) -> None:
        super().__init__()
        self._operator = name
        setattr(self, name, nn.Parameter(operator.to(device=device, dtype=dtype)))
        self.b = None if b is None else nn.Parameter(torch.atleast_1d(b.to(device=device, dtype=dtype)))
        self.activation = check_activation(activation)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw initial values as `FractionalNetwork` does."""
        draw_initial_values([getattr(self, self._operator)], [self.b], self.activation, generator)


class DenseLayer(_Layer):
    """The layer σ(y Kᵀ + b) for rows y; b is one number per feature, one for the layer (the paper's), or None."""

    K: nn.Parameter

    def __init__(
        self, K: Tensor, b: Tensor | None, activation: Activation, *, device: Device = None, dtype: DType = None
    ) -> None:
        super().__init__("K", K, b, activation, device, dtype)

    def extra_repr(self) -> str:
        bias = self.b is not None and ("scalar" if self.b.shape != self.K.shape[:1] else True)
        return f"{self.K.shape[1]} → {self.K.shape[0]}, activation={describe(self.activation)!r}, bias={bias!r}"

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return activate(self.activation, affine(y, self.K, self.b))


class StencilLayer(_Layer):
    """The layer σ(K(ψ) y + b), see `stencil_map`: the paper's Remark on parametric kernels."""

    psi: nn.Parameter

    def __init__(
        self,
        psi: Tensor,
        b: Tensor | None,
        activation: Activation,
        *,
        grid_shape: tuple[int, int],
        operator: str,
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        super().__init__("psi", psi, b, activation, device, dtype)
        self.grid_shape, self.operator = grid_shape, operator

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return activate(self.activation, stencil_map(y, self.psi, self.b, self.grid_shape, self.operator))
