"""Order and steps as parameters, kept in their ranges by smooth maps."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn.signature import Device, DType
from fracdnn.tracing import values_are_unknown

# Where nobody can look at values: next to 0, but not 0.
_SMALLEST = 1e-300


class _Learned(nn.Module):
    """Numbers in a range as a smooth function of a parameter without bounds, of which `_raw` is the inverse."""

    _raw: Callable[[torch.Tensor], torch.Tensor]

    def __init__(self, initial: torch.Tensor, *, device: Device = None, dtype: DType = None) -> None:
        super().__init__()
        self.by_layer, self.initial = initial.dim() > 0, initial
        raw = self._raw(initial).to(device, dtype or torch.get_default_dtype())
        self.raw = nn.Parameter(torch.atleast_1d(raw))  # since `fully_shard` takes none without axes

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Back to where it started."""
        self.raw.copy_(self._raw(self.initial).reshape(self.raw.shape))


class LearnedOrder(_Learned):
    """An order in (0, 1), the logistic function of a parameter: one for all layers, or one for each."""

    _raw = staticmethod(torch.logit)

    def __init__(self, initial: torch.Tensor, *, device: Device = None, dtype: DType = None) -> None:
        if not bool((initial < 1).all()):
            raise InvalidArgumentError(
                "order must lie in (0, 1) to be learned, got 1.0; start from 0.9, say, or set learn_order=False"
            )
        super().__init__(initial, device=device, dtype=dtype)

    def extra_repr(self) -> str:
        return "one for each layer" if self.by_layer else "one for all layers"

    def forward(self) -> torch.Tensor:
        # Not a view of the result: FSDP2 warns of views, which might be written into.
        return orders_from(self.raw if self.by_layer else self.raw.reshape(()))


class LearnedSteps(_Learned):
    """A positive step for each layer, the exponential of a parameter."""

    _raw = staticmethod(torch.log)

    def forward(self) -> torch.Tensor:
        return torch.exp(self.raw.to(torch.float64))


def orders_from(raw: torch.Tensor) -> torch.Tensor:
    """The orders that parameters stand for, float64; never 0 where nobody can look at them."""
    order = torch.sigmoid(raw.to(torch.float64))
    return order.clamp(min=_SMALLEST) if values_are_unknown(raw) else order


def parameter_groups(
    module: nn.Module,
    *,
    lr: float | torch.Tensor | None = None,
    weight_decay: float | None = None,
    order_lr: float | torch.Tensor | None = None,
) -> list[dict[str, Any]]:
    """Two groups for an optimizer: first all other parameters, then learned orders and steps, without weight decay.

    The first has `lr` and `weight_decay`, the second `order_lr` and weight decay 0. What is left out of `lr` and
    `weight_decay` is for the optimizer to say: `AdamW(parameter_groups(model), lr=1e-3)`. `order_lr` is 10 `lr` unless
    given, or 0.01 without `lr`: at the rate of the other parameters an order hardly moves.

    Decay draws a parameter to 0, and 0 is order 0.5 here, or step 1: 1,000 steps of AdamW with its default decay and a
    learning rate of 0.1 take an order of 0.9 to 0.69 where the gradient is 0. One step of Adam moves an order by
    `order_lr` times order (1 − order), and a step size by the fraction `order_lr`, at most about.
    """
    memory = {id(part.raw): part.raw for part in module.modules() if isinstance(part, _Learned)}
    others = [parameter for parameter in module.parameters() if id(parameter) not in memory]
    rates = {"lr": lr, "weight_decay": weight_decay, "order_lr": order_lr}
    given = {name: _checked_rate(rate, name) for name, rate in rates.items() if rate is not None}
    order_rate = given.pop("order_lr", 1e-2 if lr is None else 10 * lr)
    return [{"params": others, **given}, {"params": list(memory.values()), "lr": order_rate, "weight_decay": 0.0}]


def _checked_rate(rate: Any, name: str) -> Any:
    """Torch itself looks only at those that are given to the optimizer."""
    is_number = isinstance(rate, Real | torch.Tensor) and not isinstance(rate, bool)
    if not is_number or not (math.isfinite(rate) and rate >= 0):
        raise InvalidArgumentError(f"{name} must be a finite number, not negative, got {rate!r}; pass 0.01, say")
    return rate
