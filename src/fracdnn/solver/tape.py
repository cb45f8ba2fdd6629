"""The sums within a block of steps as one node of the graph a step, whose backward pass is the exact adjoint.

Row n of a block holds, for each rule r, the sum over what is older and over the block's own slopes x_k before it:

    s_rn = older_rn + Σ_{k<n} w_rnk x_k.

What a method makes of the sums, func among it, is ordinary autograd; only the sums are not. Instead of edges to all
earlier slopes, the nodes of a block share its `TapedSums`. Going back, with q_rn for what s_rn received, x_k receives
Σ_{n>k, r} w_rnk q_rn: sums of the same kind, in reverse, with the transposed weights. The node of row k + 1 hands them
over, which has x_k as an input. It has the state of node k as an input, too, with no gradient for it: so each node runs
after all later ones, whatever func depends on.

`fracdnn.solver.history` brings in what is older, in plain operations. Second derivatives, and many cotangents at once,
go back in plain operations as well: by the definition, `BlockSums`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory.exact import fresh_alias
from fracdnn.solver.history import RUN, BlockSums
from fracdnn.tracing import backward_is_compiled, backward_task, is_batch_of_cotangents, when_backward_ends


class BufferedSums:
    """What `BlockSums` is, with few passes over memory: in buffers, the first of them `older`; without derivatives.

    Entries and sums have a shape; with several groups these are packed.
    """

    def __init__(self, older: torch.Tensor, inside: torch.Tensor, shape: torch.Size) -> None:
        groups, self._count, self._rules, size = older.shape
        self._entries = inside.shape[-1] // self._count
        self._weights, self._sums, self._run = inside.flatten(1, 2), older, 0
        self._rows, self._results = older.unbind(1), _slots(older.flatten(1, 2), shape)
        # Entries that are not there yet are zeros, so that all products within a run have its size.
        width, padding = RUN * self._entries, -self._count % RUN
        self._made = older.new_zeros(groups, (self._count + padding) * self._entries, size)
        self._slots, self._runs = _slots(self._made, shape), self._made.split(width, dim=1)
        by_run = torch.nn.functional.pad(inside, (0, padding * self._entries)).unflatten(-1, (-1, width))
        own = [by_run[:, first : first + RUN, :, first // RUN] for first in range(0, self._count, RUN)]
        self._recent = torch.cat(own, dim=1).unbind(1)  # [G, R, RUN · M] of each row, for the entries of its run

    def row(self, n: int, entries: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        for number, entry in enumerate(entries if n else (), (n - 1) * self._entries):
            self._slots[number].copy_(entry)
        run, within = divmod(n, RUN)
        if run != self._run:
            self._begin(run)
        if within and n < self._count:
            self._rows[n].baddbmm_(self._recent[n], self._runs[run])
        return self._results[n * self._rules : (n + 1) * self._rules]

    def close(self, entry: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        self.row(self._count, (entry,))
        return self.made()

    def made(self) -> torch.Tensor:
        return self._made[:, : self._count * self._entries]

    def _begin(self, run: int) -> None:
        """Bring all entries before a run into its rows at once."""
        self._run, begin, end = run, run * RUN, min((run + 1) * RUN, self._count)
        if begin < end:
            known = begin * self._entries
            weights = self._weights[:, begin * self._rules : end * self._rules, :known]
            self._sums[:, begin:end].flatten(1, 2).baddbmm_(weights, self._made[:, :known])


def _slots(rows: torch.Tensor, shape: torch.Size) -> tuple[torch.Tensor, ...]:
    """Rows [G, K, d] one by one, as states of a shape; with several groups these are packed."""
    return rows.view(rows.shape[1], *shape).unbind(0) if len(rows) == 1 else rows.unbind(1)


class TapedSums:
    """The sums of one block from `History.open`, older [G, B, R, d] and weights inside [G, B, R, B].

    Nodes have this shape. The rest is what nodes of the graph share: the forward pass while it lasts, and the backward
    passes under way, each with the slopes that the gradients of weights need.
    """

    def __init__(self, older: torch.Tensor, inside: torch.Tensor, shape: torch.Size) -> None:
        self.sizes, self.shape, self.learned, self.inside = older.shape, shape, inside.requires_grad, inside
        self.forward = BufferedSums(fresh_alias(older.contiguous()), inside.detach(), shape)
        self.passes: dict[int, tuple[BlockSums | BufferedSums, dict[int, torch.Tensor]]] = {}
        self._anchor = _Open.apply(self, older, inside) if torch.is_grad_enabled() else None

    def row(self, n: int, entries: Sequence[torch.Tensor], state: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """As `BlockSums` has it; the state is that of row n − 1, too."""
        if self._anchor is None:
            return tuple(map(fresh_alias, self.forward.row(n, entries)))
        return _Row.apply(self, n, entries[0] if n else None, state if n else self._anchor)

    def close(self, entry: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        made = self.forward.close(entry, state) if self._anchor is None else _Close.apply(self, entry, state)
        del self.forward, self.inside, self._anchor  # what a backward pass needs of them, the nodes hold
        return made

    def go_back(
        self, ctx: Any, cotangents: Sequence[torch.Tensor], closing: torch.Tensor | None = None
    ) -> tuple[Any, dict[int, torch.Tensor], Sequence[torch.Tensor]]:
        """The pass under way, or a new one; and what a node saved, where it is needed: it can be had once.

        `closing` is what all slopes [G, B, d] received from later blocks.
        """
        task = backward_task()
        saved: Sequence[torch.Tensor] = ctx.saved_tensors if self.learned or task not in self.passes else ()
        if task not in self.passes:
            if backward_is_compiled():
                raise InvalidArgumentError(
                    "compiled autograd must be on for the forward pass too, got a backward pass alone; compile the "
                    "forward pass with torch.compile, or enable compiled autograd around both"
                )
            groups, count, rules, size = self.sizes
            first = saved[0].new_zeros(groups, count, size) if closing is None else closing.flip(1)
            transposed = saved[0].flip(1, 3).permute(0, 3, 1, 2).reshape(groups, count, 1, count * rules)
            plain = torch.is_grad_enabled() or any(map(is_batch_of_cotangents, cotangents))
            back = BlockSums if plain else partial(BufferedSums, shape=self.shape)
            self.passes[task] = back(first.unsqueeze(2), transposed), {}
            when_backward_ends(partial(self.passes.pop, task, None))
        return *self.passes[task], saved


class _Open(torch.autograd.Function):
    """Where the gradients of all that comes in from outside the block come out; gives an anchor for its first row."""

    @staticmethod
    def forward(ctx: Any, tape: TapedSums, older: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        ctx.tape = tape
        return older.new_empty(0)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        back, slopes = ctx.tape.passes.pop(backward_task(), (None, {}))  # which this ends
        if back is None:
            return None, None, None
        groups, count, rules, size = ctx.tape.sizes
        adjoints = back.made().reshape(groups, count, rules, size).flip(1)
        if not ctx.tape.learned:
            return None, adjoints, None
        nothing = adjoints.new_zeros(groups, size)
        known = torch.stack([slopes[k].reshape(groups, size) if k in slopes else nothing for k in range(count)], dim=2)
        products = torch.matmul(adjoints.transpose(1, 2), known.unsqueeze(1))  # [G, R, B, B]
        return None, adjoints, products.tril(-1).transpose(1, 2)


class _Row(torch.autograd.Function):
    """The sums of row n, with x_{n−1} and, as an anchor, the state before."""

    @staticmethod
    def forward(
        ctx: Any, tape: TapedSums, n: int, entry: torch.Tensor | None, anchor: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.tape, ctx.n = tape, n
        # The weights for a pass that may begin here, and what their gradient needs.
        ctx.save_for_backward(tape.inside, *((entry,) if tape.learned and n else ()))
        return tuple(map(fresh_alias, tape.forward.row(n, (entry,))))  # type: ignore[arg-type]  # None is not looked at

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        tape, n = ctx.tape, ctx.n
        back, slopes, saved = tape.go_back(ctx, cotangents)
        if tape.learned and n:
            slopes[n - 1] = saved[1]
        if isinstance(back, BlockSums):
            cotangents = tuple(each.reshape(tape.sizes[0], -1) for each in cotangents)
        received = back.row(tape.sizes[1] - n, cotangents)
        return None, None, received[0].reshape(tape.shape) if received and ctx.needs_input_grad[2] else None, None


class _Close(torch.autograd.Function):
    """All slopes of a block at once; the newest is an input of this node, the others of those of rows."""

    @staticmethod
    def forward(ctx: Any, tape: TapedSums, entry: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        ctx.tape = tape
        ctx.save_for_backward(tape.inside)
        return tape.forward.close(entry, anchor)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        ctx.tape.go_back(ctx, (cotangent,), cotangent)
        return None, cotangent[:, -1].reshape(ctx.tape.shape), None
