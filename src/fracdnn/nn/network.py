"""The paper's network: layers σ(K_j y + b_j) with memory, and the class map W."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import fused
from fracdnn.nn.operators import ACTIVATIONS, BIASES, STENCILS, DenseLayer, StencilLayer, uniform_bound
from fracdnn.nn.printed_adjoint import PrintedAdjoint
from fracdnn.nn.stack import FractionalStack, Numbers
from fracdnn.tracing import has_module_hooks, has_tensor_hooks, operations_are_watched
from fracdnn.validation import check_choice, check_count, check_order

OPERATORS = ("dense", "stencil")
ADJOINTS = ("exact", "continuous")


class _Joined(NamedTuple):
    """All K, all b and W in one row, and how samples went through the compiled pass, by their shape and the threads."""

    row: nn.Parameter
    tiles: dict[Any, fused.Tiles]


class FractionalNetwork(nn.Module):
    """d_t^order Y = σ(K(t) Y + b(t)) over `n_layers` steps, then W: the network of Antil, Khatri, Löhner and Verma.

    `order=1` is the residual network (the paper's "standard RNN"), `residual=False` the standard network without skip
    connections: the paper's three rivals are one switch apart. x [n, n_features] gives [n, n_outputs], the logits of a
    softmax or the values of a regression; `trajectory(x)` gives the states Y_0 … Y_N, [n_layers + 1, n, width].

    `width=None` keeps the number of features, as the paper does; an integer adds a learned opening map to that width,
    which `activate_opening` follows by the activation: without it the outputs hold a linear map of the features.
    `bias` is a "vector" for each layer, a "scalar" (the paper's) or "none". `operator="stencil"` makes K a "nine-point"
    or "five-point" `stencil` on features that form a grid of `grid_shape`. Initial values are drawn from `generator`
    as in the paper: U[−a, a] with a = √(3/width) for tanh and 1/√width otherwise (for a stencil, its number of points
    in place of the width), biases 0.

    `adjoint="continuous"` replaces the gradient by the one printed in the paper, which is not the gradient: see
    `fracdnn.nn.printed_adjoint`. It is for reproduction only (dense operator, tanh, fixed order and steps).

    The other options are those of `FractionalStack`. `options` holds all of them, for
    `FractionalNetwork(**network.options)`. With `history="auto"`, dense networks up to width 16 with tanh or
    relu and fixed order and steps run on the CPU through one compiled kernel (see `fracdnn.nn.fused`; it needs Numba),
    to the same values up to rounding; "exact" and "compressed" keep to torch operations.
    """

    _stacked: dict[tuple[int, bool], tuple[torch.Tensor, torch.Tensor]] | None = None
    _joined: "_Joined | None" = None

    def __init__(
        self,
        n_features: int,
        n_outputs: int,
        *,
        n_layers: int,
        order: Numbers = 0.5,
        step_size: Numbers = 0.2,
        width: int | None = None,
        activate_opening: bool = False,
        activation: str = "tanh",
        bias: str = "vector",
        operator: str = "dense",
        grid_shape: tuple[int, int] | None = None,
        stencil: str = "nine-point",
        residual: bool = True,
        learn_order: bool | str = False,
        learn_steps: bool = False,
        history: str = "auto",
        tolerance: float | None = None,
        adjoint: str = "exact",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        # As given: what builds the same network again, its parameters apart.
        given = {name: value for name, value in locals().items() if name not in ("self", "generator", "__class__")}
        self.options = {name: _plain(value) for name, value in given.items()}
        self.n_features = check_count(n_features, "n_features", minimum=1)
        n_outputs = check_count(n_outputs, "n_outputs", minimum=1)
        n_layers = check_count(n_layers, "n_layers", minimum=1)
        self.width = self.n_features if width is None else check_count(width, "width", minimum=1)
        check_choice(activation, "activation", tuple(ACTIVATIONS))
        check_choice(bias, "bias", BIASES)
        check_choice(operator, "operator", OPERATORS)
        check_choice(stencil, "stencil", tuple(STENCILS))
        self.adjoint = check_choice(adjoint, "adjoint", ADJOINTS)
        self.opening = None
        self._opening_activation = ACTIVATIONS[activation if activate_opening else "identity"]
        if width is not None:
            self.opening = nn.Linear(self.n_features, self.width)
            bound = uniform_bound(self.n_features, activation)
            nn.init.uniform_(self.opening.weight, -bound, bound, generator=generator)
            nn.init.zeros_(self.opening.bias)
        layers: list[nn.Module]
        if operator == "dense":
            layers = [
                DenseLayer(self.width, activation=activation, bias=bias, generator=generator) for _ in range(n_layers)
            ]
        else:
            grid = self._checked_grid(grid_shape)
            layers = [
                StencilLayer(grid, stencil=stencil, activation=activation, bias=bias, generator=generator)
                for _ in range(n_layers)
            ]
        self.stack: FractionalStack | None = None
        self.plain: nn.Sequential | None = None
        if residual:
            self.stack = FractionalStack(
                layers,
                order=order,
                step_size=step_size,
                learn_order=learn_order,
                learn_steps=learn_steps,
                history=history,
                tolerance=tolerance,
            )
        elif not isinstance(order, Sequence):
            check_order(order)
        if not residual and (learn_order or learn_steps):
            raise InvalidArgumentError(
                "residual must be True to learn the order or the steps, got False; "
                "a network without skip connections has neither"
            )
        if not residual:
            self.plain = nn.Sequential(*layers)
        if adjoint == "continuous":
            self._check_printed(operator, activation, bias)
        self.W = nn.Linear(self.width, n_outputs, bias=False)
        bound = uniform_bound(self.width, activation)
        nn.init.uniform_(self.W.weight, -bound, bound, generator=generator)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = self._last_state(self._open(x))
        return self.W(state) if self._joined is None else nn.functional.linear(state, self.matrices()[2])

    def trajectory(self, x: torch.Tensor) -> torch.Tensor:
        """Y_0 … Y_N, [n_layers + 1, n, width]: the flow of the data."""
        y = self._open(x)
        if self.stack is not None:
            return self.stack(y, trajectory=True)
        states = [y]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return torch.stack(states)

    @property
    def layers(self) -> list[nn.Module]:
        """The layers, first to last."""
        if self.stack is not None:
            return list(self.stack.layers)
        assert self.plain is not None
        return list(self.plain)

    def __getstate__(self) -> dict[str, Any]:
        """As it is outside of `joined`: copies have parameters of their own."""
        return {**self.__dict__, "_joined": None, "_stacked": None}

    def stacked(self) -> tuple[torch.Tensor, torch.Tensor]:
        """K of all layers, [N, width, width] (for a stencil ψ, [N, points]), and b, [N, width] or [N]; none is [0]."""
        return self.matrices()[:2]

    def matrices(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What `stacked()` gives, and W."""
        if self._joined is not None:
            return self.split(self._joined.row)
        # A graph belongs to one thread, and to a mode that records it or does not.
        key = (get_ident(), torch.is_grad_enabled())
        kept = self._stacked
        if kept is not None and key in kept:
            return *kept[key], self.W.weight
        layers = self.layers
        dense = all(isinstance(layer, DenseLayer) for layer in layers)
        operators = torch.stack([layer.K if dense else layer.psi for layer in layers])  # type: ignore[misc]
        biases = [b for layer in layers if (b := layer.b) is not None]
        pair = operators, torch.stack(biases) if biases else operators.new_zeros(0)  # type: ignore[arg-type]
        if kept is not None:
            kept[key] = pair
        return *pair, self.W.weight

    @contextmanager
    def stacked_once(self) -> Iterator[None]:
        """Within, `stacked()` does its work once: then a graph goes back to each parameter once, whoever uses it."""
        self._stacked = {}
        try:
            yield
        finally:
            self._stacked = None

    @contextmanager
    def joined(self, x: torch.Tensor) -> Iterator[list[nn.Parameter]]:
        """Within, all K, all b and W are slices of one parameter; yields it and the others, to train them.

        For many short steps on samples like x: the way from a gradient to each of the layers' parameters takes longer
        than the compiled pass. Where that does not apply, yields the parameters as they are; within another such block,
        as they are there. In the end every parameter is again its own, with its gradient.
        """
        if self._joined is not None or not self._can_join(x):
            yield self._joined_parameters()
            return
        parts = [part.detach() for part in self.matrices()]
        whole = nn.Parameter(fused.one_row(*parts))
        self._joined = _Joined(whole, {})
        self._give_out(self.split(whole.detach()))
        try:
            yield self._joined_parameters()
        finally:
            self._joined = None
            self._give_out(self.split(whole.detach()), copied=True)
            if whole.grad is not None:
                self._give_out(self.split(whole.grad), "grad", copied=True)

    def joined_gradients(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The gradients of all K and all b where they are joined and there are any."""
        if self._joined is None or self._joined.row.grad is None:
            return None
        return self.split(self._joined.row.grad)[:2]

    def _can_join(self, x: torch.Tensor) -> bool:
        if self.stack is None or self.adjoint != "exact" or _is_watched(self.W):
            return False
        if not all(p.requires_grad and not has_tensor_hooks(p) for p in self.parameters()):
            return False
        own = [self.W.weight, *(p for layer in self.layers for p in layer._parameters.values())]
        if len({id(p) for p in own}) < len(own):  # tied parameters are one, and have to stay so
            return False
        return fused.applies(self.stack, self._open(x[:1]).detach())

    def _joined_parameters(self) -> list[nn.Parameter]:
        if self._joined is None:
            return list(self.parameters())
        return [self._joined.row, *([] if self.opening is None else self.opening.parameters())]

    def _give_out(self, parts: Sequence[torch.Tensor], name: str = "data", *, copied: bool = False) -> None:
        """Make parts of K, b and W, or copies, the data or the gradients of the layers' parameters and of W."""
        K, b, W = parts
        layers: list[Any] = self.layers
        pairs = [(self.W.weight, W), *((layer.K, K[j]) for j, layer in enumerate(layers))]
        if len(b):
            pairs += ((layer.b, b[j]) for j, layer in enumerate(layers))
        for parameter, part in pairs:
            setattr(parameter, name, part.clone() if copied else part)

    def split(self, whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """K, b and W as `matrices()` gives them, of one row."""
        n, width, bias = self.options["n_layers"], self.width, self.options["bias"]
        sizes = (n * width**2, {"vector": n * width, "scalar": n, "none": 0}[bias], self.options["n_outputs"] * width)
        K, b, W = torch.split_with_sizes(whole, sizes)
        return K.view(n, width, width), b.view(n, width) if bias == "vector" else b, W.view(-1, width)

    def tiles(self, x: torch.Tensor) -> tuple[fused.Tiles, torch.Tensor, torch.Tensor] | None:
        """How x goes through the compiled pass, with Y_0 and one row of parameters; nothing where it does not apply.

        It does not where somebody watches W or the network itself: a pass from x to a loss calls neither.
        """
        stack, W, joined = self.stack, self.W, self._joined
        if type(self) is not FractionalNetwork or stack is None or self.adjoint != "exact":
            return None
        if has_module_hooks(self) or _is_watched(W) or W.weight.dtype is not x.dtype or not W.weight.is_cpu:
            return None
        if joined is None:
            if not fused.applies(stack, x.new_empty(min(1, len(x)), self.width)):
                return None
            y = self._open(x)
            return fused.tiles(stack, y), y, fused.one_row(*self.matrices())
        if operations_are_watched():
            return None
        y = self._open(x)
        key = (y.shape, torch.get_num_threads())
        if key not in joined.tiles:
            joined.tiles[key] = fused.tiles(stack, y)
        return joined.tiles[key], y, joined.row

    def _open(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[-1:] != (self.n_features,):
            raise InvalidArgumentError(
                f"x must have {self.n_features} features along its last axis, got shape {tuple(x.shape)}; "
                f"samples are rows"
            )
        if x.dtype != self.W.weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise InvalidArgumentError(
                f"x must have the dtype of the network, {self.W.weight.dtype}, got {x.dtype}; "
                f"use x.to({self.W.weight.dtype}) or network.to({x.dtype})"
            )
        # Under autocast the opening map gives a coarser dtype: the states stay in that of the input.
        return x if self.opening is None else self._opening_activation(self.opening(x)).to(x.dtype)

    def _last_state(self, y: torch.Tensor) -> torch.Tensor:
        if self.stack is None:
            assert self.plain is not None
            return self.plain(y)
        if self._joined is not None:
            K, b = self.stacked()
            if y.dim() == 2 and len(y) and not operations_are_watched():
                return fused.joined_state(self.stack, y, K, b, (self._joined.row,))
            return fused.usual_state(self.stack, y, K, b)
        if self.adjoint == "exact":
            return fused.last_state(self.stack, y, self.stacked)
        if y.dim() != 2:
            raise InvalidArgumentError(
                f"x must be two-dimensional for adjoint='continuous', got shape {tuple(y.shape)}; samples are rows"
            )
        matrices, biases = self.stacked()
        return PrintedAdjoint.apply(
            y, matrices, biases.reshape(len(matrices), -1), self.stack.plan(y), float(self.stack.order)
        )

    def _checked_grid(self, grid_shape: tuple[int, int] | None) -> tuple[int, int]:
        if grid_shape is None or len(grid_shape) != 2 or grid_shape[0] * grid_shape[1] != self.width:
            raise InvalidArgumentError(
                f"grid_shape must be two numbers whose product is the width {self.width} for operator='stencil', "
                f"got {grid_shape}; pass for example grid_shape=(rows, columns)"
            )
        return (int(grid_shape[0]), int(grid_shape[1]))

    def _check_printed(self, operator: str, activation: str, bias: str) -> None:
        stack = self.stack
        if (
            (operator, activation) != ("dense", "tanh")
            or bias == "none"
            or stack is None
            or stack.learned_order is not None
            or stack.order.dim()
            or not stack.has_equal_steps
        ):
            raise InvalidArgumentError(
                "adjoint='continuous' must go with operator='dense', activation='tanh', a bias, residual=True and one "
                "fixed order and step size, as in the paper; use adjoint='exact' otherwise"
            )


def _is_watched(linear: nn.Module) -> bool:
    """Whether a map is more than the product with its weight."""
    return type(linear) is not nn.Linear or linear.bias is not None or has_module_hooks(linear)


def _plain(value: Any) -> Any:
    """Numbers and lists of numbers in place of arrays."""
    return value.tolist() if isinstance(value, torch.Tensor | np.ndarray | np.generic) else value
