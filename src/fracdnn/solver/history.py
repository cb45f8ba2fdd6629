"""The history of a solve on a known grid, block by block: near nodes by their weights, far ones through modes.

A block is some tens of steps. What its rows remember of all nodes before it comes in with a few matrix products when
it begins; within it, rows are cut into short runs in the same way. So a step reads a few states, not all of them. All
in plain operations: derivatives of any kind and order are autograd's. `fracdnn.solver.tape` does what happens within a
block with fewer nodes in the graph, and answers to `History.run`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.caputo.modes import Modes, kernel_modes
from fracdnn.solver.rules import Rule, advance
from fracdnn.tracing import being_traced

BLOCK = 64
RUN = 8
# Up to so many steps all nodes are near.
_ALL_NEAR = 256

Advance = Callable[[int, Sequence[torch.Tensor], Sequence[torch.Tensor]], torch.Tensor]


@dataclass
class Carry:
    """What a block hands to the next: nodes m … n_0 of the window [G, M, d], and the far modes of each rule."""

    begin: int
    window: torch.Tensor
    far: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class _Weights:
    """Near weights of a block, cut up as its steps need them."""

    runs: list[torch.Tensor]  # [G, rows · R, first]: of the block's nodes before a run of rows
    recent: list[torch.Tensor]  # [G, R, n − first]: of the nodes in its run before a row
    newest: list[tuple[torch.Tensor, ...]]  # R times [G, 1]: of a row's own node

    @classmethod
    def cut(cls, inside: torch.Tensor) -> "_Weights":
        """Of the weights [G, B, R, B] of a block's nodes among themselves."""
        rows = inside.unbind(1)
        return cls(
            [inside[:, first : first + RUN, :, :first].flatten(1, 2) for first in range(0, len(rows), RUN)],
            [row[..., n - n % RUN : n] for n, row in enumerate(rows)],
            [row[..., n].unsqueeze(-1).unbind(1) for n, row in enumerate(rows)],
        )


class History:
    """Weights of rules on nodes t_0 = 0, …, t_N; `step` where these are equal steps of that length."""

    def __init__(
        self, rules: Sequence[Rule], nodes: torch.Tensor, step: torch.Tensor | None, *, exact: bool, tolerance: float
    ) -> None:
        self.rules, self.nodes, self._step = tuple(rules), nodes, step
        self.n_steps = len(nodes) - 1
        self.modes = None if exact else _modes_for(nodes.detach(), tolerance)
        self._kept: dict[tuple[str, int, int], Any] = {}

    def blocks(self) -> list[tuple[int, int]]:
        """First and last node of each block; the first is the last of the block before."""
        return [(begin, min(begin + BLOCK, self.n_steps)) for begin in range(0, self.n_steps, BLOCK)]

    def window_begin(self, begin: int) -> int:
        """The first node of the window in the block that begins with a node."""
        return 0 if self.modes is None else max(begin - BLOCK, 0)

    def prepare(self, dtype: torch.dtype) -> None:
        """Make the weights that blocks share, so that none of them is made inside of a segment computed again."""
        if self._step is None:
            return
        blocks = self.blocks()
        for begin, end in blocks[:3] + blocks[-1:]:
            window = self.window_begin(begin)
            self._cut(window, begin, end, self._near(window, begin, end, dtype)[1])
            self._far_weights(window, begin, end)
            self._absorbing(window, begin)

    def start(self, first: torch.Tensor) -> Carry:
        """With node 0 alone."""
        nothing = (
            ()
            if self.modes is None
            else tuple(first.new_zeros(first.shape[0], len(self.modes.rates) + 1, first.shape[1]) for _ in self.rules)
        )
        return Carry(0, first.unsqueeze(1), nothing)

    def run(self, carry: Carry, begin: int, end: int, step: Advance, start: torch.Tensor | None = None) -> torch.Tensor:
        """Nodes begin + 1 … end [G, B, d]: `step(n, sums, newest)` makes n of R sums [G, d] and newest weights [G, 1].

        Sum r is that of rule r over the nodes before n, newest weight r its weight of node n itself. Sums count from
        `start` [B, G, d].
        """
        older, inside = self.open(carry, begin, end, start)
        weights = self._cut(carry.begin, begin, end, inside)
        made: list[torch.Tensor] = []
        for number, sums in enumerate(older.split(RUN, dim=1)):
            first, count = number * RUN, sums.shape[1]
            if first:
                sums = sums + _product(weights.runs[number], torch.stack(made, dim=1), count)
            for n, row in enumerate(sums.unbind(1), first):
                if n > first:
                    row = row + torch.bmm(weights.recent[n], torch.stack(made[first:], dim=1))
                made.append(step(begin + n + 1, row.unbind(1), weights.newest[n]))
        return torch.stack(made, dim=1)

    def open(self, carry: Carry, begin: int, end: int, start: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """What a block begins with.

        [G, B, R, d]: what its rows have from all nodes up to its start, and from `start`; and [G, B, R, B]: the weights
        of its nodes among themselves.
        """
        weights, inside = self._near(carry.begin, begin, end, carry.window.dtype)
        if start is None:
            sums = _product(weights, carry.window, end - begin)
        else:
            rows = start.transpose(0, 1).unsqueeze(2).expand(-1, -1, len(self.rules), -1).flatten(1, 2)
            sums = torch.baddbmm(rows, weights, carry.window).unflatten(1, (end - begin, -1))
        far = self._far_weights(carry.begin, begin, end)
        if far is not None:
            far = far.to(sums.dtype)
            sums = sums + torch.stack([torch.bmm(far[:, r], modes) for r, modes in enumerate(carry.far)], dim=2)
        return sums, inside

    def between(self, carry: Carry, made: torch.Tensor, rule: int, times: torch.Tensor) -> torch.Tensor:
        """Sums of one rule at any times [T] up to the last node made; [G, T, d]."""
        window = torch.cat([carry.window, made], dim=1)
        nodes = self.nodes[carry.begin : carry.begin + window.shape[1]]
        total = torch.bmm(self.rules[rule].near(times, nodes).to(window.dtype), window)
        if self.modes is None or not carry.begin:
            return total
        return total + torch.bmm(self.rules[rule].far(self.modes, times - nodes[0]).to(window.dtype), carry.far[rule])

    def close(self, carry: Carry, begin: int, made: torch.Tensor) -> Carry:
        """What the next block needs."""
        if self.modes is None or begin == 0:
            return Carry(carry.begin, torch.cat([carry.window, made], dim=1), carry.far)
        # The window moves on to the block just made; the nodes before it become far.
        times = self._times(carry.begin, begin)
        far = tuple(
            advance(self.modes.rates, old, times[-1] - times[0]) + torch.matmul(absorb.to(old.dtype), carry.window)
            for old, absorb in zip(carry.far, self._absorbing(carry.begin, begin), strict=True)
        )
        return Carry(begin, torch.cat([carry.window[:, -1:], made], dim=1), far)

    def _near(self, window: int, begin: int, end: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Of nodes window … end, in the rows after begin: [G, B · R, M] before the block, [G, B, R, B] inside."""

        def made() -> tuple[torch.Tensor, torch.Tensor]:
            nodes, known = self._times(window, end), begin - window + 1
            weights = _near if self._step is None else _near_by_lag
            near = torch.stack([weights(rule, nodes, known) for rule in self.rules], dim=2).to(dtype)
            return near[..., :known].flatten(1, 2), near[..., known:].contiguous()

        return self._cached("near", begin - window, end - begin, made)

    def _cut(self, window: int, begin: int, end: int, inside: torch.Tensor) -> _Weights:
        return self._cached("cut", begin - window, end - begin, lambda: _Weights.cut(inside))

    def _far_weights(self, window: int, begin: int, end: int) -> torch.Tensor | None:
        """[G, R, rows, K + 1]."""
        if self.modes is None or not window:
            return None
        modes = self.modes

        def made() -> torch.Tensor:
            times = self._times(window, end)
            distance = times[begin - window + 1 :] - times[0]
            return torch.stack([rule.far(modes, distance) for rule in self.rules], dim=1)

        return self._cached("far", begin - window, end - begin, made)

    def _absorbing(self, window: int, begin: int) -> torch.Tensor:
        """[R, K + 1, M] for nodes window … begin."""
        if self.modes is None or begin == window:
            return self.nodes.new_zeros(0)
        modes = self.modes

        def made() -> torch.Tensor:
            return torch.stack([rule.absorb(modes, self._times(window, begin)) for rule in self.rules])

        return self._cached("absorb", begin - window, 0, made)

    def _times(self, first: int, last: int) -> torch.Tensor:
        """Of nodes first … last, for equal steps the same for all windows of a length."""
        if self._step is None:
            return self.nodes[first : last + 1]
        return self._step * torch.arange(last - first + 1, dtype=torch.float64, device=self.nodes.device)

    def _cached(self, kind: str, first: int, second: int, make: Callable[[], Any]) -> Any:
        if self._step is None:
            return make()
        key = (kind, first, second)
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]


def _near(rule: Rule, nodes: torch.Tensor, known: int) -> torch.Tensor:
    """[G, rows, M]: of all nodes of a window, in the rows after the known ones."""
    return rule.near(nodes[known:], nodes)


def _near_by_lag(rule: Rule, nodes: torch.Tensor, known: int) -> torch.Tensor:
    """The same for equal steps: the last row has the weights of all lags; only the window's first node differs."""
    count = len(nodes)
    by_lag = torch.nn.functional.pad(rule.near(nodes[-1:], nodes)[:, 0, 1:], (0, count))
    later = by_lag.unfold(-1, count - 1, 1)[:, : count - known].flip(1)
    first = rule.near(nodes[known:], nodes[:2])[..., :1]
    return torch.cat([first, later], dim=-1)


def _product(weights: torch.Tensor, nodes: torch.Tensor, rows: int) -> torch.Tensor:
    """[G, rows · R, M] by [G, M, d], as [G, rows, R, d]."""
    return torch.bmm(weights, nodes).unflatten(1, (rows, -1))


def _modes_for(nodes: torch.Tensor, tolerance: float) -> Modes | None:
    n_steps = len(nodes) - 1
    if n_steps <= _ALL_NEAR or being_traced():
        return None
    starts = nodes[::BLOCK]
    shortest = float((starts[1:] - starts[:-1]).min())
    return kernel_modes(shortest, float(nodes[-1] - nodes[0]), tolerance).to(nodes.device)
