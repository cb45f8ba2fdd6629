"""A part of a computation of which only begin and end are kept, and which is computed again in the backward pass.

`torch.utils.checkpoint` frees what the nodes of a graph save, but not the nodes: of a solve in small steps, most of the
memory. Here the graph of a segment is dropped as a whole, once it has told which leaves it came from, such as the
parameters of func. In the backward pass it is made again, from copies of what came in. That serves where gradients lead
to such leaves and to what came in alone; where `segment` cannot run it returns None, and torch's own way has to.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory.recomputation import SegmentEnd
from fracdnn.solver.coupled import CoupledSolver
from fracdnn.tracing import has_tensor_hooks, operations_are_watched, sequence_number

Tensors = tuple[torch.Tensor, ...]


class Repeatable:
    """A part of a solve that is called again: each call begins with what the solvers of a scheme know now, and has to
    end in the same state.
    """

    def __init__(self, scheme: Any) -> None:
        solvers = [each for each in vars(scheme).values() if isinstance(each, CoupledSolver)]
        self._known = [(solver, dict(vars(solver))) for solver in solvers]
        self.forget()

    def forget(self) -> None:
        """As if it had not been called yet."""
        remedy = "make it a function of t, y and parameters that stay as they are, or leave out the option checkpoint"
        self._end = SegmentEnd("func", remedy)

    def begin(self) -> None:
        """Before the first step of a call."""
        for solver, known in self._known:
            vars(solver).update(known)

    def end(self, begin: torch.Tensor, end: torch.Tensor) -> None:
        """After its last step, with the states before and after."""
        self._end.check(begin, end)


def segment(run: Callable[[Tensors], Sequence[torch.Tensor]], inputs: Tensors) -> Tensors | None:
    """What `run(inputs)` gives, without its graph; None where that would lose gradients or hooks."""
    if operations_are_watched() or inputs[0].device.type != "cpu":
        return None
    random_state = torch.get_rng_state()
    made = Segment(run, random_state)
    mark, copies = sequence_number(_any_node()), _copies(inputs)
    results = tuple(run(copies))
    leaves = _leaves(results, copies, mark)
    if leaves is None or has_tensor_hooks(*leaves):
        torch.set_rng_state(random_state)  # as if nothing had been run
        return None
    made.n_inputs, made.results = len(inputs), tuple(each.detach() for each in results)
    del results, copies
    return _Segment.apply(made, *inputs, *leaves)


class Segment:
    """What the backward pass needs to compute a segment again, but for its tensors."""

    n_inputs: int
    results: Tensors

    def __init__(self, run: Callable[[Tensors], Sequence[torch.Tensor]], random_state: torch.Tensor) -> None:
        self._run, self._random_state = run, random_state

    def gradients(self, saved: Tensors, cotangents: Tensors) -> list[torch.Tensor | None]:
        """For inputs and leaves."""
        inputs, leaves = saved[: self.n_inputs], saved[self.n_inputs :]
        if has_tensor_hooks(*leaves):
            raise InvalidArgumentError(
                "hooks on parameters must be registered before a solve with the option checkpoint, got one after it; "
                "register it earlier, or leave out the option checkpoint"
            )
        again = torch.is_grad_enabled()
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(self._random_state)
            inputs = inputs if again else _copies(inputs)
            results = self._run(inputs)
        made = [
            (result, cotangent) for result, cotangent in zip(results, cotangents, strict=True) if result.requires_grad
        ]
        wanted = [each for each in (*inputs, *leaves) if each.requires_grad]
        if not made or not wanted:
            return [None] * len(saved)
        ends, received = zip(*made, strict=True)
        found = iter(
            torch.autograd.grad(ends, wanted, received, create_graph=again, retain_graph=True, allow_unused=True)
        )
        return [next(found) if each.requires_grad else None for each in (*inputs, *leaves)]


class _Segment(torch.autograd.Function):
    """The ends of a segment from its beginnings and leaves."""

    @staticmethod
    def forward(ctx: Any, made: Segment, *tensors: torch.Tensor) -> Tensors:
        ctx.made = made
        ctx.save_for_backward(*tensors)
        results = made.results
        del made.results
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, *ctx.made.gradients(ctx.saved_tensors, cotangents)


def _copies(inputs: Tensors) -> Tensors:
    """The same numbers as leaves."""
    return tuple(each.detach().requires_grad_(each.requires_grad) for each in inputs)


def _any_node() -> Any:
    return torch.zeros((), requires_grad=True).clone().grad_fn


def _leaves(results: Tensors, inputs: Tensors, mark: int) -> Tensors | None:
    """All leaves that results came from, but the inputs; None where they came from a node made before the mark."""
    known = {id(each) for each in inputs}
    leaves: dict[int, torch.Tensor] = {}
    left, seen = [result.grad_fn for result in results if result.grad_fn is not None], set()
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None) if type(node).__name__ == "AccumulateGrad" else None
        if variable is not None:
            leaves.update({} if id(variable) in known else {id(variable): variable})
        elif sequence_number(node) < mark:
            return None
        left.extend(following for following, _ in node.next_functions if following is not None)
    return tuple(leaves.values())
