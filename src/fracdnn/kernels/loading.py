"""The Triton kernel of the history sum, imported and tried once per device."""

import importlib
import os
import warnings
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType

import torch

from fracdnn.exceptions import KernelWarning


@lru_cache
def triton_history(device: torch.device) -> ModuleType | None:
    """Return `fracdnn.kernels.triton_history` if Triton works on a device, else None.

    No warning is given if Triton is not installed or has no kernels for such a device. On the CPU it can only interpret
    kernels, slowly, which TRITON_INTERPRET=1 requests. Any other failure is a `KernelWarning`.
    """
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if device.type != ("cpu" if interpreted else "cuda") or not find_spec("triton"):
        return None
    try:
        module = importlib.import_module("fracdnn.kernels.triton_history")
        module.try_out(device)
    except Exception as error:  # compilers raise errors of any kind, and torch's operations give the same results
        cause = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        warnings.warn(
            f"Triton's kernels cannot be used on {device}, so slower operations are used ({cause}); they need a C "
            f"compiler and a GPU that Triton knows, and without Triton this warning goes away",
            KernelWarning,
            stacklevel=4,
        )
        return None
    return module
