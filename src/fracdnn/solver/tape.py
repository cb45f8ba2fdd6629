"""The sums within a block of steps as one node of the graph a step, whose backward pass is the exact adjoint.

Row n of a block holds, for each rule r, the sum over what is older and over the block's own slopes x_k before it:

    s_rn = older_rn + Σ_{k<n} w_rnk x_k.

What a method makes of the sums, func among it, is ordinary autograd; only the sums are not. Instead of edges to all
earlier slopes, the nodes of a block share a `Tape`. Going back, with q_rn for what s_rn received, x_k receives
Σ_{n>k, r} w_rnk q_rn: a sum of the same kind with the transposed weights, handed over by the node of row k + 1, which
has x_k as an input. It has the state of node k as an input, too, with no gradient for it: so each node runs after all
later ones, whatever func depends on.

`fracdnn.solver.history` brings in what is older, in plain operations. Second derivatives, and many cotangents at once,
go back in plain operations as well.
"""

from collections.abc import Sequence
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory.exact import fresh_alias
from fracdnn.solver.history import RUN
from fracdnn.solver.methods.base import Node
from fracdnn.solver.tape_backward import BackwardPass, BufferedPass, PlainPass, of_earlier, of_own_run, slots
from fracdnn.tracing import backward_is_compiled, backward_task, is_batch_of_cotangents, when_backward_ends


class TapedSums:
    """The sums of one block from `History.open`, older [G, B, R, d] and weights inside [G, B, R, B]."""

    def __init__(self, older: torch.Tensor, inside: torch.Tensor, shape: torch.Size) -> None:
        self._tape = Tape(older, inside, shape)
        self._recording = torch.is_grad_enabled()
        self._anchor = _Open.apply(self._tape, older, inside) if self._recording else None

    def row(self, n: int, last: Node) -> tuple[torch.Tensor, ...]:
        """The sums of row n, counted from 0; the last node is that of row n − 1."""
        if not self._recording:
            return self._tape.forward.row(n, last.entry)
        if n:
            return _Row.apply(self._tape, n, last.entry, last.state)
        return _Row.apply(self._tape, n, None, self._anchor)

    def close(self, last: Node) -> torch.Tensor:
        """All slopes of the block, [G, B, d], after its last node."""
        if self._recording:
            made = _Close.apply(self._tape, last.entry, last.state)
        else:
            made = self._tape.forward.close(last.entry)
        del self._tape.forward  # what a backward pass needs of it, the nodes hold
        return made


class ForwardBlock:
    """The buffers of a forward pass."""

    def __init__(self, older: torch.Tensor, inside: torch.Tensor, shape: torch.Size) -> None:
        groups, rows, rules, size = older.shape
        self.inside = inside
        self._count, self._rules = rows, rules
        self._weights = inside.detach().flatten(1, 2)
        self._sums = fresh_alias(older.contiguous())
        self._rows = self._sums.unbind(1)  # [G, R, d]
        self._results = slots(self._sums.flatten(1, 2), shape)
        self._recent = of_own_run(of_earlier(inside.detach())).unbind(1)  # [G, R, RUN]
        # Slopes that are not there yet are zeros, so that all products within a run have its size.
        self._made = older.new_zeros(groups, rows + -rows % RUN, size)
        self._slopes, self._runs = slots(self._made, shape), self._made.split(RUN, dim=1)

    def row(self, n: int, entry: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """Takes x_{n−1}, but for the first row, where it is in the block before."""
        row = self._rows[n]
        if n and entry is not None:
            self._slopes[n - 1].copy_(entry)
            if n % RUN:
                row.baddbmm_(self._recent[n], self._runs[n // RUN])
            else:
                self._begin_run(n)
        return tuple(map(fresh_alias, self._results[n * self._rules : (n + 1) * self._rules]))

    def close(self, entry: torch.Tensor) -> torch.Tensor:
        self._slopes[self._count - 1].copy_(entry)
        return self._made[:, : self._count]

    def _begin_run(self, n: int) -> None:
        """Bring all slopes before n into a run of rows at once."""
        end = min(n + RUN, self._count)
        weights = self._weights[:, n * self._rules : end * self._rules, :n]
        self._sums[:, n:end].flatten(1, 2).baddbmm_(weights, self._made[:, :n])


class Tape:
    """What the nodes of a block share: sizes, the forward pass while it lasts, and the backward passes under way."""

    def __init__(self, older: torch.Tensor, inside: torch.Tensor, shape: torch.Size) -> None:
        self.sizes, self.shape, self.learned = older.shape, shape, inside.requires_grad
        self.forward = ForwardBlock(older, inside, shape)
        self._passes: dict[int, BackwardPass] = {}

    def backward_pass(self, ctx: Any, *cotangents: torch.Tensor) -> tuple[BackwardPass, Sequence[torch.Tensor]]:
        """The pass under way, or a new one; and what a node saved, where it is needed: it can be had once."""
        task = backward_task()
        saved: Sequence[torch.Tensor] = ctx.saved_tensors if self.learned or task not in self._passes else ()
        if task not in self._passes:
            if backward_is_compiled():
                raise InvalidArgumentError(
                    "compiled autograd must be on for the forward pass too, got a backward pass alone; compile the "
                    "forward pass with torch.compile, or enable compiled autograd around both"
                )
            plain = torch.is_grad_enabled() or any(map(is_batch_of_cotangents, cotangents))
            kind = PlainPass if plain else BufferedPass
            self._passes[task] = kind(self.sizes, self.shape, saved[0])
            when_backward_ends(lambda: self._end(task))
        return self._passes[task], saved

    def last_of_pass(self) -> BackwardPass | None:
        """The pass under way, which this ends."""
        return self._passes.pop(backward_task(), None)

    def _end(self, task: int) -> None:
        self._passes.pop(task, None)


class _Open(torch.autograd.Function):
    """Where the gradients of all that comes in from outside the block come out; gives an anchor for its first row."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, older: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        ctx.tape = tape
        return older.new_empty(0)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        current = ctx.tape.last_of_pass()
        if current is None:
            return None, None, None
        return None, current.adjoints(), current.weight_gradients() if ctx.tape.learned else None


class _Row(torch.autograd.Function):
    """The sums of row n, with x_{n−1} and, as an anchor, the state before."""

    @staticmethod
    def forward(
        ctx: Any, tape: Tape, n: int, entry: torch.Tensor | None, anchor: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.tape, ctx.n = tape, n
        # The weights for a pass that may begin here, and what their gradient needs.
        ctx.save_for_backward(tape.forward.inside, *((entry,) if tape.learned and n else ()))
        return tape.forward.row(n, entry)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        tape, n = ctx.tape, ctx.n
        current, saved = tape.backward_pass(ctx, *cotangents)
        current.receive(n, cotangents)
        if tape.learned and n:
            current.slopes[n - 1] = saved[1]
        return None, None, current.slope_gradient(n - 1) if ctx.needs_input_grad[2] else None, None


class _Close(torch.autograd.Function):
    """All slopes of a block at once; the newest is an input of this node, the others of those of rows."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, entry: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        ctx.tape = tape
        ctx.save_for_backward(tape.forward.inside)
        return tape.forward.close(entry)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        current, _ = ctx.tape.backward_pass(ctx, cotangent)
        current.closing = cotangent
        return None, cotangent[:, -1].reshape(ctx.tape.shape), None
