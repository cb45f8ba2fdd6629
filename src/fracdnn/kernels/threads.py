"""Run a compiled function on the threads torch computes with.

A pool of our own would compete with torch's: OpenMP's threads wait for their next work by spinning, so on as many cores
as threads every switch between the two costs more than a small kernel takes. Torch's OpenMP is asked for its threads
instead, through the entry that compilers use; a region then starts within microseconds.

A kernel is a C function of one pointer, to a record of 64-bit numbers. It takes pieces of work by `take` until none are
left, so any number of threads will do, one among them.
"""

import ctypes
import struct
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

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
    """OpenMP's entry; nothing where torch has another kind of threads."""
    try:
        entry = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).GOMP_parallel
    except (OSError, AttributeError):
        return None
    entry.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    entry.restype = None
    return entry


@intrinsic
def take(_: Any, arguments: Any, field: Any) -> Any:
    """The number of the next piece of work: a field of the arguments, to which 1 is added, whoever else does."""

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
