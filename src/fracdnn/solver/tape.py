"""The sums within a block of steps as one node of the graph a step, whose backward pass is the exact adjoint.

Row n of a block holds, for each rule r, the sum over what is older and over the block's own slopes x_k before it:

    s_rn = older_rn + Σ_{k<n} w_rnk x_k.

What a method makes of the sums, func among it, is ordinary autograd; only the sums are not. Instead of edges to all
earlier slopes, the nodes of a block share its `TapedSums`. Going back, with q_rn for what s_rn received, x_k receives
Σ_{n>k, r} w_rnk q_rn: a sum of the same kind with the transposed weights, handed over by the node of row k + 1, which
has x_k as an input. It has the state of node k as an input, too, with no gradient for it: so each node runs after all
later ones, whatever func depends on.

`fracdnn.solver.history` brings in what is older, in plain operations. Second derivatives, and many cotangents at once,
go back in plain operations as well.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory.exact import fresh_alias
from fracdnn.solver.history import RUN
from fracdnn.solver.methods.base import Node
from fracdnn.tracing import backward_is_compiled, backward_task, is_batch_of_cotangents, when_backward_ends


def slots(rows: torch.Tensor, shape: torch.Size) -> tuple[torch.Tensor, ...]:
    """Rows [G, K, d] one by one, as states of a shape; with several groups these are packed."""
    return rows.view(rows.shape[1], *shape).unbind(0) if len(rows) == 1 else rows.unbind(1)


def of_earlier(inside: torch.Tensor) -> torch.Tensor:
    return inside.transpose(1, 2).tril(-1).transpose(1, 2).contiguous()


def of_own_run(weights: torch.Tensor) -> torch.Tensor:
    """Of weights [G, B, …, B · m], m for each pair of nodes, those within a node's own run; [G, B, …, RUN · m]."""
    rows, width = weights.shape[1], weights.shape[-1] // weights.shape[1] * RUN
    padded = torch.nn.functional.pad(weights, (0, -weights.shape[-1] % width)).unflatten(-1, (-1, width))
    return torch.cat([padded[:, first : first + RUN, ..., first // RUN, :] for first in range(0, rows, RUN)], dim=1)


class ForwardBlock:
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


class TapedSums:
    """The sums of one block from `History.open`, older [G, B, R, d] and weights inside [G, B, R, B].

    `newest` are the weights of a row's own node; nodes have this shape. The rest is what nodes of the graph share: the
    forward pass while it lasts, and the backward passes under way.
    """

    def __init__(
        self, older: torch.Tensor, inside: torch.Tensor, newest: list[Sequence[Any]], shape: torch.Size
    ) -> None:
        self.newest, self.sizes, self.shape, self.learned = newest, older.shape, shape, inside.requires_grad
        self.forward = ForwardBlock(older, inside, shape)
        self.passes: dict[int, BackwardPass] = {}
        self._anchor = _Open.apply(self, older, inside) if torch.is_grad_enabled() else None

    def row(self, n: int, last: Node) -> tuple[torch.Tensor, ...]:
        """The sums of row n, counted from 0; the last node is that of row n − 1."""
        if self._anchor is None:
            return self.forward.row(n, last.entry)
        return _Row.apply(self, n, last.entry if n else None, last.state if n else self._anchor)

    def close(self, last: Node) -> torch.Tensor:
        made = self.forward.close(last.entry) if self._anchor is None else _Close.apply(self, last.entry, last.state)
        del self.forward, self._anchor  # what a backward pass needs of them, the nodes hold
        return made

    def backward_pass(self, ctx: Any, *cotangents: torch.Tensor) -> tuple["BackwardPass", Sequence[torch.Tensor]]:
        """The pass under way, or a new one; and what a node saved, where it is needed: it can be had once."""
        task = backward_task()
        saved: Sequence[torch.Tensor] = ctx.saved_tensors if self.learned or task not in self.passes else ()
        if task not in self.passes:
            if backward_is_compiled():
                raise InvalidArgumentError(
                    "compiled autograd must be on for the forward pass too, got a backward pass alone; compile the "
                    "forward pass with torch.compile, or enable compiled autograd around both"
                )
            plain = torch.is_grad_enabled() or any(map(is_batch_of_cotangents, cotangents))
            kind = PlainPass if plain else BufferedPass
            self.passes[task] = kind(self.sizes, self.shape, saved[0])
            when_backward_ends(partial(self.passes.pop, task, None))
        return self.passes[task], saved


class BackwardPass(ABC):
    """One walk back through the rows of a block [G, B, R, d]."""

    def __init__(self, sizes: torch.Size, shape: torch.Size, inside: torch.Tensor) -> None:
        self._groups, self._count, self._rules, self._size = sizes
        self._shape, self._inside = shape, inside
        self.closing: torch.Tensor | None = None  # what all slopes received from later blocks
        self.slopes: dict[int, torch.Tensor] = {}  # which the gradients of weights need

    @abstractmethod
    def receive(self, n: int, cotangents: Sequence[torch.Tensor]) -> None:
        """The sums of row n received these."""

    @abstractmethod
    def slope_gradient(self, k: int) -> torch.Tensor:
        """Σ_{n>k, r} w_rnk q_rn, and what closing brings."""

    @abstractmethod
    def adjoints(self) -> torch.Tensor:
        """[G, B, R, d]: what all sums received."""

    def weight_gradients(self) -> torch.Tensor:
        nothing = self._inside.new_zeros(self._groups, self._size)
        slopes = [self._packed(self.slopes[k]) if k in self.slopes else nothing for k in range(self._count)]
        adjoints = self.adjoints().flatten(1, 2)
        products = torch.matmul(adjoints, torch.stack(slopes, dim=2))
        return products.reshape(self._inside.shape) * of_earlier(torch.ones_like(self._inside))

    def _packed(self, state: torch.Tensor) -> torch.Tensor:
        return state.reshape(self._groups, self._size)


class BufferedPass(BackwardPass):
    """In buffers, with few passes over memory."""

    def __init__(self, sizes: torch.Size, shape: torch.Size, inside: torch.Tensor) -> None:
        super().__init__(sizes, shape, inside)
        padded = self._count + -self._count % RUN
        # What was not received yet is zero, so that all products within a run have its size.
        self._adjoints = inside.new_zeros(self._groups, padded * self._rules, self._size)
        self._received = slots(self._adjoints, shape)
        self._runs = self._adjoints.split(RUN * self._rules, dim=1)
        self._transposed = of_earlier(inside.detach()).flatten(1, 2).transpose(1, 2)  # [G, B, B · R]
        self._recent = of_own_run(self._transposed).unsqueeze(2).unbind(1)
        self._run = -1
        self._gradients: tuple[torch.Tensor, ...] = ()
        self._rows: tuple[torch.Tensor, ...] = ()

    def receive(self, n: int, cotangents: Sequence[torch.Tensor]) -> None:
        for rule, cotangent in enumerate(cotangents, n * self._rules):
            self._received[rule].copy_(cotangent)

    def slope_gradient(self, k: int) -> torch.Tensor:
        run, within = divmod(k, RUN)
        if run != self._run:
            self._begin_run(run)
        if within < RUN - 1:
            self._rows[within].baddbmm_(self._recent[k], self._runs[run])
        return self._gradients[within]

    def adjoints(self) -> torch.Tensor:
        return self._adjoints[:, : self._count * self._rules].unflatten(1, (self._count, self._rules))

    def _begin_run(self, run: int) -> None:
        """For all slopes of a run, from the rows after it."""
        begin, end = run * RUN, min((run + 1) * RUN, self._count)
        weights = self._transposed[:, begin:end, end * self._rules :]
        adjoints = self._adjoints[:, end * self._rules : self._count * self._rules]
        if self.closing is None:
            total = torch.bmm(weights, adjoints)
        else:
            total = torch.baddbmm(self.closing[:, begin:end], weights, adjoints)
        self._run, self._rows, self._gradients = run, total.split(1, dim=1), slots(total, self._shape)


class PlainPass(BackwardPass):
    """In plain operations, so that what is made here can be differentiated again."""

    def __init__(self, sizes: torch.Size, shape: torch.Size, inside: torch.Tensor) -> None:
        super().__init__(sizes, shape, inside)
        self._received: dict[int, torch.Tensor] = {}  # [G, R, d] by row

    def receive(self, n: int, cotangents: Sequence[torch.Tensor]) -> None:
        self._received[n] = torch.stack([self._packed(each) for each in cotangents], dim=1)

    def slope_gradient(self, k: int) -> torch.Tensor:
        later = list(self._received)  # no earlier row has been met yet
        rows = torch.cat(list(self._received.values()), dim=1)
        total = (self._inside[:, later, :, k].flatten(1).unsqueeze(-1) * rows).sum(1)
        if self.closing is not None:
            total = total + self.closing[:, k]
        return total.reshape(self._shape)

    def adjoints(self) -> torch.Tensor:
        nothing = torch.zeros_like(next(iter(self._received.values())))
        return torch.stack([self._received.get(n, nothing) for n in range(self._count)], dim=1)


class _Open(torch.autograd.Function):
    """Where the gradients of all that comes in from outside the block come out; gives an anchor for its first row."""

    @staticmethod
    def forward(ctx: Any, tape: TapedSums, older: torch.Tensor, inside: torch.Tensor) -> torch.Tensor:
        ctx.tape = tape
        return older.new_empty(0)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        current = ctx.tape.passes.pop(backward_task(), None)  # which this ends
        if current is None:
            return None, None, None
        return None, current.adjoints(), current.weight_gradients() if ctx.tape.learned else None


class _Row(torch.autograd.Function):
    """The sums of row n, with x_{n−1} and, as an anchor, the state before."""

    @staticmethod
    def forward(
        ctx: Any, tape: TapedSums, n: int, entry: torch.Tensor | None, anchor: torch.Tensor
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
    def forward(ctx: Any, tape: TapedSums, entry: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        ctx.tape = tape
        ctx.save_for_backward(tape.forward.inside)
        return tape.forward.close(entry)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        current, _ = ctx.tape.backward_pass(ctx, cotangent)
        current.closing = cotangent
        return None, cotangent[:, -1].reshape(ctx.tape.shape), None
