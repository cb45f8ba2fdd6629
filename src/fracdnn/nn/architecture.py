"""The definition of a `FractionalNetwork`: sizes and choices, parameters as whole tensors, and what it computes."""

from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory import run_chain
from fracdnn.memory.plan import MemoryPlan
from fracdnn.nn.operators import STENCILS, Activation, activate, affine, stencil_map
from fracdnn.validation import check_choice, check_count, check_flag

OPERATORS = ("dense", *STENCILS)


class Weights(NamedTuple):
    """All parameters but those of the memory, or their gradients.

    operators     [N, width, width]       K of each layer; [N, points] for a stencil ψ
    b             [N, width], [N], None   the biases
    W             [n_outputs, width]      the class map
    input_weight  [width, n_features]     the input projection, or None
    input_bias    [width]
    """

    operators: torch.Tensor
    b: torch.Tensor | None
    W: torch.Tensor
    input_weight: torch.Tensor | None
    input_bias: torch.Tensor | None

    def layers(self) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Return operator and bias of each layer, split at once so that their gradients are joined by one operation."""
        operators = self.operators.unbind()
        biases = [None] * len(operators) if self.b is None else self.b.unbind()
        return list(zip(operators, biases, strict=True))


@dataclass(frozen=True, eq=False)
class Architecture:
    """x → input projection → N layers σ(K_j y + b_j) with memory → W.

    An activation is a name or a function of a tensor; `grid_shape` is None for dense layers.
    """

    n_features: int
    n_outputs: int
    n_layers: int
    width: int
    has_input_projection: bool
    input_activation: Activation
    activation: Activation
    bias: bool | str
    has_skip: bool
    operator: str
    grid_shape: tuple[int, int] | None

    @staticmethod
    def of(
        n_features: int,
        n_outputs: int,
        *,
        n_layers: int,
        width: int | None,
        activate_input: bool,
        activation: Activation,
        bias: bool | str,
        operator: str,
        grid_shape: tuple[int, int] | None,
        residual: bool,
    ) -> "Architecture":
        """Return the architecture that the arguments of a `FractionalNetwork` describe, checked."""
        check_choice(operator, "operator", OPERATORS)
        if not isinstance(bias, bool) and bias != "scalar":
            raise InvalidArgumentError(
                f"bias must be True, False or 'scalar', got {bias!r}; 'scalar' is one number for all features"
            )
        n_features = check_count(n_features, "n_features", minimum=1)
        size = n_features if width is None else check_count(width, "width", minimum=1)
        return Architecture(
            n_features=n_features,
            n_outputs=check_count(n_outputs, "n_outputs", minimum=1),
            n_layers=check_count(n_layers, "n_layers", minimum=1),
            width=size,
            has_input_projection=width is not None,
            input_activation=activation if check_flag(activate_input, "activate_input") else "identity",
            activation=activation,
            bias=bias,
            has_skip=check_flag(residual, "residual"),
            operator=operator,
            grid_shape=None if operator == "dense" else _checked_grid(grid_shape, size),
        )

    def shapes(self) -> dict[str, tuple[int, ...] | None]:
        """Return the shape of each parameter by its name, in the order of registration; None for absent ones."""
        projected = self.has_input_projection
        dense = self.grid_shape is None
        points = (self.width, self.width) if dense else (len(STENCILS[self.operator]),)
        return {
            "input_weight": (self.width, self.n_features) if projected else None,
            "input_bias": (self.width,) if projected else None,
            "K" if dense else "psi": (self.n_layers, *points),
            "b": {True: (self.n_layers, self.width), "scalar": (self.n_layers,), False: None}[self.bias],
            "W": (self.n_outputs, self.width),
        }

    def project_input(self, x: torch.Tensor, weights: Weights) -> torch.Tensor:
        """Return Y_0."""
        if weights.input_weight is None:
            return x
        y0 = activate(self.input_activation, affine(x, weights.input_weight, weights.input_bias))
        # Under autocast the input projection gives a coarser dtype; the states stay in that of the input.
        return y0.to(x.dtype)

    def outputs(self, plan: MemoryPlan, x: torch.Tensor, weights: Weights) -> torch.Tensor:
        """Return W Y_N."""
        return linear(self.states(plan, x, weights, trajectory=False), weights.W)

    def states(self, plan: MemoryPlan, x: torch.Tensor, weights: Weights, *, trajectory: bool = True) -> torch.Tensor:
        """Return Y_0 … Y_N stacked, or Y_N alone."""
        layers, y0 = weights.layers(), self.project_input(x, weights)
        name = "layer {}".format
        return run_chain(plan, lambda j, y: self.layer(y, *layers[j]), y0, trajectory=trajectory, name=name)

    def layer(self, y: torch.Tensor, operator: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        """Return σ(K y + b)."""
        if self.grid_shape is None:
            return activate(self.activation, affine(y, operator, b))
        return activate(self.activation, stencil_map(y, operator, b, self.grid_shape, self.operator))


def _checked_grid(grid_shape: Any, width: int) -> tuple[int, int]:
    is_pair = isinstance(grid_shape, tuple | list) and len(grid_shape) == 2
    is_whole = is_pair and all(isinstance(n, Integral) and int(n) > 0 for n in grid_shape)
    if not is_whole or grid_shape[0] * grid_shape[1] != width:
        raise InvalidArgumentError(
            f"grid_shape must be two whole numbers above 0 whose product is the width {width} where K is a stencil, "
            f"got {grid_shape}; pass for example grid_shape=(rows, columns)"
        )
    return (int(grid_shape[0]), int(grid_shape[1]))
