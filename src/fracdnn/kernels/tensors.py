"""The dtypes that a compiled kernel can read."""

from typing import Any

import numpy as np
import torch

# The dtypes that kernels are compiled for.
NUMPY_TYPES: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}
