"""A small dense network in one compiled pass: the last state, its gradients, and a loss with its gradients.

Networks of the paper's size spend their time between operations, not in them: states of a few thousand numbers, a
dozen calls a layer. Samples do not depend on one another, so here a tile of them goes through all layers, and back,
inside a compiled kernel with its history in cache (`fracdnn.kernels.small_network`). Torch's threads share the tiles.

Gradients of the parameters are summed over fixed groups of tiles in a fixed order, so they do not depend on the number
of threads.
"""

import math
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.kernels import codes, loading
from fracdnn.kernels.tensors import NUMPY_TYPES

ACTIVATIONS = {"tanh": codes.TANH, "relu": codes.RELU}
LOSSES = {"cross_entropy": codes.CROSS_ENTROPY, "squared_error": codes.SQUARED_ERROR}
BIASES = ("vector", "scalar", "none")

# Gradients are summed within each group of tiles, then over the groups. More threads than groups would have no work.
MAX_GROUPS = 16
# A pass with fewer multiplications is over before a second thread has started.
FEWEST_MULTIPLICATIONS_FOR_THREADS = 200_000


class Loss(NamedTuple):
    """A loss of the outputs W Y_N: its kind, what the outputs are compared with, and the weights of the samples.

    "cross_entropy" compares with int64 labels [n], "squared_error" with [n, n_outputs] numbers of the network's dtype.
    """

    kind: str
    target: torch.Tensor
    weight: torch.Tensor | None
    label_smoothing: float


class LossGradients(NamedTuple):
    """A loss, the outputs it was taken of, and its gradients: `y` is None unless asked for, `b` where there is no b.

    The gradients of K, b and W are views of one row of memory.
    """

    value: float
    outputs: torch.Tensor
    y: torch.Tensor | None
    K: torch.Tensor
    b: torch.Tensor | None
    W: torch.Tensor


class Tiles:
    """A network of N layers, and n ≥ 1 samples, as the kernel takes them.

    `weights` is None at order 1, else a pair of [N, N] tensors: H of the forward history sum, and H_{N−k, N−n} in row n
    and column k for the adjoint one. `factors` are the N step factors. `activation` is one of `ACTIVATIONS`, and `bias`
    one of `BIASES`.
    The parameters come with each call: K [N, width, width], and b [N, width] for a "vector" bias, [N] for a "scalar"
    bias, None for "none". All tensors are on the CPU and of one dtype. They need not be contiguous.

    Several Python threads may use one object at the same time. `threads_used` says how many of torch's threads took
    part in the latest call.
    """

    def __init__(
        self,
        n: int,
        width: int,
        dtype: torch.dtype,
        *,
        weights: tuple[torch.Tensor, torch.Tensor] | None,
        factors: Sequence[float],
        activation: str,
        bias: str,
    ) -> None:
        kernel = loading.small_network(dtype)
        if kernel is None:
            raise RuntimeError(f"dtype {dtype} has no compiled kernel; ask kernels.loading.small_network(dtype) first")
        if n < 1 or activation not in ACTIVATIONS or bias not in BIASES:
            rule = f"at least one sample, an activation of {list(ACTIVATIONS)} and a bias of {list(BIASES)}"
            raise InvalidArgumentError(f"Tiles takes {rule}, got {n}, {activation!r} and {bias!r}")
        n_layers = len(factors)
        self._kernel, self._dtype = kernel, dtype
        self._shape, self._K_shape = (n, width), (n_layers, width, width)
        self._b_shape = {"vector": (n_layers, width), "scalar": (n_layers,), "none": None}[bias]
        self._n_K, self._n_b = math.prod(self._K_shape), math.prod(self._b_shape or (0,))
        self._size = _tile_size(n, width, kernel.tile_unit(dtype.itemsize))
        self._n_groups = min(-(-n // self._size), MAX_GROUPS)
        multiplications = n * width * n_layers * (n_layers // 2 + width + 16)
        self._max_threads = self._n_groups if multiplications > FEWEST_MULTIPLICATIONS_FOR_THREADS else 1
        # Kept, because the kernel has only their addresses.
        self._factors = torch.tensor(factors, dtype=torch.float64, device="cpu").to(dtype)
        self._weights = [self._plain("weights", each, (n_layers, n_layers)) for each in weights or ()]
        self._equal_shares = torch.full((n,), 1.0 / n, dtype=dtype, device="cpu")
        matrices = [each.data_ptr() for each in self._weights] or [0, 0]
        b_steps = {"vector": (width, 1), "scalar": (1, 0), "none": (0, 0)}[bias]
        # In the order of the kernel's `NETWORK`.
        sizes, addresses = (n, width, n_layers, self._size, self._n_groups), (self._factors.data_ptr(), *matrices)
        self._network = (*sizes, *addresses, *b_steps, ACTIVATIONS[activation])
        self._free: dict[tuple[int, int], list[_Workspace]] = {}
        self.threads_used = 0

    def forward(self, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        """Y_N."""
        out = self._new(*self._shape)
        self._run(codes.STATE, y, K, b, start=out.data_ptr())
        return out

    def gradients(
        self, cotangent: torch.Tensor, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Gradients of y, K and b from that of Y_N; the states are computed again."""
        cotangent, start = self._plain("cotangent", cotangent, self._shape), self._new(*self._shape)
        row, _ = self._run(codes.COTANGENT, y, K, b, cotangent=cotangent.data_ptr(), start=start.data_ptr())
        return start, *self._split(row)

    def loss(
        self,
        loss: Loss,
        y: torch.Tensor,
        K: torch.Tensor,
        b: torch.Tensor | None,
        W: torch.Tensor,
        *,
        to_start: bool,
    ) -> LossGradients | None:
        """A loss of outputs W Y_N, W [n_outputs, width], and its gradients, that of y only where `to_start`.

        None where a label has no output, or Y_N is not finite: finding out what is wrong is left to the caller.
        """
        n, width = self._shape
        n_outputs = len(W)
        W = self._plain("W", W, (n_outputs, width))
        target = self._target(loss, n_outputs)
        shares = self._equal_shares
        if loss.weight is not None:
            shares = self._plain("weight", loss.weight / loss.weight.sum(), (n,))
        outputs, start = self._new(n, n_outputs), self._new(n, width) if to_start else None
        row, fine = self._run(
            LOSSES[loss.kind],
            y,
            K,
            b,
            W=W.data_ptr(),
            n_outputs=n_outputs,
            start=0 if start is None else start.data_ptr(),
            target=target.data_ptr(),
            shares=shares.data_ptr(),
            outputs=outputs.data_ptr(),
            smoothing=loss.label_smoothing,
        )
        if not fine:
            return None
        of_W = torch.from_numpy(row[self._n_K + self._n_b : -1].reshape(n_outputs, width))
        return LossGradients(float(row[-1]), outputs, start, *self._split(row), of_W)

    def _run(
        self,
        kind: int,
        y: torch.Tensor,
        K: torch.Tensor,
        b: torch.Tensor | None,
        *,
        W: int = 0,
        n_outputs: int = 0,
        cotangent: int = 0,
        start: int = 0,
        target: int = 0,
        shares: int = 0,
        outputs: int = 0,
        smoothing: float = 0.0,
    ) -> tuple[np.ndarray, bool]:
        """Gradients of K, b and W and then the loss, in one row, and whether all was in order; `kind` as in `codes`."""
        y, K = self._plain("y", y, self._shape), self._plain("K", K, self._K_shape)
        if self._b_shape is not None and b is not None:
            b = self._plain("b", b, self._b_shape)
        elif self._b_shape is not None or b is not None:
            wanted = "None, as the bias is 'none'" if self._b_shape is None else f"a tensor {list(self._b_shape)}"
            raise InvalidArgumentError(f"b must be {wanted}, got {'None' if b is None else list(b.shape)}")
        key = (min(torch.get_num_threads(), self._max_threads), n_outputs)
        free = self._free.setdefault(key, [])
        try:
            work = free.pop()  # left by an earlier call; nobody else has it now
        except IndexError:
            work = self._workspace(*key)
        parameters = (y.data_ptr(), K.data_ptr(), 0 if b is None else b.data_ptr(), W)
        given = (n_outputs, cotangent, start, kind, target, shares, outputs, smoothing)
        # In the order of the kernel's `RECORD`: `entered` and `fine` come first.
        work.call(0, 1, *parameters, *given, *work.fields, *self._network)
        self.threads_used, fine = work.call.read("entered"), bool(work.call.read("fine"))
        row = work.sums[0] if kind == codes.STATE else np.add.reduce(work.sums, 0)
        free.append(work)
        return row, fine

    def _workspace(self, threads: int, n_outputs: int) -> "_Workspace":
        n_layers, width, _ = self._K_shape
        room = (3 * (n_layers + 1) * width + n_outputs + 3) * self._size
        n_sums = self._n_K + self._n_b + n_outputs * width
        return _Workspace(self._kernel, self._dtype, threads, room, self._n_groups, n_sums)

    def _split(self, row: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The gradients of K and b, where they are in a row of all."""
        of_K = torch.from_numpy(row[: self._n_K].reshape(self._K_shape))
        if self._b_shape is None:
            return of_K, None
        return of_K, torch.from_numpy(row[self._n_K : self._n_K + self._n_b].reshape(self._b_shape))

    def _target(self, loss: Loss, n_outputs: int) -> torch.Tensor:
        n = self._shape[0]
        if loss.kind not in LOSSES:
            raise InvalidArgumentError(f"the kind of a loss must be one of {list(LOSSES)}, got {loss.kind!r}")
        if loss.kind == "cross_entropy":
            return self._plain("target", loss.target, (n,), torch.int64)
        return self._plain("target", loss.target, (n, n_outputs))

    def _plain(
        self, name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """The same numbers, contiguous in memory. The kernel gets a bare address, so all else is checked here."""
        if tensor.shape != shape or tensor.dtype is not (dtype or self._dtype) or not tensor.is_cpu:
            found = f"{list(tensor.shape)}, {tensor.dtype}, on {tensor.device}"
            wanted = f"{list(shape)}, {dtype or self._dtype}, on the CPU"
            raise InvalidArgumentError(f"{name} must be {wanted}, got {found}; other sizes need a Tiles of their own")
        if tensor.is_contiguous() and not tensor.is_neg():
            return tensor
        return tensor.detach().contiguous().resolve_neg()

    def _new(self, *shape: int) -> torch.Tensor:
        return torch.from_numpy(np.empty(shape, NUMPY_TYPES[self._dtype]))


class _Workspace:
    """What a call needs for itself: the kernel's record, a room for each thread, a row of sums for each group."""

    def __init__(
        self, kernel: ModuleType, dtype: torch.dtype, threads: int, room: int, n_groups: int, n_sums: int
    ) -> None:
        from fracdnn.kernels.threads import Call

        kind = NUMPY_TYPES[dtype]
        # From torch, whose memory is aligned to whole vectors: reading across that costs a third of the speed.
        self._rooms = torch.empty(room * threads, dtype=dtype, device="cpu")
        self.sums = np.empty((n_groups, n_sums + 1), kind)
        self.fields = (self._rooms.data_ptr(), room, self.sums.ctypes.data, n_sums)
        self.call = Call(kernel.run(kind), kernel.RECORD, threads)


def _tile_size(n: int, width: int, unit: int) -> int:
    """Samples in a tile: a multiple of `unit` whose history stays in cache and that leaves little of a tile empty.

    An odd multiple: states whose distance is a power of two would drive each other out of the cache.
    """
    largest = min(9, max(1, 48 // width))

    def cost(multiple: int) -> int:
        n_tiles = -(-n // (multiple * unit))
        return (n_tiles + n_tiles % 2) * (multiple + 1)

    return unit * min(range(1, largest + 1, 2), key=cost)
