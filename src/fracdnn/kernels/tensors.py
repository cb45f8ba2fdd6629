"""Which tensors a compiled kernel can take."""

from typing import Any

import numpy as np
import torch
from torch import nn

# Numbers that kernels are compiled for.
NUMPY_TYPES: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether it lies in this machine's memory as a tensor does that is nothing more."""
    return tensor.is_cpu and type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout is torch.strided
