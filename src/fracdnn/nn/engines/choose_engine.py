"""Which engine runs: the one place that decides. What a user requests by name runs or is refused with the reason."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.extras import require
from fracdnn.kernels import loading
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
# What goes through the layers of a network by hand.
LAYERS: dict[str, type[Layers]] = {
    "matmul": MatmulLayers,
    "numba": NumbaLayers,
    "triton": TritonLayers,
    "triton-wide": TritonWideLayers,
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

    | engine      | runs                                                                      | "auto" takes it     |
    | ----------- | ------------------------------------------------------------------------- | ------------------- |
    | numba       | what matmul runs, on the CPU, tanh or relu, float32 or float64, fixed     | up to width 16 and  |
    |             | order and steps, skip connections, all pairs of layers; needs Numba       | 192 layers          |
    | triton      | what matmul runs, on CUDA, float32 or float64, skip connections, up to    | up to 64 layers, of |
    |             | width 64, all pairs of layers; needs Triton                               | small states to 192 |
    | triton-wide | what matmul runs, on CUDA, tanh or relu, one fixed order below 1 and      | where Triton's sums |
    |             | equal steps, skip connections, exponentials; needs Triton                 | run: past 16 layers |
    | matmul      | dense operators, batches [n, n_features] of plain tensors in one dtype,   | wherever it can     |
    |             | with nobody tracing, transforming or observing the operations             |                     |
    | autograd    | everything                                                                | everywhere else     |
    """
    if asked == "autograd":
        return asked
    if asked == "numba":
        require("numba")
    obstacle = _obstacle_in("matmul", architecture, memory) or _obstacle_to_products(x, weights, watched=watched)
    for name, kernel in _KERNELS.items():
        if asked == name or (asked == "auto" and obstacle is None and kernel.pays(architecture, memory, x)):
            obstacle_here = obstacle or _obstacle_in(name, architecture, memory) or kernel.obstacle_to(x)
            if obstacle_here is None:
                return name
            if asked == name:
                _refuse(asked, obstacle_here)
    if obstacle is not None and asked == "matmul":
        _refuse(asked, obstacle)
    return "matmul" if obstacle is None else "autograd"


def sums_needed(engine: str) -> dict[str, Any]:
    """How an engine sums that can only do it in one way, as options of `Memory.plan`."""
    kernel = _KERNELS.get(engine)
    return {} if kernel is None else {"compress": kernel.compress, "sums": "triton" if kernel.compress else "auto"}


def refuse_impossible(asked: str, architecture: Architecture, memory: Memory) -> None:
    """Refuse an engine that can run no batch of this network."""
    obstacle = None if asked in ("auto", "autograd") else _obstacle_in(asked, architecture, memory)
    if obstacle is not None:
        _refuse(asked, obstacle)


def fits_kernel(asked: str, architecture: Architecture, memory: Memory) -> bool:
    """Whether some batch may run on a kernel of whole networks: it is requested, or "auto" would take it on the CPU."""
    small = architecture.width <= _KERNEL_WIDTH and architecture.n_layers <= _KERNEL_LAYERS
    by_auto = asked == "auto" and small and _obstacle_in("numba", architecture, memory) is None
    return by_auto or asked in ("numba", "triton")


def _obstacle_in(name: str, architecture: Architecture, memory: Memory) -> str | None:
    """Why an engine other than "autograd" can run no batch of a network; None where it can."""
    if architecture.operator != "dense":
        return "its operator is a stencil, no dense matrix"
    if not isinstance(architecture.activation, str):
        return f"its activation, {describe(architecture.activation)}, has no name whose derivative is known here"
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
    way = "by exponentials" if kernel.compress else "over all pairs of layers"
    if memory.compress not in ("auto", kernel.compress):
        return f"it sums {way}, and compress is {memory.compress}"
    if kernel.compress and (memory.is_residual or memory.is_by_layer):
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
    numbers = len(x) * architecture.width
    return architecture.n_layers <= (_KERNEL_LAYERS if numbers <= _TRITON_NUMBERS else _TRITON_LAYERS)


class _Kernel(NamedTuple):
    """An engine for some of what `matmul` runs: for which networks, why not a batch, and when "auto" takes it."""

    compress: bool
    is_fixed: bool  # whether order and steps have to be
    activations: Sequence[str]
    max_width: float
    obstacle_to: Callable[[torch.Tensor], str | None]
    pays: Callable[[Architecture, Memory, torch.Tensor], bool]


# In the order in which "auto" asks.
_KERNELS = {
    "numba": _Kernel(
        compress=False,
        is_fixed=True,
        activations=("tanh", "relu"),
        max_width=math.inf,
        obstacle_to=_obstacle_to_numba,
        pays=lambda a, memory, x: fits_kernel("auto", a, memory),
    ),
    "triton": _Kernel(
        compress=False,
        is_fixed=False,
        activations=tuple(ACTIVATIONS),
        max_width=triton.MAX_WIDTH,
        obstacle_to=partial(_obstacle_to_triton, dtypes=triton.DTYPES),
        pays=_is_small_on_gpu,
    ),
    "triton-wide": _Kernel(
        compress=True,
        is_fixed=True,
        activations=triton_sum.ACTIVATIONS,
        max_width=math.inf,
        obstacle_to=_obstacle_to_triton,
        pays=lambda a, memory, x: memory.sums_by_triton(x, a.n_layers),
    ),
}


def _refuse(asked: str, obstacle: str) -> None:
    raise InvalidArgumentError(f"engine={asked!r} cannot run this network: {obstacle}; use engine='auto'")
