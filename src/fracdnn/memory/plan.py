"""What a chain of layers needs to know of its memory: the weights, the step factors, and which sum to use.

A plan serves many forward passes where order and steps are fixed. Where they are learned it is built in each, its
tensors are attached to the graph, and `weight_gradients` gives what flows back into them.
"""

import torch

from fracdnn.caputo import l1_step_factor, memory_matrix, memory_weights_on_grid
from fracdnn.caputo.order_series import MAX_LAYERS, memory_matrix_by_series
from fracdnn.memory import compiled
from fracdnn.memory.compiled import CompiledCompressedSum, CompiledExactSum
from fracdnn.memory.compressed import (
    BLOCK,
    DEVICE_BLOCK,
    CompressedSum,
    CompressedWeights,
    compressed_gradients,
    compressed_weights,
)
from fracdnn.memory.exact import ExactSum
from fracdnn.memory.sums import HistorySum
from fracdnn.tracing import being_traced, being_transformed

HISTORIES = ("auto", "exact", "compressed")

# Deeper than this, far weights by exponentials are faster (docs/benchmarks.md) …
_EXACT_LAYERS = 64
# … but not for small states, which stay in cache, nor on other devices: there it takes more layers.
_EXACT_LAYERS_IF_SMALL = _EXACT_LAYERS_ELSEWHERE = 192


class MemoryPlan:
    """Weights and factors of N layers; float64, attached to the graph of order and steps where these are learned."""

    def __init__(
        self,
        factors: torch.Tensor,
        *,
        matrix: torch.Tensor | None = None,
        compressed: CompressedWeights | None = None,
        order: torch.Tensor | None = None,
    ) -> None:
        self.n_layers = factors.numel()
        self.factors = factors
        self._matrix = matrix
        self._compressed = compressed
        self._order = order
        self._casts: dict[object, torch.Tensor | CompressedWeights] = {}
        self.learned = any(tensor.requires_grad for tensor in self.weight_tensors())
        # Numbers where they are constants: a Python float costs a layer nothing, on any device.
        self.factor_numbers: list[float] | None = None
        if not self.learned and not being_traced():
            self.factor_numbers = factors.tolist()

    def weight_tensors(self) -> tuple[torch.Tensor, ...]:
        """All that a gradient can flow into, in the order of `weight_gradients`."""
        if self._compressed is None:
            return (self.dense_matrix(), self.factors)
        weights = self._compressed
        return (weights.own, weights.previous, weights.far, weights.oldest, self.factors)

    def dense_matrix(self) -> torch.Tensor:
        """All weights in full, attached to the graph."""
        if self._matrix is None:
            assert self._order is not None
            self._matrix = memory_matrix(self._order, self.n_layers)
        return self._matrix

    def forward_sum(self, state: torch.Tensor) -> HistorySum:
        """The sum of the weights over Y_0, Y_1, …, for states like this one."""
        if self._sums_all_pairs(state):
            return _exact_sum(self.forward_matrix(state), state)
        return _compressed_sum(self._cast_compressed(state), state, self.n_layers, transposed=False)

    def adjoint_sum(self, top: int, state: torch.Tensor) -> HistorySum:
        """The sum of the transposed weights over Q_top, Q_{top−1}, …"""
        if self._sums_all_pairs(state):
            skip = self.n_layers - top
            return _exact_sum(self.adjoint_matrix(state)[skip:, skip:], state)
        return _compressed_sum(self._cast_compressed(state), state, top, transposed=True)

    def _sums_all_pairs(self, state: torch.Tensor) -> bool:
        if self._compressed is None:
            return True
        small = state.is_cpu and not compiled.applies(state, self.n_layers)
        return small and not self.learned and self.n_layers <= _EXACT_LAYERS_IF_SMALL

    def forward_matrix(self, like: torch.Tensor) -> torch.Tensor:
        """`dense_matrix()` as numbers only, in the dtype and on the device of a state; made once."""
        return self._cast("forward", self.dense_matrix(), like)

    def adjoint_matrix(self, like: torch.Tensor) -> torch.Tensor:
        """`transposed_matrix()` in the same way."""
        return self._cast("adjoint", self.transposed_matrix(), like)

    def transposed_matrix(self) -> torch.Tensor:
        """Row n, column k is H_{N−k, N−n}: lower triangular again. Its lower right part is that of fewer layers."""
        return self.dense_matrix().T.flip(0, 1)

    def weight_gradients(self, states: torch.Tensor, adjoints: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gradients for `weight_tensors()` less the last, from Y_0 … Y_{N−1} and Q_1 … Q_N, flat, one a row."""
        if self._compressed is None:
            return ((adjoints @ states.T).tril().to(torch.float64),)
        return compressed_gradients(self._cast_compressed(states), states, adjoints)

    def _cast(self, key: object, tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        key = (key, like.dtype, like.device)
        if key not in self._casts:
            with torch.inference_mode(False):
                self._casts[key] = tensor.detach().to(like).contiguous()
        cast = self._casts[key]
        assert isinstance(cast, torch.Tensor)
        return cast

    def _cast_compressed(self, like: torch.Tensor) -> CompressedWeights:
        key = (like.dtype, like.device)
        if key not in self._casts:
            assert self._compressed is not None
            with torch.inference_mode(False):
                self._casts[key] = self._compressed.detached(like)
        cast = self._casts[key]
        assert isinstance(cast, CompressedWeights)
        return cast


def _exact_sum(matrix: torch.Tensor, state: torch.Tensor) -> HistorySum:
    return CompiledExactSum(matrix, state) if compiled.applies(state, len(matrix)) else ExactSum(matrix, state)


def _compressed_sum(weights: CompressedWeights, state: torch.Tensor, n_rows: int, *, transposed: bool) -> HistorySum:
    kind = CompiledCompressedSum if compiled.applies(state, n_rows) else CompressedSum
    return kind(weights, state, n_rows, transposed=transposed)


def default_tolerance(dtype: torch.dtype) -> float:
    """1e-10 for float64, 1e-6 for anything coarser."""
    return 1e-10 if dtype == torch.float64 else 1e-6


def choose_history(history: str, n_layers: int, *, equal_steps: bool, on_cpu: bool = True) -> str:
    """What "auto" stands for: exponentials for deep networks with one order and equal steps."""
    if being_traced():
        return "exact"  # what is traced runs on plain operations, see `functional`
    if history != "auto":
        return history
    deep = n_layers > (_EXACT_LAYERS if on_cpu else _EXACT_LAYERS_ELSEWHERE)
    return "compressed" if equal_steps and deep else "exact"


def equal_steps_plan(
    order: torch.Tensor,
    step_size: torch.Tensor,
    n_layers: int,
    *,
    history: str,
    tolerance: float,
    on_cpu: bool = True,
) -> MemoryPlan:
    """A plan for one step size and one order, or an order for each layer."""
    factors = l1_step_factor(order, step_size).expand(n_layers)
    if history == "exact":
        return MemoryPlan(factors, matrix=_matrix(order, n_layers))
    weights = compressed_weights(order, n_layers, tolerance, block=BLOCK if on_cpu else DEVICE_BLOCK)
    return MemoryPlan(factors, compressed=weights, order=order)


def _matrix(order: torch.Tensor, n_layers: int) -> torch.Tensor:
    """All weights; where the order is learned, and so another one in each pass, in a quicker way."""
    changing = order.requires_grad and order.dim() == 0 and order.is_cpu and n_layers <= MAX_LAYERS
    if changing and not being_transformed():
        return memory_matrix_by_series(order, n_layers)
    return memory_matrix(order, n_layers)


def grid_plan(order: torch.Tensor, t: torch.Tensor) -> MemoryPlan:
    """A plan for any increasing times; always exact."""
    return MemoryPlan(l1_step_factor(order, t.diff()), matrix=memory_weights_on_grid(order, t))
