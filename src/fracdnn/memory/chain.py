"""A chain of steps with memory, Y_j = Σ_k H_jk Y_k + c_j f_{j−1}(Y_{j−1}), whose backward pass is the exact adjoint.

Each f_j is ordinary autograd; only the memory is not. A node of the graph adds it to a step, and instead of edges to
all earlier states the nodes share a `Tape` with the history. Going back, Y_j receives

    Q_j = ∂E/∂Y_j + c_{j+1} J_jᵀ Q_{j+1} + Σ_{i>j} H_ij Q_i:

the first two terms by autograd itself, and the last, what the later layers' memory holds it to account for, from the
node of Y_{j+1}, which has Y_j as an input. So the cotangent of a state is whole wherever it is looked at, by hooks or
`retain_grad`. The sum is a causal sum again, in reversed order and with the transposed weights: the same code. The
graph has one node per layer, and what is held between the passes is one state per layer beside what the layers save.

With `checkpoint`, steps are computed again in the backward pass. Where a sum keeps all states (exact weights), each
step is computed again by itself, at its stored state, and blocks of multipliers take the place of blocks of states.
Where it does not (compressed weights, order 1), the steps run in segments, and the positions are held in which the
segments found the history, so that memory is like √N instead of N.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError, NotFiniteError, StateChangedError
from fracdnn.memory.exact import Keep
from fracdnn.memory.plan import MemorylessPlan, MemoryPlan
from fracdnn.memory.recomputation import SegmentEnd, recomputed, segments
from fracdnn.memory.sums import HistorySum, wide
from fracdnn.tracing import (
    apply_outside_of_transforms,
    backward_is_compiled,
    backward_task,
    being_transformed,
    carries_derivative,
    is_batch_of_cotangents,
    when_backward_ends,
)

Step = Callable[[int, torch.Tensor], torch.Tensor]
Name = Callable[[int], str]

_REMEDY = (
    "keep what a layer changes from call to call in buffers, change parameters after the backward pass, or pass "
    "checkpoint=False"
)
# Layers after which states are checked for values that are not finite.
_CHECK_EVERY = 32
# Numbers of a state, in whole samples, that are compared when a step is computed again.
_COMPARED_NUMBERS = 256


def run_chain(
    weights: MemoryPlan,
    step: Step,
    y0: torch.Tensor,
    *,
    trajectory: bool = False,
    checkpoint: bool = False,
    store: torch.dtype | None = None,
    name: Name = "step {}".format,
    transformed: bool | None = None,
) -> torch.Tensor:
    """Return Y_N, or Y_0 … Y_N stacked, of Y_j = Σ_{k<j} H_jk Y_k + c_j f_{j−1}(Y_{j−1}), with the exact adjoint.

    `step(j, Y_j)` is f_j, a differentiable function of Y_j and of anything else; `name(j)` is what messages call it.

    `weights` holds H and c: `equal_steps_weights` for one order and equal steps (a matrix, or exponentials for far
    states), `general_weights` for any lower triangular H. An explicit method whose new state is a weighted sum of
    *slopes*, Y_j = Y_0 + Σ_{k≤j} W_jk f_{k−1}(Y_{k−1}) with W_jj ≠ 0, is a chain of states too, with c_j = W_jj and
    H = I − diag(c) W⁻¹ for Y_1 … Y_N: `slope_weights(W)`. For the product rectangle rule (Euler) H is nonnegative with
    rows of sum 1. A predictor and a corrector are two rows of W for each step, P_1, Y_1, P_2, Y_2, …; for Adams the
    absolute rows of H sum to less than 3.

    `checkpoint` computes steps again in the backward pass, with the same random numbers; see the module. `store` is a
    dtype of 16 bits for finished blocks of 16 states and of 16 multipliers, with `checkpoint` and exact weights: sums
    and the current block stay as they are. Where operations have to be plain ones (`transformed`, if the caller knows
    it already) neither has an effect.
    """
    transformed = being_transformed() if transformed is None else transformed
    plain = transformed or isinstance(weights, MemorylessPlan)  # autograd sees all there is
    again = checkpoint and torch.is_grad_enabled() and not transformed
    tape = Tape(weights, y0, plain=plain, keep=Keep(again, store if again else None))
    walk = _Walk(
        tape,
        step,
        name,
        recording=torch.is_grad_enabled() and not plain,
        transformed=transformed,
        trajectory=trajectory,
    )
    history = weights.plain_sum(y0) if plain else weights.history_sum(y0, keep=tape.keep)
    learned = weights.weight_tensors if weights.learned else ()
    y = _Start.apply(tape, history, y0, *learned) if walk.recording else history.first(y0)
    if again and not history.keeps_all_states:
        last, states = walk.in_segments(history, y)
    else:
        last, states = walk.over(range(1, weights.n_layers + 1), history, y, stepwise=again)
    return torch.stack([y, *states]) if trajectory else last


@dataclass(frozen=True, eq=False)
class _Walk:
    """The layers of one forward pass, one after the other.

    No step may write into a state, which later layers remember: versions are compared. Where operations are traced or
    transformed these cannot be seen, and steps get a copy, which a compiler removes where it is not written into.
    """

    tape: "Tape"
    step: Step
    name: Name
    recording: bool
    transformed: bool
    trajectory: bool

    def over(
        self,
        layers: range,
        history: HistorySum,
        y: torch.Tensor,
        *position: torch.Tensor,
        again: bool = False,
        stepwise: bool = False,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the last state and, for a trajectory, all that the layers make.

        `position` is that of the history here. `again`: the backward pass computes them; `stepwise`: it will.
        """
        step, tape, factors, transformed = self.step, self.tape, self.tape.factors, self.transformed
        states, unchecked = [], [y]
        looks = y.is_cpu and not transformed and not again  # reading a value would wait for another device
        for j in layers:
            if transformed:
                change = step(j - 1, y.clone())
            else:
                version = -1 if y.is_inference() else y._version
                change = self._recomputed(j, y, history) if stepwise else step(j - 1, y)
                if version >= 0 and y._version != version:
                    raise StateChangedError(
                        f"{self.name(j - 1)} must not change the state it is given, but it wrote into it; "
                        f"later layers remember that state: use an operation that is not in place"
                    )
            if stepwise:
                y = change
            elif self.recording:
                y = _apply_step(tape, history, j, y, change, *position)
                position = ()
            else:
                y = history.advance(j, change, factors[j - 1])
            if looks:
                unchecked.append(y)
                if j % _CHECK_EVERY == 0 or j == layers[-1]:
                    _check_finite(unchecked, j + 1 - len(unchecked), self.name)
                    unchecked = []
            if self.trajectory:
                states.append(y)
        return y, states

    def _recomputed(self, j: int, y: torch.Tensor, history: HistorySum) -> torch.Tensor:
        """Return Y_j; the backward pass computes f_{j−1} again at the stored Y_{j−1}."""
        given, tape, read = [(y, history)], self.tape, history.reader(j - 1)
        end = _StepEnd(self.name(j - 1), exact=tape.keep.dtype is None)
        requires_grad, dtype = y.requires_grad, y.dtype

        def call(_: torch.Tensor) -> torch.Tensor:
            if given:  # the first call, which releases both when it is done
                state, sums = given.pop()
            else:
                state, sums = read().to(dtype).requires_grad_(requires_grad), None
            change = self.step(j - 1, state)
            end.check(state, change)
            return _apply_step(tape, sums, j, state, change)

        return recomputed(call, y.new_empty(0))  # the argument tells the device of random numbers

    def in_segments(self, history: HistorySum, y: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Do the same in segments that are computed again in the backward pass."""
        found: list[torch.Tensor] = []
        n_layers, name = self.tape.plan.n_layers, self.name
        for layers in segments(n_layers, states=history.states_of_a_position, block=history.block):
            names = f"{name(layers[0] - 1)} to {name(layers[-1] - 1)}" if len(layers) > 1 else name(layers[0] - 1)
            end = SegmentEnd(names, _REMEDY, copy=layers.stop > n_layers)
            segment, position = partial(self._segment, layers, end, [history]), history.position(layers.start)
            y, states = recomputed(segment, y, *position)
            found.extend(states)
        return y, found

    def _segment(
        self, layers: range, end: SegmentEnd, unused: list[HistorySum], y: torch.Tensor, *position: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Some layers: the first call takes the history, which is unused; later ones begin again in its position."""
        again = not unused  # then the values have been looked at, in the first call
        history = self.tape.plan.history_sum(y) if again else unused.pop()
        if again:
            history.resume(layers.start, y.detach(), *position)
        last, states = self.over(layers, history, y, *position, again=again)
        end.check(y, last)
        return last, states


class _StepEnd:
    """A comparison of what a step computes in the backward pass with what it computed before, in a few samples.

    Only on a CPU, since it would wait for other devices, and not where states were rounded in between.
    """

    def __init__(self, name: str, *, exact: bool) -> None:
        self._end = SegmentEnd(name, _REMEDY, copy=True)
        self._exact = exact

    def check(self, state: torch.Tensor, change: Any) -> None:
        if self._exact and isinstance(change, torch.Tensor) and change.is_cpu and change.shape == state.shape:
            count = 1 + _COMPARED_NUMBERS // (1 + state[:1].numel()) if state.dim() else None
            parts = (state, change) if count is None else (state[:count], change[:count])
            self._end.check(*parts)


class Tape:
    """What the nodes of one forward pass share: the plan, the factors, and the backward passes under way.

    A backward pass is known by its task: one over a retained graph, one nested in a hook of another, or one in another
    thread each have their own.
    """

    def __init__(self, plan: MemoryPlan, y0: torch.Tensor, *, plain: bool, keep: Keep) -> None:
        self.plan, self.learned, self.keep = plan, plan.learned, keep
        self.factors: Any = plan.factor_numbers
        if self.factors is None or (plain and carries_derivative(plan.factors)):
            factors = plan.factors.to(y0.device, wide(y0.dtype))
            self.factors = factors if plain else factors.detach()
        self.passes: dict[int, BackwardPass] = {}

    def begin_pass(self, task: int, top: int, cotangent: torch.Tensor) -> "BackwardPass":
        """A new pass, which begins with the cotangent of Y_top."""
        if backward_is_compiled():
            raise InvalidArgumentError(
                "compiled autograd must be on for the forward pass too, got a backward pass alone; compile the forward "
                "pass with torch.compile, or enable compiled autograd around both"
            )
        self.passes[task] = BackwardPass(self.plan, top, cotangent, self.keep)
        when_backward_ends(partial(self.passes.pop, task, None))
        return self.passes[task]


class BackwardPass:
    """One walk back through the nodes, from the node of layer `top`.

    In plain operations for second derivatives and for many cotangents at once; else in the buffers of a history sum.
    """

    def __init__(self, plan: MemoryPlan, top: int, cotangent: torch.Tensor, keep: Keep) -> None:
        plain = torch.is_grad_enabled() or is_batch_of_cotangents(cotangent)
        self._plan, self._plain, self.top = plan, plain, top
        self.factors = plan.factors.to(cotangent.device, wide(cotangent.dtype)) if plain else plan.scales(cotangent)
        self.sum = plan.plain_sum(cotangent, top) if plain else plan.history_sum(cotangent, top, keep=keep)
        # Y_{j−1}, Q_j and f_{j−1} by layer, from the latest one down, which the gradients of the weights need; or
        # Q_j · f_{j−1} in place of f_{j−1}, where it was computed again and should be released.
        self._recorded: dict[int, tuple[torch.Tensor, ...]] = {}
        self._multiplied = keep.released and plan.learned
        self._gradients: tuple[torch.Tensor, ...] = ()

    def record(self, j: int, adjoint: torch.Tensor, saved: Sequence[torch.Tensor]) -> None:
        """Take Q_j and what was saved: Y_{j−1} and f_{j−1}, and where a segment begins, its position."""
        previous, change, *position = saved
        if not torch.is_grad_enabled():  # else second derivatives need the graph
            previous, change = previous.data, change.data
        if self._multiplied:
            change = (adjoint.to(wide(adjoint.dtype)) * change).sum()
        self._recorded[j] = (previous, adjoint, change)
        if position and not self._plain:  # else second derivatives need all states with their graph
            self.weight_gradients(position)

    def weight_gradients(self, position: Sequence[torch.Tensor] = ()) -> tuple[torch.Tensor, ...]:
        """Return the gradients of `plan.weight_tensors` so far; layers beyond the top had no part in the loss."""
        if self._recorded:
            states, adjoints, changes = zip(*reversed(self._recorded.values()), strict=True)
            begin, products = min(self._recorded), torch.stack(changes) if self._multiplied else None
            more = self._plan.learned_gradients(states, adjoints, changes, begin, position, products=products)
            self._recorded = {}
            self._gradients = tuple(map(torch.add, self._gradients, more)) if self._gradients else more
        return self._gradients


class _Start(torch.autograd.Function):
    """Y_0, and the place where the gradients of order and steps come out."""

    @staticmethod
    def forward(ctx: Any, tape: Tape, history: HistorySum, y0: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.tape = tape
        ctx.devices = [weight.device for weight in weights]
        return history.first(y0)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        current = ctx.tape.passes.get(backward_task())
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
        history: HistorySum | None,
        j: int,
        previous: torch.Tensor,
        change: torch.Tensor,
        *position: torch.Tensor,
    ) -> torch.Tensor:
        ctx.tape, ctx.j, ctx.dtype, ctx.no_gradients = tape, j, change.dtype, [None] * len(position)
        if tape.learned:
            ctx.save_for_backward(previous, change, *position)
        if history is None:  # computed again, for what is saved; the state exists
            return torch.empty_like(previous)
        return history.advance(j, change, tape.factors[j - 1])

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # Y_{j−1} receives Σ_{i≥j} H_{i,j−1} Q_i by the memory, and f_{j−1} receives c_j Q_j. Both are tensors of their
        # own, since callers may write into gradients.
        task, tape, j = backward_task(), ctx.tape, ctx.j
        current = tape.passes.get(task) or tape.begin_pass(task, j, cotangent)
        factor, n = current.factors[j - 1], current.top - j
        if ctx.needs_input_grad[3]:
            memory, change = current.sum.exchange(n, cotangent, factor, ctx.dtype)
        else:  # nor then any state before it
            memory, change = None, (factor * cotangent).to(ctx.dtype)
        if tape.learned:
            adjoint = cotangent if memory is None else current.sum.stored(n, cotangent)
            current.record(j, adjoint, ctx.saved_tensors)
        return None, None, None, memory, change, *ctx.no_gradients


def _check_finite(states: Sequence[torch.Tensor], first: int, name: Name) -> None:
    """Refuse Y_first, … where the last of them is not finite: a bad state makes all later ones bad."""
    # A sum is quicker than a look at each value, but may itself leave the finite numbers.
    if math.isfinite(states[-1].detach().sum()) or bool(torch.isfinite(states[-1]).all()):
        return
    j = first + [bool(torch.isfinite(state).all()) for state in states].index(False)
    if j == 0:
        raise NotFiniteError("the input must be finite, got NaN or inf in it; remove these values first")
    raise NotFiniteError(
        f"{name(j - 1)} made the state not finite (NaN or inf); "
        f"check its parameters and scale, or use a smaller step size"
    )


_apply_step = apply_outside_of_transforms(_Step)
