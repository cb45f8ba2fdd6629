"""Run a compiled function on the threads torch computes with. Needs Numba.

A pool of our own would compete with torch's. OpenMP's threads wait for their next work by spinning, so where there are
as many threads as cores, switching between two pools takes longer than a small kernel runs. Torch's OpenMP is asked
for its threads instead, through `GOMP_parallel`, the function that compilers call to start a parallel region. That
takes microseconds.

It works with torch for Linux, whose OpenMP is GNU's (libgomp) or has the same entries. On macOS and Windows torch comes
with another one: there a kernel runs on one thread, and a `KernelWarning` says so, once.

A kernel is a C function of one pointer, to a record of 64-bit numbers. It takes pieces of work by `take` until none are
left, so its result does not depend on how many threads run it.
"""

import ctypes
import struct
import sys
import warnings
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from fracdnn.exceptions import KernelWarning
from fracdnn.kernels.compiling import inlined


class Call:
    """A Numba `cfunc` with a record of its arguments, to be called many times, on at most so many threads."""

    def __init__(self, kernel: Any, record: np.dtype, threads: int) -> None:
        names = record.names or ()
        self._pack = struct.Struct("=" + "".join("d" if record[name].kind == "f" else "q" for name in names)).pack_into
        self._places = {name: place for place, name in enumerate(names)}
        numbers = np.zeros(len(names), np.int64)
        self._record = numbers.data
        region = _parallel_region() if threads > 1 else None
        run = partial(region, kernel.address) if region else kernel.ctypes
        self._run = partial(run, numbers.ctypes.data, *((threads, 0) if region else ()))

    def __call__(self, *arguments: float) -> None:
        """Call it with all fields of the record but the first, which counts the pieces of work taken."""
        self._pack(self._record, 0, 0, *arguments)
        self._run()

    def read(self, field: str) -> int:
        """A whole number of the record, as the latest call left it."""
        return self._record[self._places[field]]


@lru_cache(maxsize=1)
def _parallel_region() -> Any:
    """Torch's `GOMP_parallel(function, argument, threads, flags)`, or None, with a warning, where it has none."""
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        entry = ctypes.CDLL(str(library)).GOMP_parallel  # its own, or that of a library it needs
    except (OSError, AttributeError):
        warnings.warn(
            f"compiled kernels run on one thread, as torch has no GNU OpenMP here ({sys.platform}); "
            "torch for Linux has; torch.set_num_threads(1) turns this warning off",
            KernelWarning,
            stacklevel=4,
        )
        return None
    entry.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    entry.restype = None
    return entry


@intrinsic
def take(_: Any, arguments: Any, field: Any) -> Any:
    """Add 1 to a field of the record and give what it was before. Atomic: no two threads get the same number."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        numbers = builder.bitcast(values[0], ir.IntType(64).as_pointer())
        counter = builder.gep(numbers, [values[1]])
        return builder.atomic_rmw("add", counter, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(arguments, types.intp), generate


@intrinsic
def pointer(_: Any, address: Any, kind: Any) -> Any:
    """An address as a pointer to numbers of a NumPy type."""
    result = types.CPointer(kind.dtype)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(result))

    return result(types.int64, kind), generate


@inlined
def numbers(address, shape, kind):
    """The numbers of a NumPy type at an address, as an array."""
    return carray(pointer(address, kind), shape)
