"""The paper's network: layers σ(K_j y + b_j) with memory, and the class map W."""

import copy
from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory.plan import MemorylessPlan, MemoryPlan
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.learned import Device, DType
from fracdnn.nn.memory import HasMemory, Memory, Numbers, reset_modules
from fracdnn.nn.operators import (
    Activation,
    DenseLayer,
    StencilLayer,
    activate,
    check_activation,
    describe,
    draw_initial_values,
)
from fracdnn.nn.stack import FractionalStack
from fracdnn.validation import check_flag, check_real_tensor


class FractionalNetwork(HasMemory):
    """d_t^order Y = σ(K(t) Y + b(t)) over `n_layers` steps, then W: the network of Antil, Khatri, Löhner and Verma.

    `order=1` is the residual network (the paper's "standard RNN"), `residual=False` the standard network without skip
    connections: the paper's three rivals are one switch apart. x [n, n_features] gives [n, n_outputs], the logits of a
    softmax or the values of a regression; `network(x, trajectory=True)` the states Y_0 … Y_N, [n_layers + 1, n, width].

    The parameters are whole tensors: `K` [n_layers, width, width] (for a stencil `psi` [n_layers, points]), `b`
    [n_layers, width] or [n_layers], `W` [n_outputs, width], `input_weight` [width, n_features] and `input_bias`.
    `as_modules()` gives the same network as modules, for hooks, freezing or tying of single layers.

    `width=None` keeps the number of features, as the paper does; an integer adds a learned input projection to that
    width. With `activate_input` the activation follows the projection; without it the outputs contain a linear map of
    the features. `activation` is a name ("tanh", "relu", "gelu", "silu", "sigmoid", "identity"), a module, of which all
    layers share one copy, or any function of a tensor that keeps its shape. `bias=True` is a vector for each layer,
    "scalar" a number (the paper's), False none. `operator="nine-point"` or "five-point" makes K a stencil on features
    that form a grid of `grid_shape`.

    Initial values are drawn from `generator` as in the paper: U[−a, a] with a = √(3/width) for tanh and 1/√width
    otherwise (for a stencil, its number of points replaces the width), biases 0.

    `order`, `step_size`, `learn_order`, `learn_steps`, `compress` and `compress_tol` are those of `fracdnn.nn.Memory`,
    which `network.memory` is. `FractionalNetwork(**network.options)` builds the same network with new parameters.
    """

    K: nn.Parameter
    psi: nn.Parameter
    b: nn.Parameter | None
    W: nn.Parameter
    input_weight: nn.Parameter | None
    input_bias: nn.Parameter | None

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
        order: Numbers = 0.5,
        step_size: Numbers = 0.2,
        learn_order: bool | str = False,
        learn_steps: bool = False,
        compress: bool | str = "auto",
        compress_tol: float | None = None,
        generator: torch.Generator | None = None,
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        super().__init__()
        activation = check_activation(activation)
        activation = copy.deepcopy(activation) if isinstance(activation, nn.Module) else activation
        sizes: Any = {"n_features": n_features, "n_outputs": n_outputs, "n_layers": n_layers, "width": width}
        layer: Any = {"activation": activation, "activate_input": activate_input, "bias": bias, "residual": residual}
        stencil: Any = {"operator": operator, "grid_shape": grid_shape}
        memory: Any = {"order": order, "step_size": step_size, "learn_order": learn_order, "learn_steps": learn_steps}
        memory |= {"compress": compress, "compress_tol": compress_tol}
        self.architecture = Architecture.of(**sizes, **layer, **stencil)
        self.memory = Memory(n_layers, **memory, device=device, dtype=dtype)
        if not residual and not self.memory.is_fixed:
            raise InvalidArgumentError(
                "residual must be True to learn the order or the steps, got False; "
                "a network without skip connections has neither"
            )
        self.options = {name: _plain(value) for name, value in {**sizes, **layer, **stencil, **memory}.items()}
        for name, shape in self.architecture.shapes().items():
            self.register_parameter(name, None if shape is None else nn.Parameter(torch.empty(shape)))
        self.reset_parameters(generator)
        if isinstance(activation, nn.Module):
            self.activation = activation
        self.to(device=device, dtype=dtype)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new initial values, and restore those of a learned order and learned steps."""
        _, b, W, input_weight, input_bias = weights = self.weights()
        matrices = (input_weight, weights.operators, W)
        draw_initial_values(matrices, (input_bias, b), self.architecture.activation, generator)
        reset_modules(self)

    def forward(self, x: torch.Tensor, *, trajectory: bool = False) -> torch.Tensor:
        self._check_input(x)
        run = self.architecture.states if check_flag(trajectory, "trajectory") else self.architecture.outputs
        return run(self._plan(x), x, self.weights())

    def weights(self) -> Weights:
        """Return all parameters but those of the memory."""
        operators = self.K if self.architecture.operator == "dense" else self.psi
        return Weights(operators, self.b, self.W, self.input_weight, self.input_bias)

    @property
    def step_sizes(self) -> torch.Tensor:
        """The step of each layer, float64, [N]."""
        return self.memory.step_sizes

    def _plan(self, x: torch.Tensor) -> MemoryPlan:
        """Return the memory's weights for states that belong to x."""
        a = self.architecture
        if not a.has_skip:
            return MemorylessPlan(torch.ones(a.n_layers, dtype=torch.float64), skip=False)
        return self.memory.plan(x.new_empty(*x.shape[:-1], a.width) if a.has_input_projection else x, a.n_layers)

    def as_modules(self, *, linear_layers: bool = False) -> nn.Sequential:
        """Return the same network as modules with parameters of their own: "input_projection" (if any), "stack", "W".

        "stack" is a `FractionalStack` of one module per layer; without skip connections, an `nn.Sequential`. Frozen
        parameters stay frozen, and the evaluation mode is kept. With `linear_layers=True` a layer is an `nn.Linear` and
        its activation, as `quantize_dynamic` and other tools expect; a scalar bias is then one number for each feature.
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
        return f"{sizes}, activation={describe(a.activation)!r}, bias={a.bias!r}, operator={a.operator!r}"

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
    """An activation as a module."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return activate(self.activation, y)

    def extra_repr(self) -> str:
        return describe(self.activation)


def _layer(a: Architecture, operator: torch.Tensor, b: torch.Tensor | None) -> nn.Module:
    """Return a layer with copies of these parameters, frozen where these are."""
    tensors = (_copied(operator), None if b is None else _copied(b))
    layer: nn.Module = DenseLayer(*tensors, a.activation)
    if a.grid_shape is not None:
        layer = StencilLayer(*tensors, a.activation, grid_shape=a.grid_shape, operator=a.operator)
    for parameter, original in zip(layer.parameters(recurse=False), (operator, b), strict=False):
        parameter.requires_grad_(original is None or original.requires_grad)
    return layer


def _linear_layer(a: Architecture, operator: torch.Tensor, b: torch.Tensor | None) -> nn.Module:
    return nn.Sequential(_linear(operator, b if b is None else b.expand(a.width)), _Activation(a.activation))


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    """Return a linear map with copies of these parameters, frozen where these are."""
    linear = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight = nn.Parameter(_copied(weight), requires_grad=weight.requires_grad)
    if bias is not None:
        linear.bias = nn.Parameter(_copied(bias), requires_grad=bias.requires_grad)
    return linear


def _copied(values: torch.Tensor) -> torch.Tensor:
    return values.detach().clone(memory_format=torch.contiguous_format)


def _plain(value: Any) -> Any:
    """Return numbers and lists of numbers for arrays, which files can hold."""
    return value.tolist() if isinstance(value, torch.Tensor | np.ndarray | np.generic) else value
