"""Which tensors a compiled kernel can read."""

from typing import Any

import numpy as np
import torch
from torch import nn

# The dtypes that kernels are compiled for.
NUMPY_TYPES: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether a tensor's numbers can be read at its address: on the CPU, dense, and no subclass that computes them."""
    return tensor.is_cpu and type(tensor) in (torch.Tensor, nn.Parameter) and tensor.layout is torch.strided
