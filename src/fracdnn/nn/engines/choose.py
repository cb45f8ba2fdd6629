"""Which engine runs: the one place that decides. What a user asks for by name runs or is refused with the reason."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.extras import require
from fracdnn.kernels import loading
from fracdnn.kernels.tensors import NUMPY_TYPES
from fracdnn.memory import triton_sum
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines import triton
from fracdnn.nn.engines.by_hand import Layers, ProductLayers
from fracdnn.nn.engines.fused import FusedLayers
from fracdnn.nn.engines.kernel import KernelLayers
from fracdnn.nn.engines.triton import TritonLayers
from fracdnn.nn.memory import Memory
from fracdnn.nn.operators import ACTIVATIONS

ENGINES = ("auto", "operations", "products", "kernel", "triton", "fused")
# What goes through the layers of a network by hand.
LAYERS: dict[str, type[Layers]] = {
    "products": ProductLayers,
    "kernel": KernelLayers,
    "triton": TritonLayers,
    "fused": FusedLayers,
}
# The history, and its sums, of engines that can use only one.
NEEDS = {
    "kernel": {"history": "exact"},
    "triton": {"history": "exact"},
    "fused": {"history": "compressed", "sums": "triton"},
}

# At this width and 5,000 samples the kernel is still 4 times as fast as matrix products (docs/benchmarks.md).
_KERNEL_WIDTH = 16
# The kernel sums over all pairs of layers: deeper, these are too many.
_KERNEL_LAYERS = 192
# On a GPU too, and larger states than these (rows times width) leave its caches earlier: an H200 is as fast by "fused"
# at 100 layers of 4,096 x 64 and at 192 of 512 x 64.
_TRITON_LAYERS, _TRITON_NUMBERS = 64, 2**15


def choose(
    asked: str, architecture: Architecture, memory: Memory, x: torch.Tensor, weights: Weights, *, watched: bool
) -> str:
    """The name of the engine for a batch x; `watched` is whether anything observes every operation.

    | engine     | serves                                                                     | "auto" takes it     |
    | ---------- | -------------------------------------------------------------------------- | ------------------- |
    | kernel     | what products serves, on the CPU, tanh or relu, float32 or float64,        | up to width 16 and  |
    |            | fixed order and steps, skip connections, all pairs of layers; needs Numba  | 192 layers          |
    | triton     | what products serves, on CUDA, float32 or float64, skip connections, up    | up to 64 layers, of |
    |            | to width 64, all pairs of layers; needs Triton                             | small states to 192 |
    | fused      | what products serves, on CUDA, tanh or relu, one fixed order below 1 and   | where Triton's sums |
    |            | equal steps, skip connections, exponentials; needs Triton                  | run: past 16 layers |
    | products   | dense operators, batches [n, n_features] of plain tensors in one dtype,    | where it can serve  |
    |            | with nobody tracing, transforming or observing the operations              |                     |
    | operations | everything                                                                 | everywhere else     |
    """
    if asked == "operations":
        return asked
    if asked == "kernel":
        require("numba")
    obstacle = _obstacle_in("products", architecture, memory) or _obstacle_to_products(x, weights, watched=watched)
    for name, kernel in _KERNELS.items():
        if asked == name or (asked == "auto" and obstacle is None and kernel.pays(architecture, memory, x)):
            obstacle_here = obstacle or _obstacle_in(name, architecture, memory) or kernel.obstacle_to(x)
            if obstacle_here is None:
                return name
            if asked == name:
                _refuse(asked, obstacle_here)
    if obstacle is not None and asked == "products":
        _refuse(asked, obstacle)
    return "products" if obstacle is None else "operations"


def refuse_impossible(asked: str, architecture: Architecture, memory: Memory) -> None:
    """Refuse an engine that could serve no batch of this network."""
    obstacle = None if asked in ("auto", "operations") else _obstacle_in(asked, architecture, memory)
    if obstacle is not None:
        _refuse(asked, obstacle)


def fits_kernel(asked: str, architecture: Architecture, memory: Memory) -> bool:
    """Whether some batch may run on a kernel of whole networks: it is asked for, or "auto" would take it on the CPU."""
    small = architecture.width <= _KERNEL_WIDTH and architecture.n_layers <= _KERNEL_LAYERS
    by_auto = asked == "auto" and small and _obstacle_in("kernel", architecture, memory) is None
    return by_auto or asked in ("kernel", "triton")


def _obstacle_in(name: str, architecture: Architecture, memory: Memory) -> str | None:
    """Why an engine other than "operations" can serve no batch of a network; None where it can."""
    if architecture.operator != "dense":
        return "its operator is a stencil, no dense matrix"
    kernel = _KERNELS.get(name)
    if kernel is None:
        return None
    if architecture.activation not in kernel.activations:
        return f"its activation is {architecture.activation!r}, none of {kernel.activations}"
    if architecture.width > kernel.max_width:
        return f"its width is {architecture.width}, above {kernel.max_width}"
    if not architecture.has_skip:
        return "it has no skip connections"
    if kernel.is_fixed and not memory.is_fixed:
        return "its order or steps are learned"
    way = {"exact": "over all pairs of layers", "compressed": "by exponentials"}[kernel.history]
    if memory.history not in ("auto", kernel.history):
        return f"it sums {way}, and history is {memory.history!r}"
    if kernel.history == "compressed" and (memory.is_residual or not memory.is_compressible):
        return f"it sums {way}, which need one order below 1 and equal steps"
    return None


def _obstacle_to_products(x: torch.Tensor, weights: Weights, *, watched: bool) -> str | None:
    """Why going back by hand cannot serve a batch."""
    if watched:
        return "operations are traced, transformed or observed here"
    if x.dim() != 2 or not len(x):
        return f"x has shape {tuple(x.shape)}, no batch of rows"
    for tensor in (x, *weights):
        if tensor is not None and (type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.dtype is not x.dtype):
            return f"a tensor is a {type(tensor).__name__} of {tensor.dtype}, no plain one of {x.dtype}"
    return None


def _obstacle_to_triton(x: torch.Tensor, dtypes: Sequence[torch.dtype] = triton_sum.DTYPES) -> str | None:
    """Why a batch cannot go into Triton's kernels."""
    if not triton_sum.can_take(x) or x.dtype not in dtypes:
        names = ", ".join(str(each).removeprefix("torch.") for each in dtypes)
        return f"x is {x.dtype} on {x.device}, not one of {names} on a CUDA device, or Triton is missing"
    return None


def _obstacle_to_numba(x: torch.Tensor) -> str | None:
    """Why a batch cannot go into compiled code."""
    if not x.is_cpu or x.dtype not in NUMPY_TYPES:
        return f"x is {x.dtype} on {x.device}, not float32 or float64 on the CPU"
    if loading.small_network(x.dtype) is None:
        return "Numba is missing, or could not compile the kernel"
    return None


def _is_small_on_gpu(architecture: Architecture, memory: Memory, x: torch.Tensor) -> bool:
    if not x.is_cuda:  # before its size is looked at, which would bind an exported program to batches like this one
        return False
    numbers = x.numel() // max(1, architecture.n_features) * architecture.width
    return architecture.n_layers <= (_KERNEL_LAYERS if numbers <= _TRITON_NUMBERS else _TRITON_LAYERS)


class _Kernel(NamedTuple):
    """An engine for some of what `products` serves: for which networks, why not a batch, and when "auto" takes it."""

    history: str
    is_fixed: bool  # whether order and steps have to be
    activations: Sequence[str]
    max_width: float
    obstacle_to: Callable[[torch.Tensor], str | None]
    pays: Callable[[Architecture, Memory, torch.Tensor], bool]


# In the order in which "auto" asks.
_KERNELS = {
    "kernel": _Kernel(
        history="exact",
        is_fixed=True,
        activations=("tanh", "relu"),
        max_width=math.inf,
        obstacle_to=_obstacle_to_numba,
        pays=lambda a, memory, x: fits_kernel("auto", a, memory),
    ),
    "triton": _Kernel(
        history="exact",
        is_fixed=False,
        activations=tuple(ACTIVATIONS),
        max_width=triton.MAX_WIDTH,
        obstacle_to=partial(_obstacle_to_triton, dtypes=triton.DTYPES),
        pays=_is_small_on_gpu,
    ),
    "fused": _Kernel(
        history="compressed",
        is_fixed=True,
        activations=triton_sum.ACTIVATIONS,
        max_width=math.inf,
        obstacle_to=_obstacle_to_triton,
        pays=lambda a, memory, x: memory.sums_by_triton(x, a.n_layers),
    ),
}


def _refuse(asked: str, obstacle: str) -> None:
    raise InvalidArgumentError(f"engine must be one that can serve, got {asked!r}, but {obstacle}; use engine='auto'")
