"""Import and compile the kernels, once: later uses find them in memory, later processes on disk."""

import importlib
from functools import lru_cache
from types import ModuleType

import torch

from fracdnn.kernels.interrupts import interrupt_afterwards
from fracdnn.kernels.tensors import NUMPY_TYPES


@lru_cache
def small_network(dtype: torch.dtype) -> ModuleType | None:
    """`fracdnn.kernels.small_network`, compiled for a dtype; None where there is no Numba."""
    return _compiled("small_network", ("run",), dtype)


@lru_cache
def history(dtype: torch.dtype) -> ModuleType | None:
    """`fracdnn.kernels.history` in the same way."""
    return _compiled("history", ("begin", "finish"), dtype)


def _compiled(name: str, entries: tuple[str, ...], dtype: torch.dtype) -> ModuleType | None:
    if dtype not in NUMPY_TYPES:
        return None
    with interrupt_afterwards():
        try:
            module = importlib.import_module(f"fracdnn.kernels.{name}")
        except ImportError:
            return None
        for entry in entries:
            getattr(module, entry)(NUMPY_TYPES[dtype])
    return module
