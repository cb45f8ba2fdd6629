"""How the kernels are compiled, and what makes Numba compile them again. Needs Numba.

A kernel is one C function; it contains all functions it calls, so only the kernel is kept on disk. The others have no
entry from Python: compiling those would take longer than compiling the functions.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np
from numba import cfunc, from_dtype, njit, types

_options = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

# For functions that kernels are made of. A product and a sum may become one instruction, with one rounding.
compiled = njit(fastmath={"contract"}, **_options)
# The same, copied into every caller: for what is called every few numbers, as arrays are passed in many parts.
inlined = njit(fastmath={"contract"}, forceinline=True, **_options)
# The same, compiled as a part of its caller: for what is called from one place, and would be optimised once more there.
merged = njit(fastmath={"contract"}, inline="always", **_options)


def kernel(record: np.dtype) -> Callable[[Callable[..., Any]], Callable[[Any], Any]]:
    """Decorate `make(kind, version)`, which gives a function of a pointer to a record, for numbers of a NumPy type.

    The result is a function of the type alone, which gives the kernel, compiled or found on disk at its first use.
    Numba looks at one file to see whether a kernel on disk is out of date, and at the variables its function takes from
    `make`; so the function has to use `version`, which changes with any file beside this one.
    """

    def decorate(make: Callable[..., Any]) -> Callable[[Any], Any]:
        @lru_cache
        def of_type(kind: Any) -> Any:
            return cfunc(types.void(types.CPointer(from_dtype(record))), cache=True)(make(kind, _version()))

        return of_type

    return decorate


@lru_cache
def _version() -> int:
    """A number that stands for the text of all files here, and for the version of the compiler."""
    found = hashlib.sha256(llvmlite.__version__.encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        found.update(file.read_bytes())
    return int.from_bytes(found.digest()[:7], "big")
