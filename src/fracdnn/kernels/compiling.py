"""How the kernels are compiled, and what makes Numba compile them again. Needs Numba.

A kernel is one C function. It contains all the functions that it calls, so it alone is kept on disk. The others cannot
be called from Python: the wrappers for that would add a fifth to the time that compiling takes.
"""

import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np
from numba import cfunc, from_dtype, njit, types

# A product and a sum may become one instruction, with one rounding; division by 0 gives infinity.
_arithmetic = {"fastmath": {"contract"}, "error_model": "numpy"}
_options = {**_arithmetic, "nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

# For the functions that kernels are made of.
compiled = njit(**_options)
# The same, copied into every caller by LLVM: for what is called every few numbers, as a call has many arguments.
inlined = njit(forceinline=True, **_options)
# The same, compiled as a part of its caller: for large functions called from one place, that LLVM would optimise twice.
merged = njit(inline="always", **_options)


def kernel(record: np.dtype) -> Callable[[Callable[..., Any]], Callable[[Any], Any]]:
    """Decorate `make(kind, version)`, which returns the kernel's function of a pointer to a record, for a NumPy type.

    What it becomes is a function of the type alone, which returns the kernel: compiled, or found on disk.
    Numba takes a kernel from disk unless the file it is in has changed, or the variables that its function has from
    `make`. So the function has to mention `version`, which changes with every file in this folder.
    """

    def decorate(make: Callable[..., Any]) -> Callable[[Any], Any]:
        @lru_cache
        def of_type(kind: Any) -> Any:
            signature = types.void(types.CPointer(from_dtype(record)))
            function = make(kind, _version())
            try:
                return cfunc(signature, cache=True, **_arithmetic)(function)
            except RuntimeError as error:
                if "cannot cache" not in str(error):
                    raise
                return cfunc(signature, **_arithmetic)(function)  # no folder is writable: not kept

        return of_type

    return decorate


@lru_cache
def _version() -> int:
    """A number that is another one as soon as a file in this folder, or the version of the compiler, is."""
    found = hashlib.sha256(llvmlite.__version__.encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        found.update(file.read_bytes())
    return int.from_bytes(found.digest()[:7], "big")
