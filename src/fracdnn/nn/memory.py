"""The memory of a network's layers as torch sees it: order, steps, what of them is learned, and the plan they make."""

import copy
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory.choose_sum import choose_block, choose_compression
from fracdnn.memory.plan import (
    ExactPlan,
    MemorylessPlan,
    MemoryPlan,
    default_compress_tol,
    equal_steps_weights,
    steps_plan,
)
from fracdnn.memory.sums import wide
from fracdnn.nn.learned import Device, DType, LearnedOrder, LearnedSteps
from fracdnn.tracing import Watch, being_traced, outside_of_modes
from fracdnn.validation import (
    check_compress,
    check_flag,
    check_order,
    check_positive,
    check_positive_tensor,
    check_step_size,
)

# Of orders and steps that round to 0 or are not finite: those that are given were checked before.
_LEARNED_REMEDY = (
    "it was learned, with too large steps: go back to an earlier state and use a smaller learning rate for it, "
    "as parameter_groups(model, lr=1e-3, order_lr=1e-4)"
)
Numbers = float | Sequence[float] | np.ndarray | torch.Tensor


class Memory(nn.Module):
    """Order and steps of `n_layers` layers.

    `order` is one number in (0, 1] or one for each layer, `step_size` one positive number or one for each layer (then
    the weights are those of unequal steps). Order 1 is a plain residual network and runs as one.

    `learn_order=True` makes the order a parameter in (0, 1], `learn_order="layer"` one for each layer;
    `learn_steps=True` makes the steps parameters. Weight decay should leave them alone: see `parameter_groups`.

    `compress` is how the sum over earlier layers is computed: False in blocks, O(N²) sums; True (one order, equal
    steps) with far weights as exponentials of relative error `compress_tol` (default 1e-10 in float64, else 1e-6), O(N)
    work and, without gradients, O(1) states; "auto" chooses by depth and size. `compressed_` says what the last pass
    did: True or False; None before the first.

    Fixed orders and steps are part of the state dict. One made with others is refused; with `strict=False` it is
    loaded, and the fixed orders and steps stay those of this module. `device` and `dtype` are those of learned ones.
    """

    def __init__(
        self,
        n_layers: int,
        *,
        order: Numbers = 0.5,
        step_size: Numbers = 0.2,
        learn_order: bool | str = False,
        learn_steps: bool = False,
        compress: bool | str = "auto",
        compress_tol: float | None = None,
        device: Device = None,
        dtype: DType = None,
    ) -> None:
        super().__init__()
        self.n_layers = n_layers
        place: Any = {"device": device, "dtype": dtype}
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
        check_flag(learn_steps, "learn_steps")
        # Whether nothing is learned, whether the layers have no memory, and whether there are orders or steps of single
        # layers, so that far weights cannot be exponentials.
        self.is_fixed = not (learn_order or learn_steps)
        self.is_residual = not learn_order and bool((orders == 1).all())
        self.is_by_layer = learn_order == "layer" or learn_steps or bool(orders.dim() or steps.dim())
        initial = orders.expand(n_layers) if learn_order == "layer" else orders
        self.learned_order = LearnedOrder(initial, **place) if learn_order else None
        self.learned_steps = LearnedSteps(steps.expand(n_layers), **place) if learn_steps else None
        self._order, self._steps = orders, steps
        self._numbers = _text_of(orders, steps)
        self.compress = check_compress(compress)
        if compress is True and self.is_by_layer:
            raise InvalidArgumentError(
                "compress must be False or 'auto' for unequal steps or an order for each layer, got True; "
                "exponentials need one order and equal steps"
            )
        self.compress_tol = None if compress_tol is None else check_positive(compress_tol, "compress_tol")
        if self.compress_tol is not None and self.compress_tol >= 1:
            raise InvalidArgumentError(
                f"compress_tol must lie below 1, got {compress_tol}; it is a relative error, 1e-6 say"
            )
        self.compressed_: bool | None = None
        self._plans: dict[tuple[Any, ...], MemoryPlan] = {}
        # Of what is fixed, next to what is learned: a CUDA graph can hold no copying.
        self.copies: dict[torch.device, torch.Tensor] = {}

    @property
    def order(self) -> torch.Tensor:
        """The order, float64: a number, or one for each layer. A copy."""
        return self._order.clone() if self.learned_order is None else self.learned_order()

    @property
    def step_size(self) -> torch.Tensor:
        """The step, float64: a number, or one for each layer. A copy."""
        return self._steps.clone() if self.learned_steps is None else self.learned_steps()

    def reset_parameters(self) -> None:
        """Orders and steps that are learned start again where they started."""
        reset_modules(self)

    def part(self, index: slice, n_layers: int) -> "Memory":
        """Return the memory of some of `n_layers` layers: one value for all is shared, values of layers are copied."""
        part = separate_copy(self)
        part.n_layers = len(range(n_layers)[index])
        part._plans, part.copies, part.compressed_ = {}, {}, None
        part._order, part._steps = _taken(self._order, index), _taken(self._steps, index)
        part._numbers = _text_of(part._order, part._steps)
        for name, learned in self.named_children():
            if isinstance(learned, LearnedOrder | LearnedSteps) and learned.by_layer:
                copied = copy.deepcopy(learned)
                setattr(part, name, copied)
                copied.initial = _taken(learned.initial, index)
                copied.raw = nn.Parameter(_taken(learned.raw.detach(), index))
        return part

    @property
    def step_sizes(self) -> torch.Tensor:
        """The step of each layer, float64, [N]."""
        return self.steps_of(self.n_layers)

    def steps_of(self, n_layers: int) -> torch.Tensor:
        """Return the step of each of so many layers, float64, [n_layers]."""
        return self._for(n_layers, self.step_size, "step_size").expand(n_layers)

    def plan(
        self,
        state: torch.Tensor,
        n_layers: int,
        *,
        compress: bool | None = None,
        sums: str = "auto",
        watch: Watch | None = None,
    ) -> MemoryPlan:
        """The weights and factors for so many layers and states like this one; noted as what ran.

        `compress` and `sums` are what an engine needs where it can use only one, `watch` what a caller knows already.
        """
        watch = watch or Watch.now()
        compress = self._choice(state, n_layers, watch.transformed) if compress is None else compress
        make = partial(self._new_plan, state, n_layers, compress, sums)
        if self.is_fixed and not watch.traced:
            key = (n_layers, compress, sums, self._compress_tol(state), choose_block(state))
            if key not in self._plans:
                self._plans = {**(self._plans if len(self._plans) < 4 else {}), key: outside_of_modes(make)}
            plan = self._plans[key]
        elif self.is_fixed and torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling():
            # Constants of the program, not operations in it.
            plan = outside_of_modes(make)
        elif self.is_fixed and torch.compiler.is_dynamo_compiling():
            constants = _compiled_constants(self._numbers, n_layers, wide(state.dtype), state.device)
            matrix, factors = constants[:, :-1].detach(), constants[:, -1].detach()
            plan = MemorylessPlan(factors) if self.is_residual else ExactPlan(factors, matrix)
        else:
            plan = make()
        if not watch.traced or not torch.compiler.is_compiling():
            self.compressed_ = plan.compressed
        return plan

    def _new_plan(self, state: torch.Tensor, n_layers: int, compress: bool, sums: str) -> MemoryPlan:
        order, steps = self._order, self._steps  # checked when they were given; they go where what is learned is
        if self.learned_order is not None:
            order = check_order(self.learned_order(), remedy=f"; {_LEARNED_REMEDY}")
        if self.learned_steps is not None:
            steps = check_positive_tensor(self.learned_steps(), "step_size", remedy=_LEARNED_REMEDY)
            order = order if self.learned_order is not None else self._copy(order, steps.device)
        else:
            steps = self._copy(steps, order.device)
        order, steps = self._for(n_layers, order, "order"), self._for(n_layers, steps, "step_size")
        if self.is_residual:
            return MemorylessPlan(steps.expand(n_layers).contiguous())
        if steps.dim():
            return steps_plan(order, steps)
        kind: Any = {"compress_tol": self._compress_tol(state), "block": choose_block(state), "sums": sums}
        return equal_steps_weights(order, steps, n_layers, compress=compress, **kind)

    def _copy(self, values: torch.Tensor, device: torch.device) -> torch.Tensor:
        if values.device == device or being_traced():
            return values.to(device)
        if device not in self.copies:
            self.copies[device] = outside_of_modes(lambda: values.to(device))
        return self.copies[device]

    def _for(self, n_layers: int, values: torch.Tensor, name: str) -> torch.Tensor:
        """The values of so many layers, which may have become others since."""
        if values.dim() and n_layers > len(values):
            raise InvalidArgumentError(
                f"{name} must hold one number for each of the {n_layers} layers, got {len(values)}; "
                f"layers were added since, so build the stack anew with {n_layers} numbers, or with one for all"
            )
        return values[:n_layers] if values.dim() else values

    def _choice(self, state: torch.Tensor, n_layers: int, transformed: bool | None = None) -> bool:
        kind = {"equal_steps": not self.is_by_layer, "learned": self.learned_order is not None}
        return choose_compression(self.compress, n_layers, state, **kind, transformed=transformed)

    def _compress_tol(self, state: torch.Tensor) -> float:
        return default_compress_tol(state.dtype) if self.compress_tol is None else self.compress_tol

    def get_extra_state(self) -> torch.Tensor:
        """The fixed orders, then the fixed steps; NaN in place of what is learned, which is among the parameters."""
        order = self._order if self.learned_order is None else torch.full_like(self._order, torch.nan)
        steps = self._steps if self.learned_steps is None else torch.full_like(self._steps, torch.nan)
        return torch.cat([order.reshape(-1), steps.reshape(-1)])

    def set_extra_state(self, state: Any) -> None:
        """Do nothing: fixed orders and steps are those of the constructor. Loading compares them."""

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        metadata: Any,
        strict: bool,
        missing: list[str],
        unexpected: list[str],
        errors: list[str],
    ) -> None:
        """Report other orders and steps as an unexpected key: an error unless the caller passed strict=False."""
        name = f"{prefix}_extra_state"
        if difference := self.difference_from(state_dict, prefix):
            unexpected.append(f"{name} ({difference})")
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)

    def difference_from(self, state_dict: Mapping[str, Any], prefix: str) -> str:
        """Return how the orders and steps of a state dict differ from those of this memory; "" where they do not."""
        here = self.get_extra_state()
        state = state_dict.get(f"{prefix}_extra_state", here)
        if not isinstance(state, torch.Tensor) or state.shape != here.shape:
            got = tuple(state.shape) if isinstance(state, torch.Tensor) else type(state).__name__
            return (
                f"a state dict must hold {len(here)} orders and steps for this memory, got {got}; "
                f"build the network with the order and step_size that the state dict was made with, or keep those of "
                f"this one by strict=False"
            )
        # In the precision of the state dict, which may have been cast.
        if not torch.equal(here.isnan(), state.isnan()) or (here.to(state).nan_to_num() != state.nan_to_num()).any():
            return (
                f"a state dict must be one of {self._described(here)}, got one of {self._described(state)}; build the "
                f"network with the order, step_size, learn_order and learn_steps that it was made with, or keep those "
                f"of this one by strict=False"
            )
        return ""

    def _described(self, values: torch.Tensor) -> str:
        parts = values.split([self._order.numel(), self._steps.numel()])
        shown = ["learned" if part.isnan().any() else part.tolist() for part in parts]
        order, steps = (part[0] if len(part) == 1 else part for part in shown)
        return f"order {order} and step {steps}"

    def __getstate__(self) -> dict[str, Any]:
        """Without the weights, which are quickly made again."""
        return {**self.__dict__, "_plans": {}, "copies": {}}

    def extra_repr(self) -> str:
        order = _shown(self.order) + (" (learned)" if self.learned_order else "")
        steps = _shown(self.step_size) + (" (learned)" if self.learned_steps else "")
        return f"order={order}, step_size={steps}, compress={self.compress!r}"


def reset_modules(module: nn.Module) -> None:
    """Reset all modules within one that can be reset, inner ones first: attention resets more than its own."""
    for part in reversed(list(module.modules())[1:]):
        reset = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
        if reset is not None:
            reset()


class HasMemory(nn.Module):
    """A module whose layers have `memory`."""

    memory: Memory

    @property
    def order(self) -> torch.Tensor:
        """The order, float64: a number, or one for each layer."""
        return self.memory.order

    @property
    def compressed_(self) -> bool | None:
        """Whether the last pass summed far layers through exponentials; None before the first."""
        return self.memory.compressed_

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state dict as torch does; if strict, refuse other orders and steps before anything is loaded."""
        if strict and (difference := self.memory.difference_from(state_dict, "memory.")):
            raise InvalidArgumentError(difference)
        return super().load_state_dict(state_dict, strict, assign)


def _text_of(orders: torch.Tensor, steps: torch.Tensor) -> str:
    """Return orders and steps as text, which `torch.compile` takes for a constant, unlike a float."""
    return json.dumps([orders.tolist(), steps.tolist()])


@torch.compiler.assume_constant_result
def _compiled_constants(numbers: str, n_layers: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return weights and factors of fixed orders and steps, [N, N + 1], on the device of the states."""

    def make() -> torch.Tensor:
        order, steps = (torch.tensor(value, dtype=torch.float64) for value in json.loads(numbers))
        order, steps = (value[:n_layers] if value.dim() else value for value in (order, steps))
        plan = steps_plan(order, steps) if steps.dim() else equal_steps_weights(order, steps, n_layers)
        return torch.cat([plan.matrix(), plan.factors.unsqueeze(1)], dim=1).to(device, dtype)

    return outside_of_modes(make)


def separate_copy(module: Any) -> Any:
    """A shallow copy of a module that shares what it holds, but not the dicts it is held in, nor those of its hooks."""
    copied = copy.copy(module)
    copied.__dict__.update({name: copy.copy(value) for name, value in vars(copied).items() if isinstance(value, dict)})
    return copied


def _taken(values: torch.Tensor, index: slice) -> torch.Tensor:
    """A copy of some of the values, or the one for all; torch has no slices that go backwards."""
    return values[list(range(len(values))[index])] if values.dim() else values


def _shown(values: torch.Tensor) -> str:
    """Numbers to four digits; of many, the ends."""
    numbers = [f"{number:.4g}" for number in values.detach().reshape(-1).tolist()]
    shown = ", ".join(numbers if len(numbers) <= 6 else [*numbers[:3], "…", *numbers[-2:]])
    return f"[{shown}]" if values.dim() else shown


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
