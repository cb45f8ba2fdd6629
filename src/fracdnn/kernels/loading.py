"""Import and compile the kernels: once on a machine, as later processes find them on disk.

Numba keeps its own beside the source files, in `__pycache__`, or in the folder that NUMBA_CACHE_DIR names.
"""

import importlib
import logging
import os
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from fracdnn.exceptions import KernelWarning
from fracdnn.kernels.interrupts import interrupt_afterwards

# The dtypes that kernels are compiled for.
NUMPY_TYPES: dict[torch.dtype, Any] = {torch.float32: np.float32, torch.float64: np.float64}
_one_at_a_time = threading.Lock()


class Loaded(NamedTuple):
    """The kernel for a dtype: `state` is "compiled", "found on disk" or "not available" (no module then)."""

    dtype: torch.dtype
    module: ModuleType | None
    state: str
    seconds: float


@lru_cache
def triton_history(device: torch.device) -> ModuleType | None:
    """`fracdnn.kernels.triton_history`, where Triton works for a device; None where it does not.

    Nothing is said where Triton is not installed, or makes no kernels for such a device; of the CPU's numbers it can
    only interpret kernels, slowly, where TRITON_INTERPRET=1 says so. Any other cause is told in a `KernelWarning`.
    """
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if device.type != ("cpu" if interpreted else "cuda") or not find_spec("triton"):
        return None
    try:
        module = importlib.import_module("fracdnn.kernels.triton_history")
        module.try_out(device)
    except Exception as error:  # of any kind, as a compiler's are; there is a slower way to every result
        remedy = "they need a C compiler and a GPU that Triton knows, and without Triton this warning goes away"
        _warn(f"Triton's kernels cannot be used on {device}", error, remedy)
        return None
    return module


def warmup() -> list[Loaded]:
    """Load the kernel for every dtype, so that no later call has to wait for the compiler."""
    return [small_network(dtype) for dtype in NUMPY_TYPES]


@lru_cache
def small_network(dtype: torch.dtype) -> Loaded:
    """`fracdnn.kernels.small_network`, compiled for a dtype; what fails once is not tried again.

    Nothing is said where Numba is not installed, or the dtype is not one kernels are made for. Any other cause is
    told in a `KernelWarning`.
    """
    start = time.perf_counter()
    module, state = None, "not available"
    if dtype in NUMPY_TYPES and find_spec("numba"):
        with _one_at_a_time, interrupt_afterwards():
            try:
                with _announced() as compiled:
                    module = importlib.import_module("fracdnn.kernels.small_network")
                    module.run(NUMPY_TYPES[dtype])
                state = "compiled" if compiled else "found on disk"
            except Exception as error:  # of any kind, as a compiler's are; there is a slower way to every result
                module = None
                remedy = "`numba -s` shows whether Numba works here, and without Numba this warning goes away"
                _warn(f"the kernel could not be compiled for {dtype}", error, remedy)
    return Loaded(dtype, module, state, time.perf_counter() - start)


@contextmanager
def _announced() -> Iterator[list[Any]]:
    """Log a line as soon as Numba compiles anything, which takes seconds; the list then is not empty."""
    from numba.core import event

    class Announcement(event.RecordingListener):
        def on_start(self, event: Any) -> None:
            if not self.buffer:
                # A warning, because that is what shows where nobody has set up logging.
                logging.getLogger("fracdnn").warning("compiling a kernel, once for this machine: some seconds")
            super().on_start(event)

    announcement = Announcement()
    with event.install_listener("numba:compile", announcement):
        yield announcement.buffer


def _warn(what: str, error: Exception, remedy: str) -> None:
    cause = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    warnings.warn(f"{what}, so slower operations are used ({cause}); {remedy}", KernelWarning, stacklevel=5)
