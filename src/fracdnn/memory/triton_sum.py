"""The compressed history sum for states on a GPU, by Triton kernels: what `compressed` computes, one kernel a row.

Blocks are of 8 rows, so that a thread has registers for all of them and the far states are read and written in one
pass. At some dozen exponentials that moves about eleven states per layer, as many as larger blocks do that need levels
of smaller ones inside, and takes a quarter of their memory. `fracdnn.kernels.triton_history` holds the kernels. States
of 16 bits stay what they are: only sums, far states and the rows under way are float32.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from fracdnn.kernels import loading
from fracdnn.memory.compressed import CompressedWeights
from fracdnn.memory.exact import BlockedSum, buffer, fresh_alias
from fracdnn.memory.sums import wide
from fracdnn.tracing import in_dispatch_mode

BLOCK, _HALF = 8, 4
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def can_take(state: torch.Tensor) -> bool:
    """Whether the kernels can take states like this one."""
    if type(state) not in (torch.Tensor, nn.Parameter) or state.layout is not torch.strided:
        return False
    return state.dtype in DTYPES and not in_dispatch_mode() and loading.triton_history(state.device) is not None


def on_device_of(tensor: torch.Tensor) -> AbstractContextManager[Any]:
    """Around a launch: Triton takes the current device."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(tensor.device)


@dataclass(frozen=True, eq=False)
class KernelWeights:
    """The weights as the kernels read them, for blocks of B rows and K exponentials.

    own     [B, B]       of the states of the same block
    opening [B, B]       the same in the first block of a forward sum, whose first state has weights of its own
    near    [B, B]       of the states of the block before, a line for each state
    far     [K, 2B + 1]  a line for each far state: its weights, what it takes in of a block, what is left of it
    oldest  [N]          of the first state
    """

    own: torch.Tensor
    opening: torch.Tensor
    near: torch.Tensor
    far: torch.Tensor
    oldest: torch.Tensor

    @staticmethod
    def of(weights: CompressedWeights) -> "KernelWeights":
        opening, known = weights.own.clone(), weights.oldest[: weights.block - 1]
        opening[1 : len(known) + 1, 0] = known
        far = torch.cat([weights.far.T, weights.absorb, weights.decay], dim=1)
        return KernelWeights(weights.own, opening, weights.previous.T.contiguous(), far, weights.oldest)


class TritonCompressedSum(BlockedSum):
    """Rows 1 … N with the far states as exponentials; see `fracdnn.memory.compressed` for the arithmetic.

    States lie in blocks of 8, in their own dtype. Beside them there are K far states and, for 16 bits, the rows of one
    block, all float32 (float64 for float64). Forward the first block stays, since the first state is in it.

    A state of 16 bits is rounded once, when it is stored, and later rows take it as it is there, which is what the next
    layer saw. With unit roundoff u that is u · max |x_k|, which a row, an average of states, passes on and does not
    enlarge: all roundings together come to N^γ / (Γ(1 + γ) Γ(2 − γ)) times that at most, and to N times in a residual
    network. Of tanh layers of width 64 in bfloat16, a thousand are off by 0.2 % at order 0.3, 0.4 % at 0.5 and 6 % at
    0.9; a residual network by 13 %. `WideSum`, which keeps what is rounded away at twice the memory and more, is off by
    0.2, 0.2 and 0.9 %. The gradient of a learned order is that of the rounded states, which are those that were summed.
    """

    block = BLOCK

    def __init__(self, weights: KernelWeights, state: torch.Tensor, n_rows: int, *, transposed: bool) -> None:
        super().__init__(state, n_rows, BLOCK)
        kernels: Any = loading.triton_history(state.device)
        self._weights, self._transposed = weights, transposed
        self._dtype, self._device = state.dtype, state.device
        self._like_sums = weights.own.new_empty(0)
        grid = (-(-self._size // kernels.TILE),)
        self._finish, self._start_half = kernels.finish[grid], kernels.start_half[grid]
        self._start_block = kernels.start_block[grid]
        self._options = {"TILE": kernels.TILE, "num_warps": kernels.WARPS}
        self._n_far = len(weights.far)
        self.states_of_a_position = self._n_far + 1 + BLOCK
        self._far: torch.Tensor | None = None  # not before there is one
        self._first = self._like
        coarse = self._dtype is not self._like_sums.dtype
        self._bases = buffer(self._like_sums, BLOCK, self._size) if coarse else None
        self._numbers: dict[float, torch.Tensor] = {}

    def position(self, n: int) -> tuple[torch.Tensor, ...]:
        if n == 1:
            return ()
        far = buffer(self._like_sums, self._n_far + 1, self._size)
        far[:-1] = 0 if self._far is None else self._far[: self._n_far]
        far[-1] = self._first
        before = self._states.to(far.dtype)
        if n == BLOCK:  # the first state counts through the far states
            before = before.clone()
            before[0] = 0
        return self._as_states(far), self._as_states(before)

    def resume(self, n: int, state: torch.Tensor, *position: torch.Tensor) -> None:
        if not position:
            self.first(state)
            return
        far, before = position
        self._open_block(n - BLOCK)
        self._as_states(self._states).copy_(before)
        self._first = buffer(self._like, 1, self._size)
        self._as_states(self._first).copy_(far[-1:])
        if n > BLOCK:
            self._as_states(self._far_states()[: self._n_far]).copy_(far[:-1])

    def first(self, state: torch.Tensor) -> torch.Tensor:
        self._open_block(0)
        return fresh_alias(self._slots[0]).copy_(state)

    def follow(self, n: int, state: torch.Tensor) -> torch.Tensor:
        return self.exchange(n, state, 1.0, self._dtype)[0]

    def exchange(
        self, n: int, state: torch.Tensor, scale: float | torch.Tensor, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if n == 0:
            self._open_block(0)
        if (n + 1) % BLOCK == 0 and n + 1 < self.n_rows:
            self._open_block(n + 1)
        latest = self._readable(state)
        row, scaled = (torch.empty_like(latest, dtype=wanted) for wanted in (self._dtype, dtype))
        self._write(n + 1, row, latest=latest, scaled=scaled, scale=scale)
        return row, scaled

    def advance(self, n: int, change: torch.Tensor, factor: float | torch.Tensor) -> torch.Tensor:
        state = self._place(n)
        self._write(n, state, change=self._readable(change), factor=factor)
        return state

    def _place(self, n: int) -> torch.Tensor:
        """Where x_n goes; the last one apart, so that it does not keep the buffers alive."""
        if n == self.n_rows:
            return self._new_state()
        if n % BLOCK == 0:
            self._open_block(n)
        return fresh_alias(self._slots[n % BLOCK])

    def _open_block(self, n: int) -> None:
        super()._open_block(n)
        if n == 0 and not self._transposed:
            self._first = self._states[:1]

    def _write(
        self,
        n: int,
        out: torch.Tensor,
        *,
        latest: torch.Tensor | None = None,
        change: torch.Tensor | None = None,
        factor: float | torch.Tensor = 1.0,
        scaled: torch.Tensor | None = None,
        scale: float | torch.Tensor = 1.0,
    ) -> None:
        """Row n into `out`: see `fracdnn.kernels.triton_history` for the others; what is not there is not read."""
        unused = self._weights.own
        flags = {"LATEST": latest is not None, "CHANGE": change is not None, "SCALED": scaled is not None}
        inputs = (unused if given is None else given for given in (latest, change))
        kernel, states, tables, place = self._work(n)
        pointers = (out, unused if scaled is None else scaled, *states, *inputs, *tables)
        numbers = (self._number(factor), self._number(scale), self._size)
        with on_device_of(self._like):
            kernel(*pointers, *numbers, *place, **flags, **self._options)

    def _work(self, n: int) -> tuple[Any, tuple[torch.Tensor, ...], tuple[torch.Tensor, ...], tuple[int, ...]]:
        """The kernel that makes row n, and its arguments: base and states, weights, and where to read them."""
        weights, within, transposed, has_far = self._weights, n % BLOCK, self._transposed, int(self._far is not None)
        tables: tuple[torch.Tensor, ...]
        place: tuple[int, ...]
        if transposed and n == self.n_rows:  # Σ_k a_{N−1−k} x_k: the running sum, and what is not in it yet
            base, count = weights.oldest if self._far is None else self._far, (n - 1) % BLOCK + 1
            place = (self._n_far, has_far, 0, count - 1, -1, count)
            return self._finish, (base, self._states), (weights.oldest,), place
        # The rows of a block under way are where its states will be, unless these are coarser.
        base, left = self._states if self._bases is None else self._bases, self.n_rows + 1 - n
        if within == 0:
            states = (base, self._states if n == self.n_rows else self._before)  # no block for the last row
            tables = (self._first, self._far_states(), weights.near, weights.far, weights.oldest)
            # The weights of the first state, or, going down, of the block before in the last row.
            oldest = self.n_rows - 1 - (n - BLOCK) if transposed else n - 1
            has_first = not transposed and n == BLOCK
            place = (self._n_far, has_far, int(has_first), oldest, min(BLOCK, left), transposed)
            return self._start_block, states, tables, place
        is_first = n < BLOCK
        tables = (weights.opening if is_first and not transposed else weights.own,)
        if within == _HALF:
            return self._start_half, (base, self._states), tables, (int(not is_first), min(_HALF, left))
        begin = _HALF if within > _HALF else 0
        place = (within, int(begin > 0 or not is_first), begin, within * BLOCK + begin, 1, within - begin)
        return self._finish, (base, self._states), tables, place

    def _far_states(self) -> torch.Tensor:
        """One more than there are exponentials where the sum is transposed: the running sum of its last row."""
        if self._far is None:
            self._far = buffer(self._like_sums, self._n_far + self._transposed, self._size)
        return self._far

    def _number(self, value: float | torch.Tensor) -> torch.Tensor:
        """As the kernels read it."""
        if isinstance(value, torch.Tensor):
            return value
        if value not in self._numbers:
            self._numbers[value] = self._like_sums.new_full((1,), value)
        return self._numbers[value]

    def _new_state(self) -> torch.Tensor:
        if self._format is torch.contiguous_format:
            return buffer(self._like, *self._shape)
        return self._as_states(buffer(self._like, 1, self._size))[0]

    def _readable(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same numbers where the kernels can read them; in their own dtype."""
        if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.layout is not torch.strided:
            tensor = torch.zeros(self._shape, dtype=wide(self._dtype), device=self._device) + tensor
        if tensor.device == self._device and tensor.is_contiguous(memory_format=self._format) and not tensor.is_neg():
            return tensor
        return tensor.detach().to(self._device).contiguous(memory_format=self._format).resolve_neg()
