"""A single number as a parameter: one element, since `torch.distributed.fsdp.fully_shard` takes none without axes."""

import torch
from torch import nn


def parameter(value: torch.Tensor) -> nn.Parameter:
    """A parameter with at least one axis."""
    return nn.Parameter(value.reshape(1) if not value.dim() else value)
