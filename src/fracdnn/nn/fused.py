"""A small dense network in one compiled pass: what `FractionalStack` computes, and its gradients, sooner.

Networks of the paper's size spend their time between operations, not in them: states of a few thousand numbers, a
dozen calls a layer. Samples do not depend on one another, so here a tile of them goes through all the layers, and
back, inside a compiled kernel with its history in cache (`fracdnn.kernels.small_network`, by Numba; the first use
compiles it, later ones find it on disk). Torch's threads share the tiles. Gradients of the parameters are summed over
fixed groups of tiles in a fixed order, so that they do not depend on the threads.

`last_state` is Y_N, with gradients that go through the tiles once more, forward and back. A loss of the outputs knows
what comes back as soon as it is known itself: `Tiles.loss` gives value and gradients together, in one pass.

`tiles` says whether all this applies; everything else, second derivatives among it, takes the usual path.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from fracdnn.kernels.interrupts import interrupt_afterwards
from fracdnn.kernels.tensors import NUMPY_TYPES, is_readable
from fracdnn.memory import MemoryPlan, propagate, propagate_residual
from fracdnn.nn.operators import ACTIVATIONS, DenseLayer, affine
from fracdnn.nn.stack import FractionalStack
from fracdnn.tracing import has_module_hooks, is_batch_of_cotangents, operations_are_watched

# At this width and 5,000 samples the kernel is still 4 times as fast as matrix products (docs/benchmarks.md).
MAX_WIDTH = 16
# Deeper, all pairs of layers are too many: the memory of all others goes by exponentials.
_MAX_LAYERS = 192

_CODES = {ACTIVATIONS["tanh"]: 0, ACTIVATIONS["relu"]: 1}
_GIVEN = 0
LOSSES = {"cross_entropy": 1, "squared_error": 2}
_GROUPS = 16
# Multiplications below which threads cost more than they bring.
_THREADED_WORK = 200_000


class Loss(NamedTuple):
    """A loss of outputs W Y_N: the kind, see `LOSSES`; what it compares them with; and the weights of the samples."""

    kind: str
    target: torch.Tensor
    weight: torch.Tensor | None
    label_smoothing: float


class LossGradients(NamedTuple):
    """A loss with the outputs it was taken of, and its gradients; that of Y_0 only where it was asked for."""

    value: float
    outputs: torch.Tensor
    y: torch.Tensor | None
    parameters: torch.Tensor


def last_state(
    stack: FractionalStack, y: torch.Tensor, stacked: Callable[[], tuple[torch.Tensor, torch.Tensor]]
) -> torch.Tensor:
    """Y_N of a stack, by the kernel where it applies; `stacked()` gives the K and b of all layers, see `_Pass`."""
    parameters = _parameters(stack, y)
    if not parameters or _kernel(y.dtype) is None:
        return stack(y)
    return joined_state(stack, y, *stacked(), parameters)


def joined_state(
    stack: FractionalStack, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor, parameters: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Y_N of a stack by the kernel, which must apply, from the K and b of all layers, which come from `parameters`."""
    if torch.is_grad_enabled():
        result = _Pass.apply(stack, parameters, y, K, b)
    else:
        result = tiles(stack, y).forward(y, one_row(K, b))
    if not math.isfinite(result.detach().sum()):
        with torch.no_grad():
            stack(y)  # raises, and names the layer that left the finite numbers; unless only the sum did
    return result


def one_row(*parameters: torch.Tensor) -> torch.Tensor:
    """Parameters as the kernel takes them."""
    return torch.cat([each.reshape(-1) for each in parameters])


def usual_state(stack: FractionalStack, y: torch.Tensor, K: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Y_N from the K and b of all layers, in torch operations."""
    activation: Any = stack.layers[0]._activation

    def step(j: int, state: torch.Tensor) -> torch.Tensor:
        return activation(affine(state, K[j], b[j] if len(b) else None))

    if stack.is_residual:
        return propagate_residual(stack.step_numbers, step, y)
    return propagate(stack.plan(y), step, y)


def applies(stack: FractionalStack, y: torch.Tensor) -> bool:
    """Whether a state like y would go through the kernel."""
    return bool(_parameters(stack, y)) and _kernel(y.dtype) is not None


def tiles(stack: FractionalStack, y: torch.Tensor) -> "Tiles":
    """How states like y go through the kernel, which must apply; kept while they are alike, as in training."""
    plan = None if stack.is_residual else stack.plan(y)
    layer: Any = stack.layers[0]
    key = (y.shape, y.dtype, torch.get_num_threads(), layer._activation, None if layer.b is None else layer.b.dim())
    kept = stack.__dict__.get("_fused")
    if kept is None or kept[0] != key or kept[1].plan is not plan:
        factors = stack.step_numbers if plan is None else plan.factors.tolist()
        kept = (key, Tiles(_kernel(y.dtype), y, plan, factors, layer._activation, key[-1]))  # type: ignore[arg-type]
        stack.__dict__["_fused"] = kept
    return kept[1]


def _parameters(stack: FractionalStack, y: torch.Tensor) -> list[torch.Tensor]:
    """All K, then all b; nothing where the kernel does not apply."""
    if y.dim() != 2 or not len(y) or y.shape[1] > MAX_WIDTH or y.dtype not in NUMPY_TYPES:
        return []
    if stack.history != "auto" or len(stack.layers) > _MAX_LAYERS or not is_plain_call(stack):
        return []
    layers: list[Any] = list(stack.layers)
    if any(type(layer) is not DenseLayer or has_module_hooks(layer) for layer in layers):
        return []
    activations = {layer._activation for layer in layers}
    matrices = [layer._parameters["K"] for layer in layers]
    biases = [b for layer in layers if (b := layer._parameters.get("b")) is not None]
    width = y.shape[1]
    plain = (
        len(activations) == 1
        and activations <= _CODES.keys()
        and len(biases) in (0, len(layers))
        and all(tensor.dtype is y.dtype and is_readable(tensor) for tensor in (y, *matrices, *biases))
        and {K.shape for K in matrices} == {(width, width)}
        and {b.shape for b in biases} in (set(), {()}, {(width,)})
    )
    return matrices + biases if plain else []


def is_plain_call(stack: FractionalStack) -> bool:
    """Whether order and steps are numbers and nobody watches or transforms the operations."""
    return not (
        operations_are_watched()
        or type(stack) is not FractionalStack
        or has_module_hooks(stack)
        or has_module_hooks(stack.layers)
        or stack.learned_order is not None
        or stack.learned_steps is not None
    )


@lru_cache(maxsize=2)
def _kernel(dtype: torch.dtype) -> ModuleType | None:
    """The compiled passes, or nothing where Numba is missing or cannot compile them: tried once, on nothing."""
    with interrupt_afterwards():
        try:
            from fracdnn.kernels import small_network

            nothing = torch.zeros(1, 1, dtype=dtype)
            trial = Tiles(small_network, nothing, None, [1.0], ACTIVATIONS["tanh"], None)
            trial.gradients(trial.forward(nothing, nothing[0]), nothing, nothing[0])
        except Exception:  # whatever it is, the usual path is there
            return None
    return small_network


class Tiles:
    """One network for one number of samples, as the kernel sees it: which samples go together, and its constants.

    `bias` is the number of axes that b has in a layer, None without b. Parameters are one row, see the kernel.
    """

    def __init__(
        self,
        kernel: ModuleType,
        y: torch.Tensor,
        plan: MemoryPlan | None,
        factors: Sequence[float],
        activation: Callable[[torch.Tensor], torch.Tensor],
        bias: int | None,
    ) -> None:
        from fracdnn.kernels.threads import Call

        self.plan, self._call = plan, Call
        self._kernel, self._like, self._dtype = kernel, y.dtype, NUMPY_TYPES[y.dtype]
        self._n_layers = len(factors)
        self._n, self._width = y.shape
        self._size = _tile_size(self._n, self._width, kernel.tile_unit(y.dtype.itemsize))
        self._n_groups = min(-(-self._n // self._size), _GROUPS)
        work = self._n * self._width * self._n_layers * (self._n_layers // 2 + self._width + 16)
        self._threads = min(torch.get_num_threads(), self._n_groups) if work > _THREADED_WORK else 1
        self._n_parameters = self._n_layers * self._width**2  # W apart
        steps = (0, 0)
        if bias is not None:
            steps = (self._width, 1) if bias else (1, 0)
            self._n_parameters += self._n_layers * steps[0]
        pair = () if plan is None else (plan.forward_matrix(y), plan.adjoint_matrix(y))
        self._weights = tuple(_array(each) for each in pair)
        self._factors = np.array(factors, self._dtype)
        network = {
            "n_groups": self._n_groups,
            "size": self._size,
            "n": self._n,
            "width": self._width,
            "n_layers": self._n_layers,
            "has_memory": len(pair) // 2,
            "factors": _address(self._factors),
            "b_down": steps[0],
            "b_along": steps[1],
            "activation": _CODES[activation],
            "fine": 1,
            **dict(zip(("weights", "adjoint"), map(_address, self._weights), strict=False)),
        }
        self._places = {name: place for place, name in enumerate(kernel.RECORD.names[1:])}
        self._fields: list[float] = [network.get(name, 0) for name in self._places]
        self._equal = np.full(self._n, 1.0 / self._n, self._dtype)
        self._rooms: list[torch.Tensor] = []

    def forward(self, y: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
        """Y_N."""
        out = np.empty((self._n, self._width), self._dtype)
        self._run(self._kernel.forward, y, parameters, start=_address(out))
        return torch.from_numpy(out)

    def gradients(
        self, cotangent: torch.Tensor, y: torch.Tensor, parameters: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of y and of the parameters from that of Y_N; the states are computed again."""
        start, given = np.empty((self._n, self._width), self._dtype), _array(cotangent)
        sums, _ = self._back(y, parameters, kind=_GIVEN, cotangent=_address(given), start=_address(start))
        return torch.from_numpy(start), torch.from_numpy(sums[:-1])

    def loss(self, loss: Loss, y: torch.Tensor, parameters: torch.Tensor, *, to_start: bool) -> LossGradients | None:
        """A loss of outputs W Y_N and its gradients; nothing where the usual path has to say what is wrong.

        The parameters include W.
        """
        n_outputs = (parameters.numel() - self._n_parameters) // self._width
        target, outputs = _array(loss.target), np.empty((self._n, n_outputs), self._dtype)
        weight = self._equal if loss.weight is None else _array(loss.weight / loss.weight.sum())
        start = np.empty((self._n, self._width) if to_start else 0, self._dtype)
        sums, fine = self._back(
            y,
            parameters,
            kind=LOSSES[loss.kind],
            smoothing=loss.label_smoothing,
            n_outputs=n_outputs,
            outputs=_address(outputs),
            shares=_address(weight),
            start=_address(start) if to_start else 0,
            **{"labels" if target.ndim == 1 else "targets": _address(target)},
        )
        if not fine:
            return None
        grad_y = torch.from_numpy(start) if to_start else None
        return LossGradients(float(sums[-1]), torch.from_numpy(outputs), grad_y, torch.from_numpy(sums[:-1]))

    def _back(self, y: torch.Tensor, parameters: torch.Tensor, **fields: float) -> tuple[np.ndarray, bool]:
        """The sums of the kernel's `gradients` over all groups, and whether all was in order."""
        sums = np.empty((self._n_groups, parameters.numel() + 1), self._dtype)
        fine = self._run(self._kernel.gradients, y, parameters, sums=_address(sums), **fields)
        return sums.sum(0), fine

    def _run(self, entry: Callable[[Any], Any], y: torch.Tensor, parameters: torch.Tensor, **fields: float) -> bool:
        """Have one of the kernel's functions do its work, with these fields of its record beside the network's."""
        samples, row = _array(y), _array(parameters)
        room = (3 * (self._n_layers + 1) * self._width + int(fields.get("n_outputs", 0)) + 3) * self._size
        try:
            rooms = self._rooms.pop()  # of an earlier call: no other one has it meanwhile
        except IndexError:
            rooms = torch.empty(0, dtype=self._like)
        if rooms.numel() < room * self._threads:
            # Torch's memory begins where a vector may: two reads for each that does not cost a third of the speed.
            rooms = torch.empty(room * self._threads, dtype=self._like)
        fields |= {"samples": _address(samples), "parameters": _address(row), "n_sums": len(row)}
        fields |= {"rooms": rooms.data_ptr(), "room": room}
        values = self._fields.copy()
        for name, value in fields.items():
            values[self._places[name]] = value
        found = self._call(entry(self._dtype), self._kernel.RECORD, self._threads)(*values)
        self._rooms.append(rooms)
        return bool(found["fine"])


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().contiguous().resolve_neg().numpy()


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _tile_size(n: int, width: int, unit: int) -> int:
    """Samples in a tile: a multiple of `unit` whose history stays in cache and that leaves little of a tile empty.

    An odd multiple: states whose distance is a power of two would drive each other out of the cache.
    """
    largest = min(9, max(1, 48 // width))

    def cost(multiple: int) -> int:
        n_tiles = -(-n // (multiple * unit))
        return (n_tiles + n_tiles % 2) * (multiple + 1)

    return unit * min(range(1, largest + 1, 2), key=cost)


class _Pass(torch.autograd.Function):
    """Y_N from Y_0, K [N, width, width] and b [N, width], [N] or [0]; the parameters these came from are watched."""

    @staticmethod
    def forward(
        ctx: Any,
        stack: FractionalStack,
        parameters: Sequence[torch.Tensor],
        y: torch.Tensor,
        K: torch.Tensor,
        b: torch.Tensor,
    ) -> torch.Tensor:
        ctx.stack, ctx.tiles = stack, tiles(stack, y)
        ctx.save_for_backward(y, K, b, *parameters)
        return ctx.tiles.forward(y, one_row(K, b))

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, needed = ctx.saved_tensors[:3], ctx.needs_input_grad[2:]
        if torch.is_grad_enabled() or is_batch_of_cotangents(cotangent):
            return (None, None, *usual_gradients(partial(usual_state, ctx.stack), inputs, needed, cotangent))
        y, K, b = inputs
        of_y, row = ctx.tiles.gradients(cotangent, y, one_row(K, b))
        gradients = (of_y, row[: K.numel()].view_as(K), row[K.numel() :].view_as(b))
        return (None, None, *(gradient if need else None for gradient, need in zip(gradients, needed, strict=True)))


def usual_gradients(
    usual: Callable[..., torch.Tensor],
    inputs: Sequence[torch.Tensor],
    needed: Sequence[bool],
    cotangent: torch.Tensor,
) -> list[torch.Tensor | None]:
    """The gradients in torch operations, for second derivatives and for many cotangents at once."""
    with torch.enable_grad():
        # Aliases, so that hooks on the inputs run once: where the gradients arrive, not here.
        aliases = [tensor.view_as(tensor) for tensor in inputs]
        result = usual(*aliases)
    wanted = [tensor for tensor, need in zip(aliases, needed, strict=True) if need]
    found = iter(torch.autograd.grad(result, wanted, cotangent, create_graph=torch.is_grad_enabled()))
    return [next(found) if need else None for need in needed]
