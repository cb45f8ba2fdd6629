"""The history sum for any depth: near states directly, far states through a sum of exponentials.

Rows are cut into blocks of B. The states of the own and of the previous block are near: they are summed as in
`exact`. All older ones are kept as K far states Z_i = Σ_k e^(−s_i (distance of k)) x_k, advanced once per block, and
enter the B rows of a block by one matrix product. So a row costs O(B + K) states' worth of work whatever its index,
and only two blocks and K far states are alive, unless autograd holds on to the states themselves.

Where a block begins, the far states and the block before are all that later rows need: `position`, [K + 1, …] and
[B, …]. The first state is the last of the far ones, and 0 where it would stand in its block; row 1 needs no other.

The weights are those of equal steps, h_m by lag. In a forward sum the first state has weights of its own, a_{n−1}; it
rides along as one more far state. In the transposed sum it is an ordinary one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn.functional import pad

from fracdnn.caputo import compress_differences, l1_differences, l1_weights
from fracdnn.memory.exact import BufferedSum, buffer, fresh_alias
from fracdnn.memory.sums import as_rows

Rows = Sequence[torch.Tensor]


@dataclass(frozen=True, eq=False)
class CompressedWeights:
    """The weights as matrices for blocks of B rows and K exponentials; float64 and differentiable in the order.

    own      [B, B]     of the states of the same block
    previous [B, B]     of the states of the block before
    far      [B, K]     of the far states
    oldest   [N]        of the first state, a_0 … a_{N−1}
    absorb   [K, B]     what a block adds to the far states
    decay    [K, 1]     what is left of the far states after a block
    """

    own: torch.Tensor
    previous: torch.Tensor
    far: torch.Tensor
    oldest: torch.Tensor
    absorb: torch.Tensor
    decay: torch.Tensor

    @property
    def block(self) -> int:
        """B."""
        return len(self.own)

    @cached_property
    def own_rows(self) -> list[torch.Tensor]:
        """Row n of `own` as far as it is not 0, [1, n]."""
        return [row[:, :n] for n, row in enumerate(self.own.split(1))]

    def detached(self, dtype: torch.dtype, device: torch.device) -> "CompressedWeights":
        """The same as constants, in another dtype and on another device."""
        tensors = (getattr(self, name).detach() for name in self.__dataclass_fields__)
        return CompressedWeights(*(tensor.to(device, dtype).contiguous() for tensor in tensors))


def compressed_weights(order: torch.Tensor, n_layers: int, compress_tol: float, *, block: int) -> CompressedWeights:
    """The matrices for an order, far weights to the given relative compress_tol."""
    terms = compress_differences(order, min_lag=block + 1, max_lag=max(n_layers, block + 1), compress_tol=compress_tol)
    index = torch.arange(block, device=order.device)
    differences = l1_differences(order, 2 * block - 1)
    lag = index.unsqueeze(-1) - index
    offset = index.to(torch.float64)
    return CompressedWeights(
        own=differences[(lag - 1).clamp(min=0)].tril(-1),
        previous=differences[block + lag - 1],
        far=terms.weights * torch.exp(-terms.rates * offset.unsqueeze(-1)),
        oldest=l1_weights(order, n_layers),
        absorb=torch.exp(-terms.rates.unsqueeze(-1) * (block - 1 - offset)),
        decay=torch.exp(-terms.rates * block).unsqueeze(-1),
    )


def compressed_gradients(
    weights: CompressedWeights, states: Rows, adjoints: Rows, begin: int, position: Rows
) -> tuple[torch.Tensor, ...]:
    """Gradients for own, previous, far and oldest weights from Y_{begin−1}, … and Q_begin, …

    Correlations of adjoints with near, far and first states, block by block while these are in cache, in plain
    operations. Rows that begin later than with the first need the position there.
    """
    size, nothing = weights.block, torch.zeros_like(states[0])
    lead: list[torch.Tensor] = []
    if position:
        far_states, before = (part.flatten(1) for part in position)
        far_states, first = far_states[:-1].clone(), far_states[-1]
    else:  # there is no row 0, and the first state counts apart
        lead, (first,) = [nothing], as_rows(states[:1])
        far_states, before = first.new_zeros(len(weights.decay), len(first)), first.new_zeros(size, len(first))
    own, previous, far = map(torch.zeros_like, (weights.own, weights.previous, weights.far))
    oldest, missing = [], [nothing] * size
    adjoints, states = [*lead, *adjoints], [*lead, *states[1:]]
    for start in range(0, len(adjoints), size):
        parts = (sequence[start : start + size] for sequence in (adjoints, states))
        ahead, behind = (as_rows([*part, *missing[len(part) :]]) for part in parts)
        own, previous, far = own + ahead @ behind.T, previous + ahead @ before.T, far + ahead @ far_states.T
        oldest.append(ahead @ first)
        if torch.is_grad_enabled():
            far_states = torch.addmm(weights.decay * far_states, weights.absorb, before)
        else:
            far_states.mul_(weights.decay).addmm_(weights.absorb, before)
        before = behind
    of_rows, after = slice(len(lead), len(adjoints)), len(weights.oldest) + 1 - begin - len(adjoints) + len(lead)
    return own.tril(-1), previous, far, pad(torch.cat(oldest)[of_rows], (begin - 1, after))


class CompressedSum(BufferedSum):
    """Rows 1 … N in O(N) work and, by itself, O(1) states."""

    def __init__(self, weights: CompressedWeights, state: torch.Tensor, n_rows: int, *, transposed: bool) -> None:
        super().__init__(state, n_rows, weights.block)
        self._weights, self._transposed, self.block = weights, transposed, weights.block
        # One more row of far state: the first state of a forward sum, the running sum of a transposed one.
        self._far = buffer(state, len(weights.decay) + 1, self._size).zero_()
        self.states_of_a_position = len(self._far) + self.block

    def position(self, n: int) -> tuple[torch.Tensor, ...]:
        return () if n == 1 else (self._as_states(self._far.clone()), self._as_states(self._states))

    def resume(self, n: int, state: torch.Tensor, *position: torch.Tensor) -> None:
        if not position:
            self.first(state)
            return
        self._open_block(n - self.block)
        for mine, theirs in zip((self._far, self._states), position, strict=True):
            self._as_states(mine).copy_(theirs)

    def first(self, state: torch.Tensor) -> torch.Tensor:
        self._open_block(0)
        if self._transposed:
            return fresh_alias(self._slots[0]).copy_(state)
        first = fresh_alias(self._as_states(self._far[-1:])[0]).copy_(state)
        self._states[0].zero_()  # its weight is not h_m: it counts through the far states
        self._start_rows(0)
        return first

    def _row(self, n: int) -> torch.Tensor:
        if self._transposed and n == self.n_rows:  # Σ_k a_{N−1−k} x_k, gathered block by block
            self._add_to_running_sum(n, self._states[: (n - 1) % self.block + 1])
            return self._as_states(self._far[-1:])[0]
        within = n % self.block
        if within == 0:
            self._open_block(n)
            if self._transposed:
                self._add_to_running_sum(n, self._before)
            self._start_rows(n)
            self._states.addmm_(self._weights.previous[: len(self._states)], self._before)
            self._far[:-1].mul_(self._weights.decay).addmm_(self._weights.absorb, self._before)
        else:
            row, own, known = self._rows[within], self._weights.own_rows[within], self._states[:within]
            if self._transposed and n == within:  # nothing is older: the row has not been written
                torch.mm(own, known, out=row)
            else:
                row.addmm_(own, known)
        return self._slots[within].data  # a fresh alias, without a call

    def _start_rows(self, n: int) -> None:
        """What the far states bring to the rows of a new block."""
        block, weights = self._states, self._weights
        rows, begin = len(block), int(n == 0)
        if self._transposed:
            torch.mm(weights.far[:rows], self._far[:-1], out=block)
        else:
            oldest = weights.oldest[n + begin - 1 : n + rows - 1].unsqueeze(-1)
            torch.mm(torch.cat([weights.far[begin:rows], oldest], dim=1), self._far, out=block[begin:])

    def _add_to_running_sum(self, n: int, block: torch.Tensor) -> None:
        """What the states before x_n in a block, the last one of them x_{n−1}, bring to the last row."""
        begin = self.n_rows - n
        weights = self._weights.oldest[begin : begin + len(block)].flip(0)
        self._far[-1:].addmm_(weights.unsqueeze(0), block)
