"""A single number as a parameter: one element, since `torch.distributed.fsdp.fully_shard` takes none without axes."""

from typing import Any

import torch
from torch import nn


def parameter(value: torch.Tensor) -> nn.Parameter:
    """A parameter with at least one axis."""
    return nn.Parameter(value.reshape(1) if not value.dim() else value)


def take_without_axes(module: nn.Module, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    """A hook before a state dict is loaded: single numbers without axes, as earlier versions wrote them, fit too."""
    for name, own in module.named_parameters(recurse=False):
        value = state_dict.get(prefix + name)
        if isinstance(value, torch.Tensor) and not value.dim() and own.shape == (1,):
            state_dict[prefix + name] = value.reshape(1)
