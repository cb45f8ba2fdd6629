"""A small dense network in one compiled pass: the last state, its gradients, and a loss with its gradients.

Samples do not depend on one another, so a tile of them goes through all layers, and back, inside a compiled kernel with
its history in cache (`fracdnn.kernels.small_network`), as many at a time as torch may use threads.

Gradients of the parameters are summed over fixed groups of tiles in a fixed order, so they do not depend on the number
of threads.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import pad

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.kernels import codes, loading
from fracdnn.kernels.loading import NUMPY_TYPES
from fracdnn.kernels.threads import MAX_THREADS, on_threads

ACTIVATIONS = {"tanh": codes.TANH, "relu": codes.RELU}
LOSSES = {"cross_entropy": codes.CROSS_ENTROPY, "squared_error": codes.SQUARED_ERROR}
_NO_LABELS = np.empty(0, np.int64)

# A pass with fewer multiplications, less than a millisecond, gains little or nothing from a second thread.
FEWEST_MULTIPLICATIONS_FOR_THREADS = 4_000_000


class Loss(NamedTuple):
    """A loss of the outputs W Y_N: its kind, what the outputs are compared with, and the weights of the samples.

    "cross_entropy" compares with int64 labels [n], "squared_error" with [n, n_outputs] numbers of the network's dtype.
    """

    kind: str
    target: torch.Tensor
    weight: torch.Tensor | None
    label_smoothing: float


class Tiles:
    """A network of N layers, and n ≥ 1 samples, as the kernel takes them.

    The dtype is one that has a kernel. `weights` is None at order 1, else a pair of [N, N] tensors: H of the forward
    history sum, and H_{N−k, N−n} in row n and column k for the adjoint one. `factors` are the N step factors.
    `activation` is one of `ACTIVATIONS`. The parameters come with each call: K [N, width, width], and b [N, width] for
    the `bias` True, [N] for "scalar", None for False. All tensors are on the CPU and of one dtype. They need not be
    contiguous.

    Several Python threads may use one object at the same time. `threads_used` says how many threads shared the latest
    call.
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
        bias: bool | str,
    ) -> None:
        kernel: Any = loading.small_network(dtype)
        n_layers = len(factors)
        self._dtype, self._kind = dtype, NUMPY_TYPES[dtype]
        self._none, self._factors = np.empty((0, width), self._kind), np.array(factors, np.float64).astype(self._kind)
        self._kernel, self._size = kernel.run(self._kind), kernel.rows.TILE_BYTES // dtype.itemsize
        self._shape, self._K_shape = (n, width), (n_layers, width, width)
        self._bias, self._b_shape = bias, (n_layers, width) if bias is True else (n_layers,)
        self._n_K, self._n_b = n_layers * width * width, n_layers * width
        # Gradients are summed within each group of tiles, then over the groups.
        self._n_groups = min(-(-n // self._size), MAX_THREADS)
        multiplications = n * width * n_layers * (n_layers // 2 + width + 16)
        self._max_threads = self._n_groups if multiplications > FEWEST_MULTIPLICATIONS_FOR_THREADS else 1
        self._n_rows = n_layers // 4 * 4 + 4  # of a history
        border = (0, self._n_rows - n_layers, 1, self._n_rows - n_layers - 1)
        matrices = [self._plain("weights", each, (n_layers, n_layers)) for each in weights or ()]
        padded = [pad(torch.from_numpy(each), border).numpy().reshape(-1) for each in matrices]
        self._constants = (*(padded or [self._factors[:0]] * 2), self._factors)
        self._activation = ACTIVATIONS[activation]
        self._no_b, self._equal_shares = np.zeros((n_layers, width), self._kind), np.full(n, 1.0 / n, self._kind)
        self.threads_used = 0
        self._rooms: list[np.ndarray] = []  # not in use now

    def forward(self, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
        """Y_N."""
        out = np.empty(self._shape, self._kind)
        self._run((y, K, b), out, codes.STATE)
        return torch.from_numpy(out)

    def gradients(
        self, cotangent: torch.Tensor, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Gradients of y, K and b from that of Y_N; the states are computed again."""
        start, given = np.empty(self._shape, self._kind), self._plain("cotangent", cotangent, self._shape)
        row = self._run((y, K, b), start, codes.COTANGENT, cotangent=given)
        return torch.from_numpy(start), *self._split(row)

    def loss(
        self,
        loss: Loss,
        y: torch.Tensor,
        K: torch.Tensor,
        b: torch.Tensor | None,
        W: torch.Tensor,
        *,
        to_start: bool,
    ) -> tuple[Any, ...] | None:
        """A loss of outputs W Y_N, W [n_outputs, width], the outputs, and the gradients of W, y, K and b.

        That of y is None unless `to_start`; those of parameters are views of one row. None in place of all where a
        label has no output, or the loss is not finite: finding out what is wrong is left to the caller.
        """
        (n, width), n_outputs = self._shape, len(W)
        labels, targets, shares = _NO_LABELS, self._none, self._equal_shares
        if loss.kind == "cross_entropy":
            labels = self._plain("target", loss.target, (n,), torch.int64)
        else:
            targets = self._plain("target", loss.target, (n, n_outputs))
        if loss.weight is not None:
            shares = self._plain("weight", loss.weight / loss.weight.sum(), (n,))
        outputs, start = np.empty((n, n_outputs), self._kind), np.empty((n if to_start else 0, width), self._kind)
        task = (labels, targets, shares, outputs, float(loss.label_smoothing))
        row = self._run((y, K, b), start, LOSSES[loss.kind], *task, W=self._plain("W", W, (n_outputs, width)))
        value = float(row[-1])
        if not math.isfinite(value):
            return None
        of_W = torch.from_numpy(row[self._n_K + self._n_b : -1].reshape(n_outputs, width))
        of_y = torch.from_numpy(start) if to_start else None
        return value, torch.from_numpy(outputs), of_W, of_y, *self._split(row)

    def _run(
        self, given: tuple[Any, ...], start: np.ndarray, kind: int, *task: Any, W: Any = None, cotangent: Any = None
    ) -> np.ndarray:
        """Gradients of K, b and W and then the loss, in one row; `given` is y, K, b, and `kind` one of `codes`."""
        (n_layers, width, _), none, n_groups = self._K_shape, self._none, self._n_groups
        W, cotangent = none if W is None else W, none if cotangent is None else cotangent
        task = task or (_NO_LABELS, none, self._equal_shares, none, 0.0)
        y, K = self._plain("y", given[0], self._shape), self._plain("K", given[1], self._K_shape)
        b = self._plain("b", given[2], self._b_shape) if self._bias else self._no_b
        b = b if b.ndim == 2 else np.repeat(b, width).reshape(n_layers, width)
        call = (*self._constants, K, b, self._activation, kind, *task, W, y, cotangent, start)
        sums = np.empty((n_groups, self._n_K + self._n_b + W.size + 1), self._kind)
        threads = self.threads_used = min(torch.get_num_threads(), self._max_threads)
        # From torch, whose memory is aligned to whole vectors: reading across that costs half of the speed.
        shape = (threads, ((2 * self._n_rows + 2 + n_layers) * width + len(W)) * self._size)
        rooms = self._rooms.pop() if self._rooms else self._factors
        if rooms.shape != shape:
            rooms = torch.empty(shape, dtype=self._dtype).numpy()
        if threads == 1:
            self._kernel(*call, 0, n_groups, rooms[0], sums)
        else:  # two pieces for each thread, so that one that is late does not delay the others by half
            n_pieces = min(n_groups, 2 * threads)
            ends = [piece * n_groups // n_pieces for piece in range(n_pieces + 1)]
            on_threads(lambda i, t: self._kernel(*call, ends[i], ends[i + 1], rooms[t], sums), n_pieces, threads)
        self._rooms.append(rooms)
        return np.add.reduce(sums, 0)

    def _split(self, row: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The gradients of K and b, where they are in a row of all."""
        of_K = torch.from_numpy(row[: self._n_K].reshape(self._K_shape))
        if not self._bias:
            return of_K, None
        of_b = torch.from_numpy(row[self._n_K : self._n_K + self._n_b].reshape(-1, self._shape[1]))
        return of_K, of_b if self._bias is True else of_b.sum(1)

    def _plain(
        self, name: str, tensor: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype | None = None
    ) -> np.ndarray:
        """The same numbers, contiguous in memory."""
        if tensor.shape != shape or tensor.dtype is not (dtype or self._dtype) or not tensor.is_cpu:
            found = f"{list(tensor.shape)}, {tensor.dtype}, on {tensor.device}"
            wanted = f"{list(shape)}, {dtype or self._dtype}, on the CPU"
            raise InvalidArgumentError(f"{name} must be {wanted}, got {found}; other sizes need a Tiles of their own")
        if tensor.requires_grad:
            tensor = tensor.detach()
        if tensor.is_neg() or not tensor.is_contiguous():
            tensor = tensor.resolve_neg().contiguous()
        array = tensor.numpy()
        return array if array.flags.aligned else array.copy()
