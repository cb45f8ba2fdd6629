"""What a chain of layers needs to know of its memory: the weights, the step factors, and a sum to compute with.

A plan serves many forward passes where order and steps are fixed. Where they are learned it is built in each, its
tensors are attached to the graph, and `learned_gradients` gives what flows back into them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, ClassVar

import torch
from torch.nn.functional import pad

from fracdnn.caputo import memory_matrix, memory_weights_of_steps
from fracdnn.caputo.weights import quick_memory_matrix, step_factor
from fracdnn.memory.choose_sum import choose_triton
from fracdnn.memory.compressed import CompressedSum, CompressedWeights, Rows, compressed_gradients, compressed_weights
from fracdnn.memory.exact import ExactSum, ExactWeights, Keep
from fracdnn.memory.sums import FunctionalSum, HistorySum, MemorylessSum, WideSum, as_rows, wide
from fracdnn.memory.triton_sum import KernelWeights, TritonCompressedSum
from fracdnn.tracing import being_traced, carries_derivative, outside_of_modes, values_are_unknown

# States of an exact sum stay in one buffer unless a chain says otherwise.
_KEPT_WHOLE = Keep()
# Batches of other sizes keep other things: not without end.
_KEPT = 64
# Numbers of two sets of states whose products stay in a cache, and of a state for which an operation takes longer than
# its overhead, so that it need not be stacked with others.
_NUMBERS_AT_A_TIME = 2**16
_LARGE_STATE = 2**12


class MemoryPlan(ABC):
    """Weights and factors of N layers; float64, attached to the graph of order and steps where these are learned."""

    # What `compressed_` says of it.
    compressed: ClassVar[bool] = False

    def __init__(self, factors: torch.Tensor, *weights: torch.Tensor) -> None:
        self.n_layers = len(factors)
        self.factors = factors
        # All that a gradient can flow into, in the order of `learned_gradients`, the factors last.
        self.weight_tensors = (*weights, factors)
        self.learned = any(tensor.requires_grad for tensor in self.weight_tensors)
        # Numbers where they can be had: a Python float costs a layer nothing, on any device.
        self.factor_numbers: list[float] | None = None
        by_layer = factors.dim() == 1 and (factors.is_cpu or not carries_derivative(factors))
        if by_layer and not values_are_unknown(factors):
            self.factor_numbers = factors.tolist()
        self._kept: dict[tuple[Any, ...], Any] = {}

    @abstractmethod
    def history_sum(self, state: torch.Tensor, top: int | None = None, *, keep: Keep = _KEPT_WHOLE) -> HistorySum:
        """The sum over Y_0, Y_1, …, for states like this one; with `top`, the adjoint one over Q_top, Q_{top−1}, …"""

    @abstractmethod
    def matrix(self) -> torch.Tensor:
        """All weights, [N, N], attached to the graph."""

    def plain_sum(self, state: torch.Tensor, top: int | None = None) -> HistorySum:
        """The same in plain operations, attached to the graph."""
        matrix, skip = self.matrix(), self.n_layers - (top or self.n_layers)
        matrix = matrix if top is None else _transposed(matrix)[skip:, skip:]
        return _widened(state, lambda wide: FunctionalSum(matrix.to(wide.device)))

    @abstractmethod
    def _gradients(self, states: Rows, adjoints: Rows, begin: int, position: Rows) -> tuple[torch.Tensor, ...]:
        """What `learned_gradients` gives for the weights; of weights by row only those of these rows."""

    def _products(self, adjoints: Rows, changes: Rows) -> torch.Tensor:
        """Return Q_j · f_{j−1}, the gradients for the factors; of small states several at a time."""
        size, kind = adjoints[0].numel(), wide(adjoints[0].dtype)
        if size > _LARGE_STATE and all(change.layout is torch.strided for change in changes):
            pairs = zip(adjoints, changes, strict=True)
            return torch.stack([(adjoint.to(kind) * change).sum() for adjoint, change in pairs])
        count = 1 + _NUMBERS_AT_A_TIME // (1 + size)
        parts = [[each[n : n + count] for each in (adjoints, changes)] for n in range(0, len(adjoints), count)]
        return torch.cat([(as_rows(some) * as_rows(others)).sum(1) for some, others in parts])

    def learned_gradients(
        self,
        states: Rows,
        adjoints: Rows,
        changes: Rows,
        begin: int = 1,
        position: Rows = (),
        *,
        products: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        """Return gradients of `weight_tensors` from Y_{begin−1}, …, Q_begin, … and f_{begin−1}, …: what these rows add.

        Rows that begin later than with the first need the position of the forward sum there. `products` are Q_j ·
        f_{j−1}, if the caller has them.
        """
        kind = adjoints[0].device.type
        with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
            products = self._products(adjoints, changes) if products is None else products
            factors = pad(products, (begin - 1, self.n_layers + 1 - begin - len(adjoints)))
            found = (*self._gradients(states, adjoints, begin, position), factors)
            return tuple(gradient.to(torch.float64) for gradient in found)

    def scales(self, like: torch.Tensor) -> Any:
        """c_1 … c_N without a graph, for products with states like this one."""
        if self.factor_numbers is None:
            return self.factors.detach().to(like.device, wide(like.dtype))
        if not like.is_cpu:
            return self.factor_numbers
        # Tensors of one number: torch takes longer to make one of a Python float than to multiply by it.
        return self.kept(("scales", *kind_of(like)), lambda: self.factors.detach().to("cpu", wide(like.dtype)).unbind())

    def kept(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` gives, as constants; made once for each key, such as the dtype and device of a state."""
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            # A plan of learned weights lives for one pass: what is made for it may see the caller's modes. So does one
            # on a GPU, where fixed weights never are, whose order or steps are learned but frozen.
            for_one_pass = self.learned or self.factors.is_cuda
            found = self._kept[key] = torch.no_grad()(make)() if for_one_pass else outside_of_modes(make)
        return found


class MemorylessPlan(MemoryPlan):
    """Order 1, Y_j = Y_{j−1} + τ_j f; without `skip`, Y_j = f."""

    def __init__(self, factors: torch.Tensor, *, skip: bool = True) -> None:
        super().__init__(factors)
        self._skip = skip

    def history_sum(self, state: torch.Tensor, top: int | None = None, *, keep: Keep = _KEPT_WHOLE) -> HistorySum:
        return MemorylessSum(skip=self._skip)

    def plain_sum(self, state: torch.Tensor, top: int | None = None) -> HistorySum:
        return MemorylessSum(skip=self._skip)

    def matrix(self) -> torch.Tensor:
        return torch.eye(self.n_layers, dtype=torch.float64, device=self.factors.device) * self._skip

    def _gradients(self, states: Rows, adjoints: Rows, begin: int, position: Rows) -> tuple[torch.Tensor, ...]:
        return ()


class ExactPlan(MemoryPlan):
    """All weights as a lower triangular matrix [N, N]."""

    def __init__(self, factors: torch.Tensor, matrix: torch.Tensor) -> None:
        super().__init__(factors, matrix)
        self._matrix = matrix

    def history_sum(self, state: torch.Tensor, top: int | None = None, *, keep: Keep = _KEPT_WHOLE) -> HistorySum:
        return _widened(state, lambda wide: ExactSum(self.weights(wide, top), wide, keep))

    def matrix(self) -> torch.Tensor:
        return self._matrix

    def _gradients(self, states: Rows, adjoints: Rows, begin: int, position: Rows) -> tuple[torch.Tensor, ...]:
        earlier, later = as_rows(states), as_rows(adjoints[::-1])  # as they lie in the memory of their sums
        rows, after = (later @ earlier.T).flip(0).tril(), self.n_layers - len(later)
        return (pad(rows, (0, after, 0, after)),)

    def weights(self, like: torch.Tensor, top: int | None = None) -> ExactWeights:
        """Constants in the dtype and on the device of a state; with `top`, row n, column k is H_{top−k, top−n}."""

        def make() -> ExactWeights:
            matrix = self._matrix.detach()
            return ExactWeights((matrix if top is None else _transposed(matrix)).to(like).contiguous())

        weights = self.kept(("weights", top is None, *kind_of(like)), make)
        skip = 0 if top is None else self.n_layers - top
        return ExactWeights(weights.matrix[skip:, skip:]) if skip else weights


class CompressedPlan(MemoryPlan):
    """Near weights, and far ones as exponentials; `sums` says by which operations, see `choose_triton`."""

    compressed = True

    def __init__(self, factors: torch.Tensor, weights: CompressedWeights, order: torch.Tensor, sums: str) -> None:
        super().__init__(factors, weights.own, weights.previous, weights.far, weights.oldest)
        self._weights, self._order, self._sums = weights, order, sums

    def history_sum(self, state: torch.Tensor, top: int | None = None, *, keep: Keep = _KEPT_WHOLE) -> HistorySum:
        weights = self._cast_weights(state)
        rows: Any = {"n_rows": top or self.n_layers, "transposed": top is not None}
        if choose_triton(self._sums, state, self._weights.block):
            read = self.kept(("kernels", *kind_of(weights.own)), lambda: KernelWeights.of(weights))
            return TritonCompressedSum(read, state, **rows)
        return _widened(state, lambda wide: CompressedSum(weights, wide, **rows))

    def matrix(self) -> torch.Tensor:
        return memory_matrix(self._order, self.n_layers)

    def _gradients(self, states: Rows, adjoints: Rows, begin: int, position: Rows) -> tuple[torch.Tensor, ...]:
        return compressed_gradients(self._cast_weights(adjoints[0]), states, adjoints, begin, position)

    def _cast_weights(self, state: torch.Tensor) -> CompressedWeights:
        """For sums over states like this one."""
        kind = wide(state.dtype), state.device
        return self.kept(("weights", *kind), lambda: self._weights.detached(*kind))


def kind_of(state: torch.Tensor) -> tuple[Any, ...]:
    return state.dtype, state.device


def _transposed(matrix: torch.Tensor) -> torch.Tensor:
    return matrix.transpose(0, 1).flip(0, 1)


def _widened(state: torch.Tensor, make: Callable[[torch.Tensor], HistorySum]) -> HistorySum:
    """The sum for states like this one; for those of 16 bits, in single precision."""
    if state.dtype in (torch.float32, torch.float64):
        return make(state)
    return WideSum(make(torch.empty_like(state, dtype=wide(state.dtype))), state.dtype)


def default_compress_tol(dtype: torch.dtype) -> float:
    """1e-10 for float64, 1e-6 for anything coarser."""
    return 1e-10 if dtype == torch.float64 else 1e-6


def equal_steps_weights(
    order: torch.Tensor,
    step_size: torch.Tensor,
    n_layers: int,
    *,
    compress: bool = False,
    compress_tol: float = 1e-10,
    block: int = 8,
    sums: str = "auto",
) -> MemoryPlan:
    """Return the L1 weights for one step size and one order, or an order for each layer: float64 tensors.

    With `compress` (one order only), far weights are exponentials of relative error `compress_tol`, for blocks of
    `block` rows.
    """
    factors = step_factor(order, step_size).expand(n_layers).contiguous()  # a view would make torch.export.save warn
    if not compress:
        # Its constants are kept for later calls, which a compiler would trace.
        changes = order.requires_grad and not order.dim() and not being_traced()
        return ExactPlan(factors, (quick_memory_matrix if changes else memory_matrix)(order, n_layers))
    weights = compressed_weights(order, n_layers, compress_tol, block=block)
    return CompressedPlan(factors, weights, order, sums)


def steps_plan(order: torch.Tensor, steps: torch.Tensor) -> MemoryPlan:
    """Return the L1 weights for a step of each layer."""
    return ExactPlan(step_factor(order, steps), memory_weights_of_steps(order, steps))


def general_weights(matrix: torch.Tensor, factors: torch.Tensor) -> MemoryPlan:
    """Return the weights of a chain from any lower triangular matrix H [N, N] and factors c [N], float64.

    Row j−1 of H holds the weights of Y_0 … Y_{j−1} in Y_j. Gradients flow into both.
    """
    return ExactPlan(factors, matrix)


def slope_weights(slopes: torch.Tensor) -> MemoryPlan:
    """Return the weights of a chain whose states are Y_j = Y_0 + Σ_{k≤j} W_jk f_{k−1}(Y_{k−1}), from W [N, N], float64.

    W is lower triangular without zeros on its diagonal. Solving for the slopes gives c = diag W and, for Y_1 … Y_N,
    H = I − diag(c) W⁻¹; Y_0 has what is missing from 1 in the sum of a row.
    """
    factors, identity = slopes.diagonal(), torch.eye(len(slopes), dtype=slopes.dtype, device=slopes.device)
    inverse = torch.linalg.solve_triangular(slopes, identity, upper=False)
    inner = (identity - factors.unsqueeze(1) * inverse).tril(-1)
    return ExactPlan(factors, torch.cat([1.0 - inner.sum(1, keepdim=True), inner[:, :-1]], dim=1))
