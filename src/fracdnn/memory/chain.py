"""A chain of steps with memory, Y_j = Σ_k H_jk Y_k + c_j f_{j−1}(Y_{j−1}), whose backward pass is the exact adjoint.

Each f_j is ordinary autograd; only the memory is not. A node of the graph adds it to a step, and instead of edges to
all earlier states the nodes share a `Tape` with the history. Going back, Y_j receives

    Q_j = ∂E/∂Y_j + c_{j+1} J_jᵀ Q_{j+1} + Σ_{i>j} H_ij Q_i:

the first two terms by autograd itself, and the last, what the later layers' memory holds it to account for, from the
node of Y_{j+1}, which has Y_j as an input. So the cotangent of a state is whole wherever it is looked at, by hooks or
`retain_grad`. The sum is a causal sum again, in reversed order and with the transposed weights: the same code. The
graph has one node a layer, and what is held between the passes is one state a layer beside what the layers save.

With `checkpoint`, the layers run in segments, and torch computes each again when the backward pass comes to it. Between
the passes the positions are held in which the segments found the history: the far states and a block of near ones where
it is compressed, so that memory is like √N instead of N; all states, but nothing that the layers save, where it is
exact. The sum over cotangents needs no states, so it goes on as ever.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint as recomputed

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory.guard import CopyGuard, Guard, NoGuard, StateGuard, Step
from fracdnn.memory.plan import MemorylessPlan, MemoryPlan
from fracdnn.memory.segments import SegmentEnd, segments
from fracdnn.memory.sums import Continuation, FusedSum, HistorySum, ResumableSum, wide
from fracdnn.tracing import (
    backward_is_compiled,
    backward_task,
    being_transformed,
    is_batch_of_cotangents,
    when_backward_ends,
)

_REMEDY = "keep what a layer changes from call to call in buffers, change parameters after the backward pass"


def propagate(
    plan: MemoryPlan,
    step: Step,
    y0: torch.Tensor,
    *,
    trajectory: bool = False,
    checkpoint: bool = False,
    name: Callable[[int], str] = "step {}".format,
) -> torch.Tensor:
    """Y_N, or Y_0 … Y_N stacked, where `step(j, Y_j)` is f_j and `name(j)` is what messages call it.

    `checkpoint` computes the steps again in the backward pass; not where operations have to be plain ones.
    """
    transformed = being_transformed()
    guard: Guard = CopyGuard() if transformed else StateGuard(name, plan.n_layers)
    plain = transformed or isinstance(plan, MemorylessPlan)  # then autograd sees all there is
    tape, recording = Tape(plan, y0, plain=plain), torch.is_grad_enabled() and not plain
    history = plan.plain_sum(y0) if plain else plan.forward_sum(y0)
    weights = plan.weight_tensors if plan.learned else ()
    y = _Start.apply(tape, history, y0, *weights) if recording else history.first(y0)
    walk = _Walk(tape, step, guard, recording=recording, trajectory=trajectory, copies=not (recording or plain))
    if checkpoint and torch.is_grad_enabled() and not transformed:
        last, states = walk.in_segments(history, y, name)
    else:
        last, states = walk.over(range(1, plan.n_layers + 1), history, y)
    return torch.stack([y, *states]) if trajectory else last


@dataclass(frozen=True)
class _Walk:
    """The layers of one forward pass, one after the other."""

    tape: "Tape"
    step: Step
    guard: Guard
    recording: bool
    trajectory: bool
    copies: bool  # what a trajectory needs where states lie in memory that is used again

    def over(
        self, layers: range, history: Continuation, y: torch.Tensor, *position: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The last state and, for a trajectory, all that the layers make; `position` is that of the history here."""
        states = []
        for j in layers:
            change = self.guard.call(self.step, j - 1, y)
            if self.recording:
                y = _Step.apply(self.tape, history, j, y, change, *position)
                position = ()
            else:
                y = history.advance(j, change, self.tape.factors[j - 1])
            self.guard.check(j, y)
            if self.trajectory:
                states.append(y.clone() if self.copies else y)
        return y, states

    def in_segments(
        self, history: HistorySum, y: torch.Tensor, name: Callable[[int], str]
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The same, in segments that are computed again in the backward pass."""
        assert isinstance(history, ResumableSum)
        found: list[torch.Tensor] = []
        n_layers = self.tape.plan.n_layers
        for layers in segments(n_layers, states=history.states_of_a_position, block=history.block):
            names = f"{name(layers[0] - 1)} to {name(layers[-1] - 1)}" if len(layers) > 1 else name(layers[0] - 1)
            end = SegmentEnd(names, _REMEDY, copy=layers.stop > n_layers)
            segment, position = _Segment(self, layers, history, end), history.position(layers.start)
            y, states = recomputed(segment, y, *position, use_reentrant=False)
            found.extend(states)
        return y, found


class _Segment:
    """Some layers. The first call goes on with the history; later ones begin again in the position it was in."""

    def __init__(self, walk: _Walk, layers: range, history: HistorySum, end: SegmentEnd) -> None:
        self._walk, self._layers, self._end = walk, layers, end
        self._history: HistorySum | None = history

    def __call__(self, y: torch.Tensor, *position: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        history: Continuation | None
        history, self._history, walk = self._history, None, self._walk
        if history is None:
            history = walk.tape.plan.resumed_sum(y, self._layers.start, position)
            walk = replace(walk, guard=NoGuard())  # the values have been looked at, in the first call
        last, states = walk.over(self._layers, history, y, *position)
        self._end.check(y, last)
        return last, states


class Tape:
    """What the nodes of one forward pass share: the plan, the factors, and the backward passes under way.

    A backward pass is known by its task: one over a retained graph, one nested in a hook of another, or one in another
    thread each have their own.
    """

    def __init__(self, plan: MemoryPlan, y0: torch.Tensor, *, plain: bool = False) -> None:
        self.plan = plan
        factors = plan.factor_numbers or plan.factors.to(y0.device, wide(y0.dtype))
        self.factors: Any = factors if plain or isinstance(factors, list) else factors.detach()
        self._passes: dict[int, BackwardPass] = {}

    def backward_pass(self, top: int, cotangent: torch.Tensor) -> "BackwardPass":
        """The pass under way, or a new one that begins with the cotangent of Y_top."""
        if backward_is_compiled():
            raise InvalidArgumentError(
                "compiled autograd must be on for the forward pass too, got a backward pass alone; compile the forward "
                "pass with torch.compile, or enable compiled autograd around both"
            )
        task = backward_task()
        if task not in self._passes:
            self._passes[task] = BackwardPass(self, top, cotangent)
            when_backward_ends(lambda: self._end_pass(task))
        return self._passes[task]

    def _end_pass(self, task: int) -> None:
        self._passes.pop(task, None)

    def pass_under_way(self) -> "BackwardPass | None":
        return self._passes.get(backward_task())


class BackwardPass:
    """One walk back through the nodes, from the node of layer `top`.

    In plain operations for second derivatives and for many cotangents at once; else in the buffers of a history sum.
    """

    def __init__(self, tape: Tape, top: int, cotangent: torch.Tensor) -> None:
        plan, plain = tape.plan, torch.is_grad_enabled() or is_batch_of_cotangents(cotangent)
        self._plan, self._top, self._plain = plan, top, plain
        self._factors = plan.factors.to(cotangent.device, wide(cotangent.dtype)) if plain else tape.factors
        self._sum = plan.plain_adjoint_sum(top, cotangent) if plain else plan.adjoint_sum(top, cotangent)
        # Y_{j−1}, Q_j and f_{j−1} by layer, which the gradients of the weights need.
        self._recorded: dict[int, tuple[torch.Tensor, ...]] = {}
        self._gradients: tuple[torch.Tensor, ...] = ()

    def back(
        self, j: int, adjoint: torch.Tensor, saved: Sequence[torch.Tensor], dtype: torch.dtype, *, to_previous: bool
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """From Q_j what Y_{j−1} receives by the memory, Σ_{i≥j} H_{i,j−1} Q_i, and what f_{j−1} receives, c_j Q_j.

        Both are tensors of their own, since callers may write into gradients. `saved` is Y_{j−1} and f_{j−1} where
        weights are learned, and the position of the history where a segment begins; `dtype` is that of f_{j−1}.
        """
        if saved:
            previous, change, *position = saved
            if not torch.is_grad_enabled():  # else second derivatives need the graph
                previous, change = previous.detach(), change.detach()
            self._recorded[j] = (previous, adjoint, change)
            if position and not self._plain:  # else second derivatives need all states with their graph
                self._take_in_recorded(position)
        n, factor = self._top - j, self._factors[j - 1]
        if to_previous and isinstance(self._sum, FusedSum):
            return self._sum.exchange(n, adjoint, factor, dtype)
        if n:
            self._sum.append(n, adjoint)
        else:
            self._sum.first(adjoint)
        return self._sum.row(n + 1) if to_previous else None, (factor * adjoint).to(dtype)

    def weight_gradients(self) -> tuple[torch.Tensor, ...]:
        """Gradients for `plan.weight_tensors`; layers beyond the top had no part in the loss."""
        if self._recorded:
            self._take_in_recorded(())
        return self._gradients

    def _take_in_recorded(self, position: Sequence[torch.Tensor]) -> None:
        """What the recorded layers, the latest one the first of them, add to the gradients of the weights."""
        begin = min(self._recorded)
        states, adjoints, changes = zip(*(self._recorded[j] for j in sorted(self._recorded)), strict=True)
        self._recorded = {}
        more = self._plan.learned_gradients(states, adjoints, changes, begin, position)
        self._gradients = tuple(map(torch.add, self._gradients, more)) if self._gradients else more


class _Start(torch.autograd.Function):
    """Y_0, and the place where the gradients of order and steps come out."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, history: HistorySum, y0: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.tape = tape
        ctx.devices = [weight.device for weight in weights]
        return history.first(y0)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        current = ctx.tape.pass_under_way()
        if current is None:  # the loss saw Y_0 only
            return (None, None, cotangent, *[None] * len(ctx.devices))
        gradients = current.weight_gradients() if ctx.devices else ()
        at_home = [gradient.to(device) for gradient, device in zip(gradients, ctx.devices, strict=True)]
        return (None, None, cotangent, *at_home)


class _Step(torch.autograd.Function):
    """Y_j from f_{j−1}(Y_{j−1}) and, by the history, from Y_{j−1} and all states before it."""

    @staticmethod
    def forward(
        ctx: Any,
        tape: Tape,
        history: Continuation,
        j: int,
        previous: torch.Tensor,
        change: torch.Tensor,
        *position: torch.Tensor,
    ) -> torch.Tensor:
        ctx.tape, ctx.j, ctx.dtype, ctx.n_positions = tape, j, change.dtype, len(position)
        if tape.plan.learned:
            ctx.save_for_backward(previous, change, *position)
        return history.advance(j, change, tape.factors[j - 1])

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        current = ctx.tape.backward_pass(ctx.j, cotangent)
        to_previous = ctx.needs_input_grad[3]
        memory, change = current.back(ctx.j, cotangent, ctx.saved_tensors, ctx.dtype, to_previous=to_previous)
        return None, None, None, memory, change, *[None] * ctx.n_positions
