"""Which engine runs: the one place that decides. What a user requests by name runs or is refused with the reason."""

from typing import Any

import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.extras import require
from fracdnn.kernels import codes, loading
from fracdnn.kernels.loading import NUMPY_TYPES
from fracdnn.memory import triton_sum
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines import triton
from fracdnn.nn.engines.by_hand import Layers, MatmulLayers
from fracdnn.nn.engines.numba_network import NumbaLayers
from fracdnn.nn.engines.triton import TritonLayers
from fracdnn.nn.engines.triton_wide import TritonWideLayers
from fracdnn.nn.memory import Memory
from fracdnn.nn.operators import ACTIVATIONS, describe

ENGINES = ("auto", "autograd", "matmul", "numba", "triton", "triton-wide")
# What goes through the layers of a network by hand, in the order in which "auto" asks.
LAYERS: dict[str, type[Layers]] = {
    "numba": NumbaLayers,
    "triton": TritonLayers,
    "triton-wide": TritonWideLayers,
    "matmul": MatmulLayers,
}
# The activations that a kernel knows.
_ACTIVATIONS = {
    "numba": tuple(codes.ACTIVATIONS),
    "triton": tuple(ACTIVATIONS),
    "triton-wide": triton_sum.ACTIVATIONS,
}

# At this width and 5,000 samples the kernel is still 4 times as fast as matrix products (docs/benchmarks.md).
_KERNEL_WIDTH = 16
# The kernel sums over all pairs of layers: deeper, these are too many.
_KERNEL_LAYERS = 192
# On a GPU too, and larger states than these (rows times width) leave its caches earlier: an H200 is as fast by
# "triton-wide" at 100 layers of 4,096 x 64 and at 192 of 512 x 64.
_TRITON_LAYERS, _TRITON_NUMBERS = 64, 2**15


def choose(
    asked: str, architecture: Architecture, memory: Memory, x: torch.Tensor, weights: Weights, *, watched: bool
) -> str:
    """The name of the engine for a batch x; `watched` is whether anything observes every operation.

    docs/modules.md has a table of what each of them runs, and where "auto" takes it.
    """
    if asked == "autograd":
        return asked
    if asked == "numba":
        require("numba")
    obstacle_to_batch = _obstacle_to_products(x, weights, watched=watched)
    for name in LAYERS if asked == "auto" else [asked]:
        if asked == "auto" and (obstacle_to_batch or not _pays(name, architecture, memory, x)):
            continue
        obstacle = _obstacle_in(name, architecture, memory) or obstacle_to_batch or _obstacle_to_kernel(name, x)
        if obstacle is None:
            return name
        if name == asked:
            raise _refusal(asked, obstacle)
    return "autograd"


def sums_needed(engine: str) -> dict[str, Any]:
    """How an engine sums that can only do it in one way, as options of `Memory.plan`."""
    compress = engine == "triton-wide"
    return {"compress": compress, "sums": "triton" if compress else "auto"} if engine in _ACTIVATIONS else {}


def refuse_impossible(asked: str, architecture: Architecture, memory: Memory) -> None:
    """Refuse an engine that can run no batch of this network."""
    obstacle = None if asked in ("auto", "autograd") else _obstacle_in(asked, architecture, memory)
    if obstacle is not None:
        raise _refusal(asked, obstacle)


def fits_kernel(asked: str, architecture: Architecture, memory: Memory) -> bool:
    """Whether some batch may run on a kernel of whole networks: it is requested, or "auto" would take it on the CPU."""
    if asked != "auto":
        return asked in ("numba", "triton")
    return _is_small(architecture) and _obstacle_in("numba", architecture, memory) is None


def _is_small(architecture: Architecture) -> bool:
    return architecture.width <= _KERNEL_WIDTH and architecture.n_layers <= _KERNEL_LAYERS


def _pays(name: str, architecture: Architecture, memory: Memory, x: torch.Tensor) -> bool:
    """Whether "auto" takes an engine where it can run."""
    if name == "numba":
        return _is_small(architecture)
    if name == "triton":
        if not x.is_cuda:  # before its size is looked at, which would bind an exported program to batches like this one
            return False
        fits = len(x) * architecture.width <= _TRITON_NUMBERS
        return architecture.n_layers <= (_KERNEL_LAYERS if fits else _TRITON_LAYERS)
    return name == "matmul" or memory.sums_by_triton(x, architecture.n_layers)


def _obstacle_in(name: str, architecture: Architecture, memory: Memory) -> str | None:
    """Why an engine other than "autograd" can run no batch of a network; None where it can."""
    if architecture.operator != "dense":
        return "its operator is a stencil, no dense matrix"
    if not isinstance(architecture.activation, str):
        return f"its activation, {describe(architecture.activation)}, has no name whose derivative is known here"
    if name == "matmul":
        return None
    if architecture.activation not in _ACTIVATIONS[name]:
        return f"its activation is {architecture.activation!r}, none of {_ACTIVATIONS[name]}"
    if name == "triton" and architecture.width > triton.MAX_WIDTH:
        return f"its width is {architecture.width}, above {triton.MAX_WIDTH}"
    if not architecture.has_skip:
        return "it has no skip connections"
    if name != "triton" and not memory.is_fixed:
        return "its order or steps are learned"
    compress = name == "triton-wide"
    way = "by exponentials" if compress else "over all pairs of layers"
    if memory.compress not in ("auto", compress):
        return f"it sums {way}, and compress is {memory.compress}"
    if compress and (memory.is_residual or memory.is_by_layer):
        return f"it sums {way}, which need one order below 1 and equal steps"
    return None


def _obstacle_to_products(x: torch.Tensor, weights: Weights, *, watched: bool) -> str | None:
    """Why going back by hand cannot run a batch."""
    if watched:
        return "operations are traced, transformed or observed here"
    if x.dim() != 2 or not len(x):
        return f"x has shape {tuple(x.shape)}, no batch of rows"
    for tensor in (x, *weights):
        if tensor is not None and (type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.dtype is not x.dtype):
            return f"a tensor is a {type(tensor).__name__} of {tensor.dtype}, no plain one of {x.dtype}"
    return None


def _obstacle_to_kernel(name: str, x: torch.Tensor) -> str | None:
    """Why a batch cannot go into compiled code."""
    if name == "numba":
        if not x.is_cpu or x.dtype not in NUMPY_TYPES:
            return f"x is {x.dtype} on {x.device}, not float32 or float64 on the CPU"
        if loading.small_network(x.dtype).module is None:
            return "Numba is missing, or could not compile the kernel"
    elif name != "matmul":
        dtypes = triton.DTYPES if name == "triton" else triton_sum.DTYPES
        if not triton_sum.can_take(x) or x.dtype not in dtypes:
            names = ", ".join(str(each).removeprefix("torch.") for each in dtypes)
            return f"x is {x.dtype} on {x.device}, not one of {names} on a CUDA device, or Triton is missing"
    return None


def _refusal(asked: str, obstacle: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"engine={asked!r} cannot run this network: {obstacle}; use engine='auto'")
