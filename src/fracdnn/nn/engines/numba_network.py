"""Layers of a small dense network in one compiled pass, forward and back; the engine "numba".

Networks of the paper's size spend their time between operations, not in them: states of a few thousand numbers, a
dozen calls a layer. Samples do not depend on one another, so a tile of them goes through all layers, and back, inside
a compiled kernel with its history in cache (`fracdnn.kernels.small_network`), in as many threads as torch may use.

Gradients of the parameters are summed over fixed groups of tiles in a fixed order: they do not depend on the number of
threads. These are Python's, since Numba's pools fail: one ends the process where two Python threads use it at a time,
another after a fork, and its threads wait for each other for milliseconds where other programs use the cores.
"""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import get_ident
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.kernels import codes, loading
from fracdnn.kernels.loading import NUMPY_TYPES
from fracdnn.memory import ExactPlan, MemoryPlan
from fracdnn.nn.architecture import Architecture, Weights
from fracdnn.nn.engines.by_hand import LayerGradients, Layers, Loss

MAX_THREADS = 16
# A pass with fewer multiplications, less than a millisecond, gains little or nothing from a second thread.
FEWEST_MULTIPLICATIONS_FOR_THREADS = 4_000_000
_NO_LABELS = np.empty(0, np.int64)


class NumbaLayers(Layers):
    """See the module. Going back computes the states once more; `threads_used` is how many shared the latest pass."""

    def __init__(self, architecture: Architecture, plan: MemoryPlan, weights: Weights) -> None:
        self._architecture, self._plan = architecture, plan
        self._K, self._b = weights.operators, weights.b
        self.threads_used = 0

    def forward(self, y0: torch.Tensor) -> torch.Tensor:
        self._y0, last = y0, np.empty(y0.shape, NUMPY_TYPES[y0.dtype])
        self._run(y0, last, codes.STATE)
        return torch.from_numpy(last)

    def back(self, cotangent: torch.Tensor) -> LayerGradients:
        start = np.empty(cotangent.shape, NUMPY_TYPES[self._y0.dtype])
        given = _plain("cotangent", cotangent, self._y0.shape, self._y0.dtype)
        return self._split(self._run(self._y0, start, codes.COTANGENT, cotangent=given), start)

    def loss(self, y0: torch.Tensor, W: torch.Tensor, loss: Loss) -> Any:
        """See `Layers`. That it is None leaves finding out what is wrong to the caller."""
        a, (n, width), kind = self._architecture, y0.shape, NUMPY_TYPES[y0.dtype]
        start = np.empty((n if a.has_input_projection else 0, width), kind)
        labels, targets = _NO_LABELS, start[:0]
        if loss.kind == "cross_entropy":
            labels = _plain("target", loss.target, (n,), torch.int64)
        else:
            targets = _plain("target", loss.target, (n, a.n_outputs), y0.dtype)
        if loss.weight is None:
            shares = self._plan.kept(("equal shares", n, y0.dtype), lambda: np.full(n, 1.0 / n, kind))
        else:
            shares = _plain("weight", loss.weight / loss.weight.sum(), (n,), y0.dtype)
        outputs = np.empty((n, a.n_outputs), kind)
        task = (labels, targets, shares, outputs, float(loss.label_smoothing))
        plain_W = _plain("W", W, (a.n_outputs, width), y0.dtype)
        row = self._run(y0, start, codes.LOSSES[loss.kind], task=task, W=plain_W)
        value = float(row[-1])
        if not math.isfinite(value):
            return None
        of_W = torch.from_numpy(row[-1 - plain_W.size : -1].reshape(plain_W.shape))
        return value, torch.from_numpy(outputs), of_W, self._split(row, start)

    def _run(
        self,
        y0: torch.Tensor,
        start: np.ndarray,
        kind: int,
        *,
        task: tuple[Any, ...] | None = None,
        W: np.ndarray | None = None,
        cotangent: np.ndarray | None = None,
    ) -> np.ndarray:
        """Gradients of K, b and W and then the loss, in one row; `kind` is one of `codes`.

        `task` is labels, targets, shares, outputs and label smoothing of a loss.
        """
        a, dtype, (n, width), n_layers = self._architecture, y0.dtype, y0.shape, self._architecture.n_layers
        module: Any = loading.small_network(dtype).module
        kernel, size = module.run(NUMPY_TYPES[dtype]), module.TILE_BYTES // dtype.itemsize
        memory, none = self._constants(y0), start[:0]
        task = task or (_NO_LABELS, none, none[:, 0], none, 0.0)
        W, cotangent = none if W is None else W, none if cotangent is None else cotangent
        y, K = _plain("y", y0, (n, a.width), dtype), _plain("K", self._K, (n_layers, width, width), dtype)
        if self._b is None:
            b = np.zeros((n_layers, width), none.dtype)
        elif a.bias is True:
            b = _plain("b", self._b, (n_layers, width), dtype)
        else:
            b = _plain("b", self._b, (n_layers,), dtype).repeat(width).reshape(n_layers, width)
        call = (*memory, K, b, codes.ACTIVATIONS[a.activation], kind, *task, W, y, cotangent)
        # Gradients are summed within each group of tiles, then over the groups.
        n_groups = min(-(-n // size), MAX_THREADS)
        sums = np.empty((n_groups, K.size + b.size + W.size + 1), none.dtype)
        multiplications = n * width * n_layers * (n_layers // 2 + width + 16)
        large = multiplications > FEWEST_MULTIPLICATIONS_FOR_THREADS
        self.threads_used = min(torch.get_num_threads(), n_groups) if large else 1
        # Two pieces for each thread, so that one that is late does not delay the others by half.
        n_pieces = 1 if self.threads_used == 1 else min(n_groups, 2 * self.threads_used)
        ends = [piece * n_groups // n_pieces for piece in range(n_pieces + 1)]
        pieces = iter(range(n_pieces))

        # From torch, whose memory is aligned to whole vectors: reading across that costs half of the speed.
        n_numbers = ((2 * _n_rows(n_layers) + 2 + n_layers) * width + len(W)) * size

        def work() -> None:
            key = ("room", get_ident(), n_numbers, dtype)
            room = self._plan.kept(key, lambda: torch.empty(n_numbers, dtype=dtype).numpy())
            for i in pieces:
                kernel(*call, start, ends[i], ends[i + 1], room, sums)

        others = [_pool().submit(work) for _ in range(1, self.threads_used)]
        work()
        for other in others:
            if not other.cancel():
                other.result()
        return np.add.reduce(sums, 0)

    def _constants(self, like: torch.Tensor) -> tuple[np.ndarray, ...]:
        """The memory's weights forward and back, padded at least as a history is, none at order 1; and the factors."""

        def make() -> tuple[np.ndarray, ...]:
            plan = self._plan
            factors = np.array(plan.factors.tolist(), NUMPY_TYPES[like.dtype])
            if not isinstance(plan, ExactPlan):
                return factors[:0], factors[:0], factors
            more = _n_rows(plan.n_layers) - plan.n_layers
            matrices = (plan.weights(like).matrix, plan.weights(like, plan.n_layers).matrix)
            return *[pad(each, (0, more, 1, more)).numpy().reshape(-1) for each in matrices], factors

        return self._plan.kept(("numba", like.dtype), make)

    def _split(self, row: np.ndarray, start: np.ndarray) -> LayerGradients:
        """The gradients of K and b, which are views of a row of all."""
        a, width = self._architecture, self._architecture.width
        n_K, n_b = a.n_layers * width * width, a.n_layers * width
        K, b = torch.from_numpy(row[:n_K].reshape(a.n_layers, width, width)), None
        if self._b is not None:
            b = torch.from_numpy(row[n_K : n_K + n_b].reshape(a.n_layers, width))
            b = b if a.bias is True else b.sum(1)
        return LayerGradients(torch.from_numpy(start) if len(start) else None, K, b, ())


def _n_rows(n_layers: int) -> int:
    """Rows of a history: of whole blocks of four."""
    return n_layers // 4 * 4 + 4


def _plain(name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> np.ndarray:
    """The same numbers, contiguous in memory."""
    if tensor.shape != shape or tensor.dtype is not dtype or not tensor.is_cpu:
        found = f"{list(tensor.shape)}, {tensor.dtype}, on {tensor.device}"
        raise InvalidArgumentError(
            f"{name} must be {list(shape)}, {dtype}, on the CPU, got {found}; pass it as the network has it"
        )
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_neg() or not tensor.is_contiguous():
        tensor = tensor.resolve_neg().contiguous()
    array = tensor.numpy()
    return array if array.flags.aligned else array.copy()


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="fracdnn")


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of its parent's threads
