"""The sums within a block of steps as few nodes of the graph, whose backward pass is the exact adjoint.

An explicit method's node n is predicted from one sum over the block's earlier slopes x_k and corrected with another:

    s_rn = older_rn + Σ_{k<n} w_rnk x_k,    prediction_n = s_0n (+ tips_n · (x_{n−2}, x_{n−1})),
    u_n = s_1n + w_1nn func(t_n, prediction_n),    x_n = func(t_n, u_n).

func is ordinary autograd; only the sums are not. Instead of edges to all earlier slopes, the nodes of a block share a
`Tape`. Going back, x_k receives Σ_{n>k, r} w_rnk q_rn, q being what the sums received: a sum of the same kind with the
transposed weights, handed over by the node of prediction k + 1, which has x_k as an input. Every node has the state
before it as an input, too, without a gradient for it: so each runs after all later ones, whatever func depends on.

`fracdnn.solver.history` brings in what is older, in plain operations. Second derivatives, and many cotangents at once,
go back in plain operations as well.
"""

from typing import Any, NamedTuple

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory.exact import buffer, fresh_alias
from fracdnn.solver.history import RUN
from fracdnn.solver.methods.base import Explicit, Node
from fracdnn.solver.tape_backward import BackwardPass, BufferedPass, PlainPass, numbers, plus, slots
from fracdnn.tracing import backward_is_compiled, backward_task, is_batch_of_cotangents, when_backward_ends


class Opening(NamedTuple):
    """What a block begins with; see `History.open`."""

    older: torch.Tensor  # [G, B, R, d]
    inside: torch.Tensor  # [G, B, R, B]
    tips: torch.Tensor | None  # [G, B, 2]: of the two newest slopes, where a method continues them
    edges: tuple[torch.Tensor, ...]  # the two newest slopes before the block, then

    @property
    def weights(self) -> tuple[torch.Tensor, ...]:
        return (self.inside,) if self.tips is None else (self.inside, self.tips)


class TapedSums:
    """The sums of one block, recorded where gradients are."""

    def __init__(self, explicit: Explicit, opening: Opening, shape: torch.Size) -> None:
        self._tape = Tape(explicit, opening, shape)
        self._recording = torch.is_grad_enabled()
        self._guess = opening.older
        self._anchor = None
        if self._recording:
            self._anchor = _Open.apply(self._tape, opening.older, *opening.weights, *opening.edges)

    def predicted(self, n: int, last: Node) -> torch.Tensor:
        """The prediction of the block's node n, counted from 0, from the sums over all before it."""
        if not self._recording:
            self._guess = self._tape.forward.predict(n, last.entry)
        elif n:
            self._guess = _Predict.apply(self._tape, n, last.entry, last.state)
        else:
            self._guess = _Predict.apply(self._tape, n, None, self._anchor)
        return self._guess

    def corrected(self, n: int, slope: torch.Tensor, *, final: bool) -> torch.Tensor:
        """Node n from the slope at its prediction, or at what it was corrected to before."""
        if not self._recording:
            return self._tape.forward.correct(n, slope, final=final)
        self._guess = _Correct.apply(self._tape, n, final, slope, self._guess)
        return self._guess

    def close(self, last: Node) -> torch.Tensor:
        """All slopes of the block, [G, B, d]."""
        if self._recording:
            made = _Close.apply(self._tape, last.entry, last.state)
        else:
            made = self._tape.forward.close(last.entry)
        del self._tape.forward  # what a backward pass needs of it, the nodes hold
        return made


class ForwardBlock:
    """The buffers of a forward pass: sums turn into states where they are."""

    def __init__(self, explicit: Explicit, opening: Opening, shape: torch.Size) -> None:
        groups, rows, rules, size = opening.older.shape
        self.weights = opening.weights
        self._explicit, self._rules = explicit, rules
        self._sums = fresh_alias(opening.older.contiguous()).view(groups, rows * rules, size)
        self._inside = opening.inside.detach().flatten(1, 2)
        self.made = buffer(opening.older, groups, rows, size)
        self._rows, self._slopes = slots(self._sums, shape), slots(self.made, shape)
        own = torch.diagonal(opening.inside.detach()[:, :, explicit.corrector], dim1=1, dim2=2)
        self._newest = numbers(own)
        self._tips: list[Any] = []
        if opening.tips is not None:
            self._tips = [numbers(opening.tips.detach()[..., place]) for place in (0, 1)]
            self._slopes = (*self._slopes, *(edge.detach() for edge in opening.edges))  # so that −2 and −1 are these

    def predict(self, n: int, entry: torch.Tensor | None) -> torch.Tensor:
        """Takes x_{n−1}; not for the first, whose x_{n−1} is in the block before."""
        if n and entry is not None:
            self._slopes[n - 1].copy_(entry)
            self._bring_in(n)
        row = self._rows[n * self._rules + self._explicit.predictor]
        if not self._tips:
            return fresh_alias(row)
        earlier, later = (tip[n] for tip in self._tips)
        return plus(plus(row, self._slopes[n - 1], later), self._slopes[n - 2], earlier)

    def correct(self, n: int, slope: torch.Tensor, *, final: bool) -> torch.Tensor:
        row = self._rows[n * self._rules + self._explicit.corrector]
        if final:  # nobody needs the sum any more
            return fresh_alias(plus(row, slope, self._newest[n], out=row))
        return plus(row, slope, self._newest[n])

    def close(self, entry: torch.Tensor) -> torch.Tensor:
        self._slopes[self.made.shape[1] - 1].copy_(entry)
        return self.made

    def _bring_in(self, n: int) -> None:
        """Slopes before n into row n; those before a run of rows into all its rows at once."""
        within = n % RUN
        first, end = (n - within, n + 1) if within else (0, min(n + RUN, self.made.shape[1]))
        rows = slice(n * self._rules, end * self._rules)
        self._sums[:, rows].baddbmm_(self._inside[:, rows, first:n], self.made[:, first:n])


class Tape:
    """What the nodes of a block share: sizes, the forward pass while it lasts, and the backward passes under way."""

    def __init__(self, explicit: Explicit, opening: Opening, shape: torch.Size) -> None:
        self.explicit, self.shape = explicit, shape
        self.sizes = opening.older.shape
        self.learned = any(weights.requires_grad for weights in opening.weights)
        self.forward = ForwardBlock(explicit, opening, shape)
        self._passes: dict[int, BackwardPass] = {}

    def backward_pass(self, ctx: Any, cotangent: torch.Tensor) -> BackwardPass:
        """The pass under way, or a new one."""
        task = backward_task()
        if task not in self._passes:
            if backward_is_compiled():
                raise InvalidArgumentError(
                    "compiled autograd must be on for the forward pass too, got a backward pass alone; compile the "
                    "forward pass with torch.compile, or enable compiled autograd around both"
                )
            plain = torch.is_grad_enabled() or is_batch_of_cotangents(cotangent)
            inside, tips, _ = self._saved(ctx)
            kind = PlainPass if plain else BufferedPass
            self._passes[task] = kind(self.explicit, self.sizes, self.shape, inside, tips)
            when_backward_ends(lambda: self._end(task))
        return self._passes[task]

    def last_of_pass(self) -> BackwardPass | None:
        """The pass under way, which this ends."""
        return self._passes.pop(backward_task(), None)

    def save(self, ctx: Any, *learned_from: torch.Tensor | None) -> None:
        """The weights, for the pass that may begin here, and what their gradients need."""
        ctx.save_for_backward(*self.forward.weights, *(learned_from if self.learned else ()))

    def recorded(self, ctx: Any) -> torch.Tensor | None:
        """What the gradients of weights need of a node."""
        return self._saved(ctx)[2] if self.learned else None

    def _saved(self, ctx: Any) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        inside, *rest = ctx.saved_tensors
        tips = rest.pop(0) if self.explicit.continued else None
        return inside, tips, rest[0] if rest else None

    def _end(self, task: int) -> None:
        self._passes.pop(task, None)


class _Open(torch.autograd.Function):
    """Where the gradients of all that comes in from outside the block come out; gives an anchor for its first node."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, older: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        ctx.tape, ctx.count = tape, len(rest)
        if tape.learned and tape.explicit.continued:
            ctx.save_for_backward(*rest[2:])
        return older.new_empty(0)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        current = ctx.tape.last_of_pass()
        if current is None:
            return (None,) * (2 + ctx.count)
        weights: tuple[torch.Tensor | None, ...] = (None, None)
        if ctx.tape.learned:
            weights = current.weight_gradients(ctx.saved_tensors)
        if not ctx.tape.explicit.continued:
            return None, current.adjoints(), weights[0]
        return None, current.adjoints(), *weights, *current.edge_gradients()


class _Predict(torch.autograd.Function):
    """The prediction of node n, with x_{n−1} and, as an anchor, u_{n−1}."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, n: int, entry: torch.Tensor | None, anchor: torch.Tensor) -> torch.Tensor:
        ctx.tape, ctx.n = tape, n
        tape.save(ctx, entry)
        return tape.forward.predict(n, entry)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        tape, n = ctx.tape, ctx.n
        current = tape.backward_pass(ctx, cotangent)
        current.back_from_prediction(n, cotangent, tape.recorded(ctx))
        return None, None, current.entry_gradient(n - 1) if ctx.needs_input_grad[2] else None, None


class _Correct(torch.autograd.Function):
    """Node n from the slope at a guess of it, which is an anchor here."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, n: int, final: bool, slope: torch.Tensor, guess: torch.Tensor) -> torch.Tensor:
        ctx.tape, ctx.n = tape, n
        tape.save(ctx, slope)
        return tape.forward.correct(n, slope, final=final)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        tape = ctx.tape
        current = tape.backward_pass(ctx, cotangent)
        slope = current.back_from_correction(ctx.n, cotangent, tape.recorded(ctx))
        return None, None, None, slope, None


class _Close(torch.autograd.Function):
    """All slopes of a block at once; the newest is an input of this node, the others of those of predictions."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, entry: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        ctx.tape = tape
        ctx.save_for_backward(*tape.forward.weights)
        return tape.forward.close(entry)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        current = ctx.tape.backward_pass(ctx, cotangent)
        current.closing = cotangent
        return None, cotangent[:, -1].reshape(ctx.tape.shape), None
