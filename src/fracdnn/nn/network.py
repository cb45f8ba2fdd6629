"""The paper's network: layers σ(K_j y + b_j) with memory, and the class map W."""

import copy
from collections import OrderedDict
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory.plan import MemorylessPlan, MemoryPlan
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.memory import HasMemory, Memory
from fracdnn.nn.operators import (
    STENCILS,
    Activation,
    DenseLayer,
    StencilLayer,
    activate,
    checked_activation,
    describe,
    draw,
)
from fracdnn.nn.signature import Device, DType, options_of, reset_modules, takes_options_of
from fracdnn.nn.stack import FractionalStack
from fracdnn.validation import check_choice, check_count, check_flag, check_real_tensor

OPERATORS = ("dense", *STENCILS)


class FractionalNetwork(HasMemory):
    """d_t^order Y = σ(K(t) Y + b(t)) over `n_layers` steps, then W: the network of Antil, Khatri, Löhner and Verma.

    `order=1` is the residual network (the paper's "standard RNN"), `residual=False` the standard network without skip
    connections: the paper's three rivals are one switch apart. x [n, n_features] gives [n, n_outputs], the logits of a
    softmax or the values of a regression; `network(x, trajectory=True)` the states Y_0 … Y_N, [n_layers + 1, n, width].

    The parameters are whole tensors: `K` [n_layers, width, width] (for a stencil `psi` [n_layers, points]), `b`
    [n_layers, width] or [n_layers], `W` [n_outputs, width], `input_weight` [width, n_features] and `input_bias`.
    `as_modules()` gives the same network as modules, for hooks, freezing or tying of single layers.

    `width=None` keeps the number of features, as the paper does; an integer adds a learned input projection to that
    width, which `activate_input` follows by the activation: without it the outputs hold a linear map of the features.
    `activation` is a name ("tanh", "relu", "gelu", "silu", "sigmoid", "identity"), a module, of which all
    layers share one copy, or any function of a tensor that keeps its shape.
    `bias=True` is a vector for each layer, "scalar" a number (the paper's), False none. `operator="nine-point"` or
    "five-point" makes K a stencil on features that form a grid of `grid_shape`. Initial values are drawn from
    `generator` as in the paper: U[−a, a] with a = √(3/width) for tanh and 1/√width otherwise (for a stencil, its
    number of points in place of the width), biases 0.

    The other options are those of `fracdnn.nn.Memory`, which `network.memory` is. `options` holds all of them, for
    `FractionalNetwork(**network.options)`.
    """

    K: nn.Parameter
    psi: nn.Parameter
    b: nn.Parameter | None
    W: nn.Parameter
    input_weight: nn.Parameter | None
    input_bias: nn.Parameter | None

    @takes_options_of(Memory)
    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        *,
        n_layers: int,
        width: int | None = None,
        activate_input: bool = False,
        activation: Activation = "tanh",
        bias: bool | str = True,
        operator: str = "dense",
        grid_shape: tuple[int, int] | None = None,
        residual: bool = True,
        generator: torch.Generator | None = None,
        device: Device = None,
        dtype: DType = None,
        **memory: Any,
    ) -> None:
        activation = checked_activation(activation)
        activation = copy.deepcopy(activation) if isinstance(activation, nn.Module) else activation
        left_out = ("self", "generator", "device", "dtype", "memory", "left_out", "__class__")
        defaults = {name: each.default for name, each in options_of(Memory).items()}
        given = (locals() | defaults | memory).items()
        super().__init__()
        # As given: what builds the same network again, its parameters apart.
        self.options = {name: _plain(value) for name, value in given if name not in (*left_out, "defaults")}
        check_choice(operator, "operator", OPERATORS)
        check_flag(activate_input, "activate_input")
        check_flag(residual, "residual")
        n_features = check_count(n_features, "n_features", minimum=1)
        size = n_features if width is None else check_count(width, "width", minimum=1)
        self.architecture = Architecture(
            n_features=n_features,
            n_outputs=check_count(n_outputs, "n_outputs", minimum=1),
            n_layers=check_count(n_layers, "n_layers", minimum=1),
            width=size,
            has_input_projection=width is not None,
            input_activation=activation if activate_input else "identity",
            activation=activation,
            bias=_checked_bias(bias),
            has_skip=residual,
            operator=operator,
            grid_shape=None if operator == "dense" else _checked_grid(grid_shape, size),
        )
        self.memory = Memory(n_layers, device=device, dtype=dtype, **memory)
        if not residual and not self.memory.is_fixed:
            raise InvalidArgumentError(
                "residual must be True to learn the order or the steps, got False; "
                "a network without skip connections has neither"
            )
        self._make_parameters()
        self.reset_parameters(generator)
        if isinstance(activation, nn.Module):
            self.activation = activation
        self.to(device=device, dtype=dtype)

    def _make_parameters(self) -> None:
        a = self.architecture
        is_dense = a.operator == "dense"
        shapes: dict[str, tuple[int, ...] | None] = {
            "input_weight": (a.width, a.n_features) if a.has_input_projection else None,
            "input_bias": (a.width,) if a.has_input_projection else None,
            "K" if is_dense else "psi": (a.n_layers, *((a.width,) * 2 if is_dense else (len(STENCILS[a.operator]),))),
            "b": {True: (a.n_layers, a.width), "scalar": (a.n_layers,), False: None}[a.bias],
            "W": (a.n_outputs, a.width),
        }
        for name, shape in shapes.items():
            self.register_parameter(name, None if shape is None else nn.Parameter(torch.empty(shape)))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw initial values anew; a learned order and learned steps start again where they started."""
        _, b, W, input_weight, input_bias = weights = self.weights()
        draw((input_weight, weights.operators, W), (input_bias, b), self.architecture.activation, generator)
        reset_modules(self)

    def forward(self, x: torch.Tensor, *, trajectory: bool = False) -> torch.Tensor:
        self._check_input(x)
        run = self.architecture.states if check_flag(trajectory, "trajectory") else self.architecture.outputs
        return run(self._plan(x), x, self.weights())

    def weights(self) -> Weights:
        """All parameters but those of the memory."""
        operators = self.K if self.architecture.operator == "dense" else self.psi
        return Weights(operators, self.b, self.W, self.input_weight, self.input_bias)

    @property
    def step_sizes(self) -> torch.Tensor:
        """The step of each layer, float64, [N]."""
        return self.memory.step_sizes

    def _plan(self, x: torch.Tensor) -> MemoryPlan:
        a = self.architecture
        if not a.has_skip:
            return MemorylessPlan(torch.ones(a.n_layers, dtype=torch.float64), skip=False)
        return self.memory.plan(x.new_empty(*x.shape[:-1], a.width) if a.has_input_projection else x, a.n_layers)

    def as_modules(self, *, linear_layers: bool = False) -> nn.Sequential:
        """The same network as modules with parameters of their own: "input_projection" (if there is one), "stack", "W".

        "stack" is a `FractionalStack` of one module a layer; without skip connections, an `nn.Sequential`. What is
        frozen and evaluation mode go along. With `linear_layers=True` a layer is an `nn.Linear` and its activation,
        as `quantize_dynamic` and other tools look for them; a scalar bias is then one number for each feature.
        """
        a, weights = self.architecture, self.weights()
        a = copy.deepcopy(a) if isinstance(a.activation, nn.Module) else a
        if check_flag(linear_layers, "linear_layers") and a.operator != "dense":
            raise InvalidArgumentError(
                f"linear_layers must be False for operator={a.operator!r}, got True; a stencil is no nn.Linear"
            )
        parts: OrderedDict[str, nn.Module] = OrderedDict()
        if weights.input_weight is not None:
            parts["input_projection"] = _linear(weights.input_weight, weights.input_bias)
            parts["activation"] = _Activation(a.input_activation)
        make = _linear_layer if linear_layers else _layer
        layers = [make(a, *layer) for layer in weights.layers()]
        parts["stack"] = nn.Sequential(*layers)
        if a.has_skip:
            parts["stack"] = FractionalStack(layers)
            parts["stack"].memory = copy.deepcopy(self.memory)
        parts["W"] = _linear(weights.W, None)
        return nn.Sequential(parts).train(self.training)

    def extra_repr(self) -> str:
        a = self.architecture
        sizes = f"{a.n_features} → {a.n_outputs}, {a.n_layers} layers of width {a.width}"
        kind = f"activation={describe(a.activation)!r}, bias={a.bias!r}, operator={a.operator!r}"
        return f"{sizes}, {kind}"

    def _check_input(self, x: torch.Tensor) -> None:
        check_real_tensor(x, "x")
        n_features = self.architecture.n_features
        if x.shape[-1:] != (n_features,):
            raise InvalidArgumentError(
                f"x must have {n_features} features along its last axis, got shape {tuple(x.shape)}; samples are rows"
            )
        if x.dtype != self.W.dtype and not torch.is_autocast_enabled(x.device.type):
            raise InvalidArgumentError(
                f"x must have the dtype of the network, {self.W.dtype}, got {x.dtype}; "
                f"use x.to({self.W.dtype}) or network.to({x.dtype})"
            )
        if x.device != self.W.device:
            raise InvalidArgumentError(
                f"x must be on the device of the network, {self.W.device}, got {x.device}; "
                f"use x.to({str(self.W.device)!r}) or network.to({str(x.device)!r})"
            )


class _Activation(nn.Module):
    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return activate(self.activation, y)

    def extra_repr(self) -> str:
        return describe(self.activation)


def _layer(a: Architecture, operator: torch.Tensor, b: torch.Tensor | None) -> nn.Module:
    grid: Any = {} if a.grid_shape is None else {"grid_shape": a.grid_shape, "operator": a.operator}
    kind: Any = StencilLayer if grid else DenseLayer
    originals = [each for each in (operator, b) if each is not None]
    layer = kind(_copied(operator), None if b is None else _copied(b), a.activation, **grid)
    for parameter, original in zip(layer.parameters(recurse=False), originals, strict=True):
        parameter.requires_grad_(original.requires_grad)
    return layer


def _linear_layer(a: Architecture, operator: torch.Tensor, b: torch.Tensor | None) -> nn.Module:
    return nn.Sequential(_linear(operator, b if b is None else b.expand(a.width)), _Activation(a.activation))


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """A linear map with copies of these parameters."""
    linear = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight = nn.Parameter(_copied(weight), requires_grad=weight.requires_grad)
    if bias is not None:
        linear.bias = nn.Parameter(_copied(bias), requires_grad=bias.requires_grad)
    return linear


def _copied(values: torch.Tensor) -> torch.Tensor:
    return values.detach().clone(memory_format=torch.contiguous_format)


def _checked_bias(bias: Any) -> bool | str:
    if not isinstance(bias, bool) and bias != "scalar":
        raise InvalidArgumentError(
            f"bias must be True, False or 'scalar', got {bias!r}; 'scalar' is one number for all features of a layer"
        )
    return bias


def _checked_grid(grid_shape: tuple[int, int] | None, width: int) -> tuple[int, int]:
    whole = isinstance(grid_shape, tuple | list) and all(isinstance(n, Integral) and n > 0 for n in grid_shape)
    if grid_shape is None or not whole or len(grid_shape) != 2 or grid_shape[0] * grid_shape[1] != width:
        raise InvalidArgumentError(
            f"grid_shape must be two whole numbers above 0 whose product is the width {width} where K is a stencil, "
            f"got {grid_shape}; pass for example grid_shape=(rows, columns)"
        )
    return (int(grid_shape[0]), int(grid_shape[1]))


def _plain(value: Any) -> Any:
    """Numbers and lists of numbers in place of arrays."""
    return value.tolist() if isinstance(value, torch.Tensor | np.ndarray | np.generic) else value
