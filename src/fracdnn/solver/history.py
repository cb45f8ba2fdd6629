"""The history of a solve on a known grid, block by block: near nodes by their weights, far ones through modes.

A block is some tens of steps. What its rows remember of all nodes before it comes in with a few matrix products when
it begins; within it, rows are cut into short runs in the same way. So a step reads a few states, not all of them. All
in plain operations: derivatives of any kind and order are autograd's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.caputo.modes import kernel_modes
from fracdnn.solver.rules import Rule, advance
from fracdnn.tracing import being_traced

BLOCK = 64
RUN = 8
# Up to so many steps all nodes are near.
_ALL_NEAR = 256


@dataclass(eq=False)
class Carry:
    """What a block hands to the next: nodes m … n_0 of the window [G, M, d], and the far modes of each rule."""

    begin: int
    window: torch.Tensor
    far: tuple[torch.Tensor, ...]


class BlockWeights:
    """Weights of rows begin + 1 … end: `times` are those of the nodes from a window's first on, `known` up to begin."""

    def __init__(self, history: "History", times: torch.Tensor, known: int, dtype: torch.dtype) -> None:
        rules, modes = history.rules, history.modes
        equal = history.step is not None
        of_rules = [_near_by_lag(each, times, known) if equal else each.near(times[known:], times) for each in rules]
        near = torch.stack(of_rules, dim=2).to(dtype)
        self.before = near[..., :known].flatten(1, 2)  # [G, B · R, M]: of the nodes of a window before the block
        self.inside = near[..., known:].contiguous()  # [G, B, R, B]: of the block's nodes among themselves
        if modes is not None:
            distance = times[known:] - times[0]
            # [G, R, B, K + 1]: of modes at the window's first node, and [R, K + 1, M]: of a window's nodes for modes
            self.far = torch.stack([rule.far(modes, distance) for rule in rules], dim=1).to(dtype)
            self.absorbing = torch.stack([rule.absorb(modes, times[:known]) for rule in rules]).to(dtype)


class History:
    """Weights of rules on nodes t_0 = 0, …, t_N; `step` where these are equal steps of that length."""

    def __init__(
        self, rules: Sequence[Rule], nodes: torch.Tensor, step: torch.Tensor | None, *, exact: bool, tolerance: float
    ) -> None:
        self.rules, self.nodes, self.step = tuple(rules), nodes, step
        self.n_steps = len(nodes) - 1
        self.modes: Any = None
        if not exact and self.n_steps > _ALL_NEAR and not being_traced():
            starts, span = nodes.detach()[::BLOCK], float(nodes.detach()[-1])
            self.modes = kernel_modes(float(starts.diff().min()), span, tolerance).to(nodes.device)
        self._kept: dict[tuple[int, int], BlockWeights] = {}

    def blocks(self) -> list[tuple[int, int]]:
        """First and last node of each block; the first is the last of the block before."""
        return [(begin, min(begin + BLOCK, self.n_steps)) for begin in range(0, self.n_steps, BLOCK)]

    def prepare(self, dtype: torch.dtype) -> None:
        """Make the weights that blocks share, so that none of them is made inside of a segment computed again."""
        blocks = self.blocks()
        for begin, end in () if self.step is None else blocks[:3] + blocks[-1:]:
            self.weights(0 if self.modes is None else max(begin - BLOCK, 0), begin, end, dtype)

    def start(self, first: torch.Tensor) -> Carry:
        size = 0 if self.modes is None else len(self.modes.rates) + 1
        nothing = tuple(first.new_zeros(first.shape[0], size, first.shape[1]) for _ in self.rules if size)
        return Carry(0, first.unsqueeze(1), nothing)

    def weights(self, window: int, begin: int, end: int, dtype: torch.dtype) -> BlockWeights:
        """Of rows begin + 1 … end for nodes from a window's first on; of equal steps, once for all such blocks."""
        known = begin - window + 1
        if self.step is None:
            return BlockWeights(self, self.nodes[window : end + 1], known, dtype)
        if (known, end - begin) not in self._kept:
            times = self.step * torch.arange(end - window + 1, dtype=torch.float64, device=self.nodes.device)
            self._kept[known, end - begin] = BlockWeights(self, times, known, dtype)
        return self._kept[known, end - begin]

    def open(self, carry: Carry, begin: int, end: int, start: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """What a block's rows have from all nodes up to its start, and from `start` [B, G, d]: [G, B, R, d].

        And the weights of the block's nodes among themselves [G, B, R, B].
        """
        weights = self.weights(carry.begin, begin, end, carry.window.dtype)
        if start is None:
            sums = _product(weights.before, carry.window, end - begin)
        else:
            rows = start.transpose(0, 1).unsqueeze(2).expand(-1, -1, len(self.rules), -1).flatten(1, 2)
            sums = torch.baddbmm(rows, weights.before, carry.window).unflatten(1, (end - begin, -1))
        if self.modes is not None and carry.begin:
            far = weights.far
            sums = sums + torch.stack([torch.bmm(far[:, r], modes) for r, modes in enumerate(carry.far)], dim=2)
        return sums, weights.inside

    def between(self, carry: Carry, made: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Sums of the last rule at any times [T] up to the last node made; [G, T, d]."""
        window = torch.cat([carry.window, made], dim=1)
        nodes = self.nodes[carry.begin : carry.begin + window.shape[1]]
        total = torch.bmm(self.rules[-1].near(times, nodes).to(window.dtype), window)
        if self.modes is None or not carry.begin:
            return total
        return total + torch.bmm(self.rules[-1].far(self.modes, times - nodes[0]).to(window.dtype), carry.far[-1])

    def close(self, carry: Carry, end: int, made: torch.Tensor) -> Carry:
        """What the next block needs, after the entries made in the block that ends with a node."""
        begin = end - made.shape[1]
        if self.modes is None or begin == 0:
            return Carry(carry.begin, torch.cat([carry.window, made], dim=1), carry.far)
        # The window moves on to the block just made; the nodes before it become far.
        absorbing = self.weights(carry.begin, begin, end, made.dtype).absorbing
        duration = (
            self.nodes[begin] - self.nodes[carry.begin] if self.step is None else self.step * (begin - carry.begin)
        )
        far = tuple(
            advance(self.modes.rates, old, duration) + torch.matmul(absorb, carry.window)
            for old, absorb in zip(carry.far, absorbing, strict=True)
        )
        return Carry(begin, torch.cat([carry.window[:, -1:], made], dim=1), far)


class BlockSums:
    """Σ_k w_nk x_k over all earlier nodes, row by row, of rows so far [G, B, R, d] and weights inside [G, B, R, B]."""

    def __init__(self, older: torch.Tensor, inside: torch.Tensor) -> None:
        self._older, self._inside, self._run = older.split(RUN, dim=1), inside, -1
        self._made: list[torch.Tensor] = []
        self._rows: Sequence[torch.Tensor] = ()

    def row(self, n: int, entry: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return the R sums [G, d] of row n, counted from 0, given the entry [G, d] of row n − 1."""
        self._made += [entry] * bool(n)
        run, within = divmod(n, RUN)
        known = run * RUN
        if run != self._run:
            self._run, sums = run, self._older[run]
            if run:
                weights = self._inside[:, known : known + RUN, :, :known].flatten(1, 2)
                sums = sums + _product(weights, torch.stack(self._made, dim=1), sums.shape[1])
            self._rows = sums.unbind(1)
        if not within:
            return self._rows[0].unbind(1)
        newer = torch.stack(self._made[known:], dim=1)
        return (self._rows[within] + torch.bmm(self._inside[:, n, :, known:n], newer)).unbind(1)

    def close(self, entry: torch.Tensor) -> torch.Tensor:
        """Return all entries of the block, [G, B, d], after that of its last node."""
        return torch.stack([*self._made, entry], dim=1)


def _near_by_lag(rule: Rule, nodes: torch.Tensor, known: int) -> torch.Tensor:
    """[G, rows, M]: of all nodes of a window, in the rows after the known ones, for equal steps.

    The last row has the weights of all lags; only the window's first node differs.
    """
    count = len(nodes)
    by_lag = torch.nn.functional.pad(rule.near(nodes[-1:], nodes)[:, 0, 1:], (0, count))
    later = by_lag.unfold(-1, count - 1, 1)[:, : count - known].flip(1)
    first = rule.near(nodes[known:], nodes[:2])[..., :1]
    return torch.cat([first, later], dim=-1)


def _product(weights: torch.Tensor, nodes: torch.Tensor, rows: int) -> torch.Tensor:
    """[G, rows · R, M] by [G, M, d], as [G, rows, R, d]."""
    return torch.bmm(weights, nodes).reshape(len(nodes), rows, weights.shape[1] // rows, nodes.shape[-1])
