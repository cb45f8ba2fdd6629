"""A part of a computation of which only begin and end are kept, and which is computed again in the backward pass.

`torch.utils.checkpoint` frees what the nodes of a graph save, but not the nodes: of a solve in small steps, most of the
memory. Here the graph of a segment is dropped as a whole, once it has told which leaves it came from, such as the
parameters of func. In the backward pass it is made again, from copies of what came in. That serves where gradients lead
to such leaves and to what came in alone; where `segment` cannot run it returns None, and torch's own way has to.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.memory.recomputation import SegmentEnd
from fracdnn.solver.coupled import CoupledSolver
from fracdnn.tracing import has_tensor_hooks, operations_are_watched, sequence_number

Tensors = tuple[torch.Tensor, ...]
_REMEDY = "make it a function of t, y and parameters that stay as they are, or leave out the option checkpoint"


def repeatable(scheme: Any, run: Callable[..., tuple[torch.Tensor, torch.Tensor, Any]]) -> Callable[..., Any]:
    """A part of a solve that is called again: `run` gives its first and last state, and the result to return.

    Each call begins with what the solvers of a scheme know now, and has to end in the same state.
    """
    solvers = [each for each in vars(scheme).values() if isinstance(each, CoupledSolver)]
    known = [(solver, dict(vars(solver))) for solver in solvers]
    segment_end = SegmentEnd("func", _REMEDY)

    def part(*given: Any) -> Any:
        for solver, state in known:
            vars(solver).update(state)
        begin, end, result = run(*given)
        segment_end.check(begin, end)
        return result

    return part


def segment(run: Callable[[Tensors], Sequence[torch.Tensor]], inputs: Tensors) -> Tensors | None:
    """What `run(inputs)` gives, without its graph; None where that would lose gradients or hooks."""
    if operations_are_watched() or inputs[0].device.type != "cpu":
        return None
    random_state, any_node = torch.get_rng_state(), torch.zeros((), requires_grad=True).clone().grad_fn
    copies = _copies(inputs)
    results = tuple(run(copies))
    leaves = _leaves(results, copies, sequence_number(any_node))
    if leaves is None or has_tensor_hooks(*leaves):
        torch.set_rng_state(random_state)  # as if nothing had been run
        return None
    detached = tuple(each.detach() for each in results)
    del results, copies
    return _Segment.apply(run, random_state, len(inputs), detached, *inputs, *leaves)


class _Segment(torch.autograd.Function):
    """The ends of a segment from its beginnings and leaves."""

    @staticmethod
    def forward(
        ctx: Any, run: Any, random_state: torch.Tensor, n_inputs: int, results: Tensors, *tensors: torch.Tensor
    ) -> Tensors:
        ctx.run, ctx.random_state, ctx.n_inputs = run, random_state, n_inputs
        ctx.save_for_backward(*tensors)
        return results

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        inputs, leaves = ctx.saved_tensors[: ctx.n_inputs], ctx.saved_tensors[ctx.n_inputs :]
        if has_tensor_hooks(*leaves):
            raise InvalidArgumentError(
                "hooks on parameters must be registered before a solve with the option checkpoint, got one after it; "
                "register it earlier, or leave out the option checkpoint"
            )
        again = torch.is_grad_enabled()
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.random_state)
            inputs = inputs if again else _copies(inputs)
            results = zip(ctx.run(inputs), cotangents, strict=True)
        made = [pair for pair in results if pair[0].requires_grad]
        wanted = [each for each in (*inputs, *leaves) if each.requires_grad]
        found: Iterator[torch.Tensor | None] = iter(())
        if made and wanted:
            ends, received = zip(*made, strict=True)
            found = iter(torch.autograd.grad(ends, wanted, received, create_graph=again, allow_unused=True))
        gradients = [next(found, None) if each.requires_grad else None for each in (*inputs, *leaves)]
        return (None, None, None, None, *gradients)


def _copies(inputs: Tensors) -> Tensors:
    return tuple(each.detach().requires_grad_(each.requires_grad) for each in inputs)


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
