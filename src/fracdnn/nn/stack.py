"""Any shape-keeping modules as a network with memory."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.memory import (
    HISTORIES,
    MemoryPlan,
    choose_history,
    default_tolerance,
    equal_steps_plan,
    grid_plan,
    propagate,
    propagate_residual,
)
from fracdnn.nn.learnable import LearnedOrder, LearnedSteps
from fracdnn.tracing import being_traced
from fracdnn.validation import check_choice, check_order, check_positive, check_step_size

Numbers = float | Sequence[float] | np.ndarray | torch.Tensor


class FractionalStack(nn.Module):
    """Layers with memory: Y_j = Σ_k H_jk Y_k + c_j f_{j−1}(Y_{j−1}), the L1 scheme for d_t^order Y = f (paper, Alg. 1).

    Each layer f_j maps a state to a tensor of the same shape and must not write into the state it is given (an error,
    but for order 1 in inference mode, where it goes unnoticed). `order`
    is one number in (0, 1] or one for each layer, `step_size` one positive number or one for each layer (then the
    weights are those of unequal steps). Order 1 is a plain residual network and, with fixed steps, runs as one. Fixed
    orders and steps are settings like the number of layers: they are not part of the state dict.

    `learn_order=True` makes the order a parameter in (0, 1), `learn_order="layer"` one for each layer;
    `learn_steps=True` makes the steps parameters. `order` and `step_sizes` give the current values.

    `history` is how the sum over earlier layers is computed: "exact" in blocks, O(N²) sums; "compressed" (one order,
    equal steps) with far weights as exponentials of relative error `tolerance` (default 1e-10 in float64, else 1e-6),
    O(N) work and, without gradients, O(1) states; "auto" chooses by depth. `history_` says which was chosen, "none"
    where the stack runs as a residual network.

    Shapes: x [...] as the layers take it; `stack(x)` gives Y_N, `stack(x, trajectory=True)` all Y_0 … Y_N,
    [N + 1, ...]. Gradients are those of the exact discrete adjoint; memory between the passes is one state a layer
    beside what the layers save. Second derivatives, `torch.compile`, `torch.export`, `torch.func` and forward-mode
    derivatives run on plain operations with the exact weights. Parameters and x must share their dtype unless autocast
    is on. Values are checked for NaN and inf on the CPU only: on a GPU a look at them would wait for it.
    """

    def __init__(
        self,
        layers: Iterable[nn.Module],
        *,
        order: Numbers = 0.5,
        step_size: Numbers = 0.2,
        learn_order: bool | str = False,
        learn_steps: bool = False,
        history: str = "auto",
        tolerance: float | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_checked_layers(layers))
        n_layers = len(self.layers)
        orders = check_order(_constant(order, "order"))
        steps = check_step_size(_constant(step_size, "step_size"))
        for name, value in (("order", orders), ("step_size", steps)):
            if value.dim() and value.shape != (n_layers,):
                raise InvalidArgumentError(
                    f"{name} must be one number or one for each of the {n_layers} layers, got shape "
                    f"{tuple(value.shape)}; pass a list of {n_layers} numbers"
                )
        if learn_order not in (True, False, "layer"):
            raise InvalidArgumentError(
                f"learn_order must be True, False or 'layer', got {learn_order!r}; 'layer' learns one for each layer"
            )
        self.learned_order = (
            LearnedOrder(orders.expand(n_layers) if learn_order == "layer" else orders) if learn_order else None
        )
        self.learned_steps = LearnedSteps(steps.expand(n_layers)) if learn_steps else None
        self._order = orders
        self._steps = steps
        self._step_numbers: list[float] = steps.expand(n_layers).tolist()
        self.has_equal_steps = not learn_steps and steps.dim() == 0
        self._plans: dict[tuple[int, str, float, bool], MemoryPlan] = {}
        self._has_memory = bool(learn_order) or bool((orders < 1).any())
        self._compressible = self.has_equal_steps and orders.dim() == 0 and learn_order != "layer"
        self.history = check_choice(history, "history", HISTORIES)
        if history == "compressed" and not self._compressible:
            raise InvalidArgumentError(
                "history must be 'exact' or 'auto' for unequal steps or an order for each layer, got 'compressed'; "
                "its exponentials need one order and equal steps"
            )
        self.tolerance = None if tolerance is None else check_positive(tolerance, "tolerance")

    @property
    def order(self) -> torch.Tensor:
        """The order, float64: a number, or one for each layer."""
        return self._order if self.learned_order is None else self.learned_order()

    @property
    def step_sizes(self) -> torch.Tensor:
        """The step of each layer, float64, [N]."""
        steps = self._steps if self.learned_steps is None else self.learned_steps()
        return steps.expand(len(self.layers))

    @property
    def step_numbers(self) -> list[float]:
        """The fixed steps, a number for each layer that there is now."""
        return self._step_numbers[: len(self.layers)]

    @property
    def history_(self) -> str:
        """How the sum over earlier layers is computed: "exact", "compressed", or "none" at order 1."""
        if self.is_residual:
            return "none"
        parameter = next(self.layers.parameters(), None)
        return self._memory_history(parameter is None or parameter.is_cpu)

    @property
    def is_residual(self) -> bool:
        """Whether it runs as a plain residual network: order 1 and fixed steps."""
        return not self._has_memory and self.learned_steps is None

    def forward(self, x: torch.Tensor, trajectory: bool = False) -> torch.Tensor:
        self._check_input(x)
        layers = list(self.layers)
        traced = being_traced()

        def step(j: int, y: torch.Tensor) -> torch.Tensor:
            change = layers[j](y) if traced else self._call(layers, j, y)
            if not isinstance(change, torch.Tensor):
                raise InvalidTypeError(
                    f"{self._name(j)} must return a tensor, got {type(change).__name__}; wrap it in a module that does"
                )
            if change.shape != y.shape:
                raise InvalidArgumentError(
                    f"{self._name(j)} must keep the shape of its input, got {tuple(change.shape)} from "
                    f"{tuple(y.shape)}; put layers that change the shape before or after the stack"
                )
            if change.is_complex():
                raise InvalidTypeError(
                    f"{self._name(j)} must return real numbers, got {change.dtype}; return change.real or change.abs()"
                )
            return change

        if self.is_residual:
            return propagate_residual(self.step_numbers, step, x, trajectory=trajectory, name=self._name)
        return propagate(self.plan(x), step, x, trajectory=trajectory, name=self._name)

    def extra_repr(self) -> str:
        order = "learned" if self.learned_order is not None else self._order.tolist()
        steps = "learned" if self.learned_steps is not None else self._steps.tolist()
        return f"order={order}, step_size={steps}, history={self.history_!r}"

    def plan(self, x: torch.Tensor) -> MemoryPlan:
        """The weights and factors for a state like x."""
        tolerance = default_tolerance(x.dtype) if self.tolerance is None else self.tolerance
        if self.learned_order is not None or self.learned_steps is not None or being_traced():
            return self._new_plan(tolerance, x.is_cpu)
        key = (len(self.layers), self._memory_history(x.is_cpu), tolerance, x.is_cpu)
        if key not in self._plans:
            # A plan outlives the call that asks for it, which may be made in inference mode.
            with torch.inference_mode(False), torch.no_grad():
                self._plans = {key: self._new_plan(tolerance, x.is_cpu)}
        return self._plans[key]

    def __getstate__(self) -> dict[str, Any]:
        """Without the weights, which are quickly made again."""
        return {**self.__dict__, "_plans": {}, "_fused": None}

    def _new_plan(self, tolerance: float, on_cpu: bool = True) -> MemoryPlan:
        order = self.order
        if not self.has_equal_steps:
            steps = self.step_sizes
            times = torch.cat([torch.zeros_like(steps[:1]), steps.cumsum(0)])
            return grid_plan(order.to(times.device), times)
        return equal_steps_plan(
            order,
            self._steps,
            len(self.layers),
            history=self._memory_history(on_cpu),
            tolerance=tolerance,
            on_cpu=on_cpu,
        )

    def _memory_history(self, on_cpu: bool) -> str:
        return choose_history(self.history, len(self.layers), equal_steps=self._compressible, on_cpu=on_cpu)

    def _name(self, j: int) -> str:
        return f"layer {j} ({type(self.layers[j]).__name__})"

    def _call(self, layers: list[nn.Module], j: int, y: torch.Tensor) -> torch.Tensor:
        try:
            return layers[j](y)
        except Exception as error:
            error.add_note(f"in {self._name(j)} of a FractionalStack, for a state of shape {tuple(y.shape)}")
            raise

    def _check_input(self, x: Any) -> None:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
            raise InvalidTypeError(f"x must be a floating-point tensor, got {kind}; convert it, say with x.float()")
        parameter = next((p for p in self.layers.parameters() if p.is_floating_point()), None)
        if parameter is None or parameter.dtype == x.dtype or torch.is_autocast_enabled(x.device.type):
            return
        raise InvalidArgumentError(
            f"x must have the dtype of the layers' parameters, {parameter.dtype}, got {x.dtype}; "
            f"use x.to({parameter.dtype}) or stack.to({x.dtype})"
        )


def _constant(value: Any, name: str) -> Any:
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            raise InvalidArgumentError(
                f"{name} must be a constant, got a tensor that requires a gradient; "
                f"pass numbers and set learn_order=True or learn_steps=True"
            )
        return value.clone()
    if isinstance(value, np.ndarray) or (isinstance(value, Sequence) and not isinstance(value, str)):
        return torch.from_numpy(np.array(value, dtype=np.float64))
    return value


def _checked_layers(layers: Any) -> list[nn.Module]:
    if isinstance(layers, nn.Module) and not isinstance(layers, nn.ModuleList | nn.Sequential):
        raise InvalidTypeError(
            f"layers must be a list of modules, got {type(layers).__name__}; pass [{type(layers).__name__}(...), ...]"
        )
    modules = list(layers)
    if not modules:
        raise InvalidArgumentError("layers must hold at least one module, got an empty list; pass one for each layer")
    for j, module in enumerate(modules):
        if not isinstance(module, nn.Module):
            raise InvalidTypeError(
                f"layers must hold torch modules, got {type(module).__name__} at index {j}; wrap it in an nn.Module"
            )
    return modules
