"""A small dense network in one compiled pass each way: what `FractionalStack` computes, sooner.

Networks of the paper's size spend their time between operations, not in them: states of a few thousand numbers, a
dozen calls a layer. Samples do not depend on one another, so here a tile of them goes through all the layers, and
back, inside a compiled kernel with its history in cache (`fracdnn.nn.fused_kernel`, by Numba; the first use compiles
it, later ones find it on disk). Threads share the tiles. Gradients of the parameters are summed over fixed groups of
tiles in a fixed order, so that they do not depend on the threads.

`arguments` says whether all this applies; everything else, second derivatives among it, takes the usual path.
"""

import itertools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from fracdnn.memory import MemoryPlan, is_batch_of_cotangents, propagate, propagate_residual
from fracdnn.nn.operators import ACTIVATIONS, DenseLayer, affine
from fracdnn.nn.stack import FractionalStack
from fracdnn.validation import being_traced

# At this width and 5,000 samples matrix products are within 1.5 times as fast (benchmarks/paper_size.py).
MAX_WIDTH = 16

_CODES = {ACTIVATIONS["tanh"]: 0, ACTIVATIONS["relu"]: 1}
_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}
_PLAIN = (torch.Tensor, nn.Parameter)
_GROUPS = 16
# Multiplications below which threads cost more than they bring.
_THREADED_WORK = 2_000_000
# States up to this many bytes are kept for the backward pass; beyond, computing them again costs less than memory.
_KEPT_BYTES = 2**25


def last_state(
    stack: FractionalStack, y: torch.Tensor, stacked: Callable[[], tuple[torch.Tensor, torch.Tensor]]
) -> torch.Tensor:
    """Y_N of a stack, by the kernel where it applies; `stacked()` gives the K and b of all layers, see `_Pass`."""
    parameters = _parameters(stack, y)
    if not parameters or _kernel(y.dtype) is None:
        return stack(y)
    K, b = stacked()
    return joined_state(stack, y, K, b, parameters)


def applies(stack: FractionalStack, y: torch.Tensor) -> bool:
    """Whether a state like y would go through the kernel."""
    return bool(_parameters(stack, y)) and _kernel(y.dtype) is not None


def joined_state(
    stack: FractionalStack, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor, parameters: Sequence[torch.Tensor] = ()
) -> torch.Tensor:
    """Y_N by the kernel, which must apply, from the K and b of all layers."""
    plan = None if stack.history_ == "none" else stack.plan(y)
    network = _network(stack, y, plan)
    if torch.is_grad_enabled():
        result = _Pass.apply(network, parameters, y, K, b)
    else:
        result = network.forward(y, K, b, keep=False)[0]
    # The usual path names the layer that left the finite numbers.
    return result if math.isfinite(result.detach().sum()) else stack(y)


def _network(stack: FractionalStack, y: torch.Tensor, plan: MemoryPlan | None) -> "_Network":
    """The network as the kernel sees it, kept while plan and samples are alike: training asks for it at each step."""
    key = (y.shape, y.dtype, torch.get_num_threads(), stack.layers[0]._activation)
    kept = stack.__dict__.get("_fused")
    if kept is None or kept[0] != key or kept[1].plan is not plan:
        factors = stack.step_sizes.tolist() if plan is None else plan.factors.tolist()
        activation: Any = stack.layers[0]._activation
        kept = (key, _Network(_kernel(y.dtype), y, plan, factors, activation))  # type: ignore[arg-type]
        stack.__dict__["_fused"] = kept
    return kept[1]


def _parameters(stack: FractionalStack, y: torch.Tensor) -> list[torch.Tensor]:
    """All K, then all b; nothing where the kernel does not apply."""
    if y.dim() != 2 or not len(y) or y.shape[1] > MAX_WIDTH or y.dtype not in _NUMPY:
        return []
    if stack.history != "auto" or stack.history_ == "compressed" or not _is_plain_call(stack):
        return []
    layers: list[Any] = list(stack.layers)
    if any(type(layer) is not DenseLayer or _has_hooks(layer) for layer in layers):
        return []
    activations = {layer._activation for layer in layers}
    matrices = [layer._parameters["K"] for layer in layers]
    biases = [b for layer in layers if (b := layer._parameters.get("b")) is not None]
    width = y.shape[1]
    plain = (
        len(activations) == 1
        and activations <= _CODES.keys()
        and len(biases) in (0, len(layers))
        and all(
            tensor.dtype is y.dtype and tensor.is_cpu and type(tensor) in _PLAIN and tensor.layout is torch.strided
            for tensor in (y, *matrices, *biases)
        )
        and {K.shape for K in matrices} == {(width, width)}
        and {b.shape for b in biases} in (set(), {()}, {(width,)})
    )
    return matrices + biases if plain else []


def _is_plain_call(stack: FractionalStack) -> bool:
    """Whether order and steps are numbers and nobody watches or transforms the operations."""
    return not (
        being_traced()
        or torch.is_autocast_enabled("cpu")
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
        or torch._C._len_torch_dispatch_stack()
        or torch_modules._has_any_global_hook()
        or type(stack) is not FractionalStack
        or _has_hooks(stack)
        or _has_hooks(stack.layers)
        or stack.learnt_order is not None
        or stack.learnt_steps is not None
    )


def _has_hooks(layer: nn.Module) -> bool:
    state = layer.__dict__
    return bool(
        state["_forward_hooks"]
        or state["_forward_pre_hooks"]
        or state["_backward_hooks"]
        or state["_backward_pre_hooks"]
        or "forward" in state
        or layer._compiled_call_impl is not None
    )


@lru_cache(maxsize=2)
def _kernel(dtype: torch.dtype) -> ModuleType | None:
    """The compiled passes, or nothing where Numba is missing or cannot compile them: tried once, on nothing."""
    try:
        from fracdnn.nn import fused_kernel

        trial = _Network(fused_kernel, torch.zeros(1, 1, dtype=dtype), None, [1.0], ACTIVATIONS["tanh"])
        nothing = torch.zeros(1, 1, dtype=dtype)
        result, *states = trial.forward(nothing, nothing.view(1, 1, 1), nothing, keep=True)
        trial.backward(result, nothing, nothing.view(1, 1, 1), nothing, *states)
    except Exception:  # whatever it is, the usual path is there
        return None
    return fused_kernel


class _Network:
    """One network for one number of samples, as the kernel sees it."""

    def __init__(
        self,
        kernel: ModuleType,
        y: torch.Tensor,
        plan: MemoryPlan | None,
        factors: Sequence[float],
        activation: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self.kernel, self.plan, self.activation = kernel, plan, activation
        self.factors = factors
        self._factors = torch.tensor(factors, dtype=torch.float64)
        self.n_layers = len(factors)
        n, self.width = y.shape
        self.size = _tile_size(n, self.width, kernel.tile_unit(y.dtype.itemsize))
        self.n_tiles = -(-n // self.size)
        self.n_groups = min(self.n_tiles, _GROUPS)
        work = n * self.width * self.n_layers * (self.n_layers // 2 + self.width + 16)
        self.threads = min(torch.get_num_threads(), self.n_groups) if work > _THREADED_WORK else 1
        kept = (2 * self.n_layers + 1) * self.n_tiles * self.width * self.size * y.dtype.itemsize
        self.keeps = kept <= _KEPT_BYTES

    def forward(
        self, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor, *, keep: bool
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Y_N, and what to keep for the way back: the states and activations of each tile, or nothing."""
        y, K, b = y.detach().contiguous(), K.detach(), b.detach()
        out = torch.empty_like(y)
        kept = self._room(y, self.n_tiles * keep)
        numbers = self._numbers(y, K, b)

        def share(first: int, last: int) -> None:
            rooms = _flat(*(kept if keep else self._room(y, 1)), y.new_empty(self.width * self.size))
            self.kernel.forward(
                first, last, self.n_groups, self.size, y.numpy(), out.numpy(), int(keep), rooms, numbers
            )

        self._deal(share)
        return out, *kept

    def backward(
        self, cotangent: torch.Tensor, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor, *kept: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Gradients of y, K and b; states that were not kept are computed again, tile by tile."""
        y, K, b, cotangent = y.detach().contiguous(), K.detach(), b.detach(), cotangent.detach().contiguous()
        keep = len(kept[0]) > 0
        out = torch.empty_like(y)
        grad_K = K.new_zeros(self.n_groups, *K.shape)
        grad_b = K.new_zeros(self.n_groups, self.n_layers, self.width)
        numbers, sums = self._numbers(y, K, b), _flat(grad_K, grad_b)
        weights = y[:0] if self.plan is None else self.plan.adjoint_matrix(y)
        adjoint = _flat(weights, K.mT.contiguous())
        shapes = (self.width * self.size, (self.n_layers + 1) * self.width * self.size)

        def share(first: int, last: int) -> None:
            rooms = _flat(*(kept if keep else self._room(y, 1)), *(y.new_empty(shape) for shape in shapes))
            samples = (y.numpy(), cotangent.numpy(), out.numpy())
            self.kernel.backward(
                first, last, self.n_groups, self.size, *samples, int(keep), rooms, numbers, adjoint, sums
            )

        self._deal(share)
        return out, grad_K.sum(0), grad_b.sum(0 if b.dim() == 2 else (0, 2)) if len(b) else b

    def usual(self, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """The same Y_N in torch operations."""

        def step(j: int, state: torch.Tensor) -> torch.Tensor:
            return self.activation(affine(state, K[j], b[j] if len(b) else None))

        if self.plan is None:
            return propagate_residual(self.factors, step, y)
        return propagate(self.plan, step, y)

    def _room(self, like: torch.Tensor, n_tiles: int) -> tuple[torch.Tensor, torch.Tensor]:
        whole = n_tiles * self.width * self.size
        return like.new_empty((self.n_layers + 1) * whole), like.new_empty(self.n_layers * whole)

    def _numbers(self, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor) -> tuple[Any, ...]:
        """The network as the kernel takes it: flat, with a bias for each feature, and no weights at order 1."""
        biases = K.new_zeros(self.n_layers, self.width)
        if len(b):
            biases += b if b.dim() == 2 else b.unsqueeze(1)
        weights = y[:0] if self.plan is None else self.plan.forward_matrix(y)
        return (*_flat(weights, self._factors.to(y.dtype), K.contiguous(), biases), _CODES[self.activation])

    def _deal(self, share: Callable[[int, int], None]) -> None:
        """Have `share(first, last)` done for all groups of tiles, by threads where that pays."""
        bounds = [self.n_groups * i // self.threads for i in range(self.threads + 1)]
        others = itertools.pairwise(bounds[1:])
        waiting = [_pool(os.getpid(), self.threads).submit(share, *part) for part in others]
        share(0, bounds[1])
        for part in waiting:
            part.result()


def _flat(*tensors: torch.Tensor) -> tuple[np.ndarray, ...]:
    """What the kernel takes for contiguous tensors."""
    return tuple(tensor.view(-1).numpy() for tensor in tensors)


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads of this process: a forked one has none of its parent's."""
    return ThreadPoolExecutor(threads, thread_name_prefix="fracdnn")


def _tile_size(n: int, width: int, unit: int) -> int:
    """Samples in a tile: a multiple of `unit` whose history stays in cache and that leaves little of a tile empty."""
    largest = max(unit, min(144, 1024 // width) // unit * unit)

    def cost(size: int) -> int:
        n_tiles = -(-n // size)
        return (n_tiles + n_tiles % 2) * (size + unit)

    return min(range(unit, largest + 1, unit), key=cost)


class _Pass(torch.autograd.Function):
    """Y_N from Y_0, K [N, width, width] and b [N, width], [N] or [0]; the parameters these came from are watched."""

    @staticmethod
    def forward(
        ctx: Any,
        network: _Network,
        parameters: Sequence[torch.Tensor],
        y: torch.Tensor,
        K: torch.Tensor,
        b: torch.Tensor,
    ) -> torch.Tensor:
        out, states, values = network.forward(y, K, b, keep=network.keeps)
        ctx.network = network
        ctx.save_for_backward(y, K, b, states, values, *parameters)
        return out

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        y, K, b, states, values = ctx.saved_tensors[:5]
        if torch.is_grad_enabled() or is_batch_of_cotangents(cotangent):
            return (None, None, *_usual_gradients(ctx.network, (y, K, b), ctx.needs_input_grad[2:], cotangent))
        gradients = ctx.network.backward(cotangent, y, K, b, states, values)
        needed = ctx.needs_input_grad[2:]
        return (None, None, *(gradient if need else None for gradient, need in zip(gradients, needed, strict=True)))


def _usual_gradients(
    network: _Network, inputs: Sequence[torch.Tensor], needed: Sequence[bool], cotangent: torch.Tensor
) -> list[torch.Tensor | None]:
    """The gradients in torch operations, for second derivatives and for many cotangents at once."""
    with torch.enable_grad():
        # Aliases, so that hooks on the inputs run once: where the gradients arrive, not here.
        aliases = [tensor.view_as(tensor) for tensor in inputs]
        result = network.usual(*aliases)
    wanted = [tensor for tensor, need in zip(aliases, needed, strict=True) if need]
    found = iter(torch.autograd.grad(result, wanted, cotangent, create_graph=torch.is_grad_enabled()))
    return [next(found) if need else None for need in needed]
