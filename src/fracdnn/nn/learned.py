"""Order and steps as parameters, kept in their ranges by maps without flat parts near common values."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError

# Arguments of the constructors, as of torch's modules.
Device = torch.device | str | None
DType = torch.dtype | None
# Order 0 has no meaning; this is the smallest order that a parameter can stand for.
_SMALLEST = 1e-300


class _Learned(nn.Module):
    """Numbers in a range as a function of a parameter without bounds, of which `_raw` is an inverse."""

    _raw: Callable[[torch.Tensor], torch.Tensor]

    def __init__(self, initial: torch.Tensor, *, device: Device = None, dtype: DType = None) -> None:
        super().__init__()
        self.by_layer, self.initial = initial.dim() > 0, initial
        raw = self._raw(initial).to(device, dtype or torch.get_default_dtype())
        self.raw = nn.Parameter(torch.atleast_1d(raw))  # `fully_shard` refuses parameters without axes

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Restore the initial values."""
        self.raw.copy_(self._raw(self.initial).reshape(self.raw.shape))


class LearnedOrder(_Learned):
    """An order in (0, 1]: one for all layers, or one for each. See `orders_from` for the parametrization."""

    @staticmethod
    def _raw(order: torch.Tensor) -> torch.Tensor:
        return order - 1.0

    def extra_repr(self) -> str:
        return "one for each layer" if self.by_layer else "one for all layers"

    def forward(self) -> torch.Tensor:
        # `raw` is reshaped, not the result: FSDP2 warns of results that are views, which might be written into.
        return orders_from(self.raw if self.by_layer else self.raw.reshape(()))


class LearnedSteps(_Learned):
    """A positive step for each layer, the exponential of a parameter."""

    _raw = staticmethod(torch.log)

    def forward(self) -> torch.Tensor:
        return torch.exp(self.raw.to(torch.float64))


def orders_from(raw: torch.Tensor) -> torch.Tensor:
    """Return the orders that parameters stand for, float64, in (0, 1].

    An order is 1 + raw for raw in (−1, 0], and is reflected at 0 and at 1 beyond that: the distance of raw from the
    nearest odd number. The slope is 1 or −1 everywhere, so no start is flat, and a step beyond order 1 comes back from
    the other side. At raw = 0, order 1, the derivative is the one-sided 1.
    """
    position = raw.to(torch.float64)
    position = position - 2.0 * torch.round(position.detach() / 2.0)  # in [−1, 1], with order 1 at 0
    sign = 1.0 - 2.0 * (position.detach() > 0)
    return (1.0 + position * sign).clamp(min=_SMALLEST)


def parameter_groups(
    module: nn.Module,
    *,
    lr: float | torch.Tensor | None = None,
    weight_decay: float | None = None,
    order_lr: float | torch.Tensor | None = None,
) -> list[dict[str, Any]]:
    """Two groups for an optimizer: first all other parameters, then learned orders and steps, without weight decay.

    The first has `lr` and `weight_decay`, the second `order_lr` and weight decay 0. What is left out of `lr` and
    `weight_decay` is for the optimizer to say: `AdamW(parameter_groups(model), lr=1e-3)`. `order_lr` is 0.01 unless
    given, whatever `lr` is: one step of Adam moves an order by about `order_lr` at most, and a step size by that
    fraction.

    Decay draws a parameter to 0, which is order 1 and step 1: 1,000 steps of AdamW with its default decay and a
    learning rate of 0.1 take an order of 0.5 to 0.82 if the gradient is 0.
    """
    memory = {id(part.raw): part.raw for part in module.modules() if isinstance(part, _Learned)}
    others = [parameter for parameter in module.parameters() if id(parameter) not in memory]
    rates = {"lr": lr, "weight_decay": weight_decay, "order_lr": order_lr}
    given = {name: _checked_rate(rate, name) for name, rate in rates.items() if rate is not None}
    order_rate = given.pop("order_lr", 1e-2)
    return [{"params": others, **given}, {"params": list(memory.values()), "lr": order_rate, "weight_decay": 0.0}]


def _checked_rate(rate: Any, name: str) -> Any:
    """Return the rate if it is valid; torch checks only the rates that are passed to the optimizer."""
    is_number = isinstance(rate, Real | torch.Tensor) and not isinstance(rate, bool)
    if not is_number or not (math.isfinite(rate) and rate >= 0):
        raise InvalidArgumentError(f"{name} must be a finite number, not negative, got {rate!r}; pass 0.01, say")
    return rate
