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
from fracdnn.memory.sums import memory_format, rows_as_states


@dataclass(frozen=True)
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

    def detached(self, like: torch.Tensor) -> "CompressedWeights":
        """The same as constants, in another dtype and on another device."""
        tensors = (getattr(self, name).detach() for name in self.__dataclass_fields__)
        return CompressedWeights(*(tensor.to(like).contiguous() for tensor in tensors))


def compressed_weights(order: torch.Tensor, n_layers: int, tolerance: float, *, block: int) -> CompressedWeights:
    """The matrices for an order, far weights to the given relative tolerance."""
    terms = compress_differences(order, min_lag=block + 1, max_lag=max(n_layers, block + 1), tolerance=tolerance)
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
    weights: CompressedWeights,
    states: torch.Tensor,
    adjoints: torch.Tensor,
    begin: int = 1,
    position: Sequence[torch.Tensor] = (),
) -> tuple[torch.Tensor, ...]:
    """Gradients for own, previous, far and oldest weights from Y_{begin−1}, … and Q_begin, …, flat, one a row.

    Correlations of adjoints with near, far and first states, block by block, in plain operations. Rows that begin later
    than with the first need the position there.
    """
    nothing = torch.zeros_like(states[:1])
    if position:
        far_states, before = (part.flatten(1) for part in position)
        far_states, first, lead = far_states[:-1], far_states[-1:], nothing[:0]
    else:
        far_states, before = states.new_zeros(len(weights.decay), states.shape[1]), nothing.expand(weights.block, -1)
        first, lead = states[:1], nothing  # there is no row 0
    n_blocks = -(-(len(lead) + len(states)) // weights.block)
    padding = nothing.expand(n_blocks * weights.block - len(lead) - len(states), -1)
    near = torch.cat([lead, states[1:], nothing, padding]).view(n_blocks, weights.block, -1)
    later = torch.cat([lead, adjoints, padding]).view(n_blocks, weights.block, -1)
    own = (later @ near.transpose(1, 2)).sum(0).tril(-1)
    previous = (later[1:] @ near[:-1].transpose(1, 2)).sum(0) + later[0] @ before.T
    far = torch.zeros_like(weights.far)
    for block in range(n_blocks):
        far = far + later[block] @ far_states.T
        far_states = weights.decay * far_states + weights.absorb @ (near[block - 1] if block else before)
    after = len(weights.oldest) + 1 - begin - len(adjoints)
    oldest = pad((adjoints @ first.T).squeeze(1), (begin - 1, after))
    return tuple(gradient.to(torch.float64) for gradient in (own, previous, far, oldest))


class CompressedSum(BufferedSum):
    """Rows 1 … N in O(N) work and, by itself, O(1) states."""

    def __init__(self, weights: CompressedWeights, state: torch.Tensor, n_rows: int, *, transposed: bool) -> None:
        self._weights = weights
        self.n_rows = n_rows
        self._transposed = transposed
        self._shape, self._format = state.shape, memory_format(state)
        n_terms = len(weights.decay)
        # One more row of far state: the first state of a forward sum, the running sum of a transposed one.
        self._far = buffer(state, n_terms + 1, state.numel()).zero_()
        self._blocks: list[torch.Tensor] = []
        self._slots: tuple[torch.Tensor, ...] = ()
        self._rows: tuple[torch.Tensor, ...] = ()  # the same, each as a matrix of one row

    @property
    def block(self) -> int:
        return self._weights.block

    @property
    def states_of_a_position(self) -> int:
        return len(self._far) + self.block

    def position(self, n: int) -> tuple[torch.Tensor, ...]:
        if n == 1:
            return ()
        return self._states_of(self._far.clone()), self._states_of(self._blocks[-1])

    def resume(self, n: int, far: torch.Tensor, before: torch.Tensor) -> None:
        """Go on with row n from a position."""
        self._states_of(self._far).copy_(far)
        self._open_block(n - self.block)
        self._states_of(self._blocks[-1]).copy_(before)

    def first(self, state: torch.Tensor) -> torch.Tensor:
        self._open_block(0)
        if self._transposed:
            return fresh_alias(self._slots[0]).copy_(state)
        first = fresh_alias(self._states_of(self._far[-1:])[0])
        first.copy_(state)
        self._blocks[-1][0].zero_()  # its weight is not h_m: it counts through the far states
        self._start_rows(0)
        return first

    def append(self, n: int, state: torch.Tensor) -> None:
        self._slots[n % self._weights.block].copy_(state)

    def _slot(self, n: int) -> torch.Tensor:
        if n == self.n_rows and self._transposed:
            return self._last_transposed_row(n)
        within = n % self._weights.block
        if within == 0:
            self._open_block(n)
            self._bring_in_older(n)
        if within:
            row, own = self._rows[within], self._weights.own_rows[within]
            known = self._blocks[-1].narrow(0, 0, within)
            if self._transposed and n < self._weights.block:  # nothing is older: the row has not been written
                torch.mm(own, known, out=row)
            else:
                row.addmm_(own, known)
        return fresh_alias(self._slots[within])

    def _states_of(self, rows: torch.Tensor) -> torch.Tensor:
        return rows_as_states(rows, self._shape, self._format)

    def _open_block(self, n: int) -> None:
        rows = min(self._weights.block, self.n_rows + 1 - n)
        block = buffer(self._far, rows, self._far.shape[1])
        self._blocks.append(block)
        if len(self._blocks) > 2:
            self._blocks.pop(0)
        self._slots, self._rows = self._states_of(block).unbind(0), block.split(1)

    def _bring_in_older(self, n: int) -> None:
        """Start the rows of a new block with all that is older than it."""
        weights = self._weights
        before, block = self._blocks
        if self._transposed:
            self._add_to_running_sum(n - weights.block, before)
        self._start_rows(n)
        block.addmm_(weights.previous[: len(block)], before)
        self._far[:-1].mul_(weights.decay).addmm_(weights.absorb, before)

    def _start_rows(self, n: int) -> None:
        block = self._blocks[-1]
        rows = len(block)
        if self._transposed:
            torch.mm(self._weights.far[:rows], self._far[:-1], out=block)
            return
        begin = 1 if n == 0 else 0
        oldest = self._weights.oldest[n + begin - 1 : n + rows - 1].unsqueeze(-1)
        torch.mm(torch.cat([self._weights.far[begin:rows], oldest], dim=1), self._far, out=block[begin:])

    def _add_to_running_sum(self, n: int, block: torch.Tensor) -> None:
        """The transposed sum's last row is Σ_k a_{N−1−k} x_k: gathered block by block."""
        count = len(block)
        weights = self._weights.oldest[self.n_rows - n - count : self.n_rows - n].flip(0)
        self._far[-1:].addmm_(weights.unsqueeze(0), block)

    def _last_transposed_row(self, n: int) -> torch.Tensor:
        start = (n - 1) - (n - 1) % self._weights.block
        self._add_to_running_sum(start, self._blocks[-1][: n - start])
        return self._states_of(self._far[-1:])[0]
