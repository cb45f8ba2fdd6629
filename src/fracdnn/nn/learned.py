"""Order and steps as parameters, kept in their ranges by smooth maps."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.nn import single


class LearnedOrder(nn.Module):
    """An order in (0, 1), the logistic function of a parameter: one for all layers, or one for each."""

    def __init__(self, initial: torch.Tensor) -> None:
        super().__init__()
        if not bool((initial < 1).all()):
            raise InvalidArgumentError(
                "order must lie in (0, 1) to be learned, got 1.0; start from 0.9, say, or set learn_order=False"
            )
        self.by_layer = initial.dim() > 0
        self.raw = single.parameter(torch.logit(initial).to(torch.get_default_dtype()))
        self.register_load_state_dict_pre_hook(single.take_without_axes)

    def extra_repr(self) -> str:
        return "one for each layer" if self.by_layer else "one for all layers"

    def forward(self) -> torch.Tensor:
        raw = self.raw.to(torch.float64)
        # Not a view of the result: FSDP2 warns of views, which might be written into.
        return torch.sigmoid(raw if self.by_layer else raw.reshape(()))


class LearnedSteps(nn.Module):
    """A positive step for each layer, the exponential of a parameter."""

    by_layer = True

    def __init__(self, initial: torch.Tensor) -> None:
        super().__init__()
        self.raw = nn.Parameter(torch.log(initial).to(torch.get_default_dtype()))

    def forward(self) -> torch.Tensor:
        return torch.exp(self.raw.to(torch.float64))


def parameter_groups(module: nn.Module, *, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for an optimiser: learned orders and steps without weight decay, all other parameters with it.

    Decay draws a parameter to 0, and 0 is order 0.5 here, or step 1: 1,000 steps of AdamW with its default decay and a
    learning rate of 0.1 take an order of 0.9 to 0.69 where the gradient is 0. Use:
    `AdamW(parameter_groups(model, weight_decay=0.01))`.
    """
    memory = list(_memory_parameters(module))
    known = {id(parameter) for parameter in memory}
    others = [parameter for parameter in module.parameters() if id(parameter) not in known]
    return [
        {"params": others, "weight_decay": weight_decay},
        {"params": memory, "weight_decay": 0.0},
    ]


def _memory_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    seen: set[int] = set()
    for part in module.modules():
        if isinstance(part, LearnedOrder | LearnedSteps) and id(part.raw) not in seen:
            seen.add(id(part.raw))
            yield part.raw
