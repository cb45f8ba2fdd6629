"""Func's derivatives by the state, at several times at once."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch

from fracdnn.exceptions import FracdnnError, InvalidArgumentError
from fracdnn.solver.arrays import component_sizes
from fracdnn.solver.problem import NOT_MAPPED, Problem
from fracdnn.tracing import being_transformed, outside_of_saved_tensor_hooks

_ROW_BY_ROW = 8  # components up to which rows of a Jacobian come one by one
_FEWEST_MAPPED = 2  # components from which one call of func for all points pays
# Evaluations of func after which it is mapped: the first map of a process takes a second, to load torch's machinery.
_MAPPED_AFTER = 500
_DIFFERENCE = 1e-5  # of a state, by which it moves: far enough for a func that computes in single precision


def unhooked(transformed: bool | None = None) -> AbstractContextManager[None]:
    """Keep hooks of the caller's on saved tensors, such as those of a checkpoint, off a graph that is used up here."""
    if being_transformed() if transformed is None else transformed:  # which knows no such hooks
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def slopes_with_jacobians(
    problem: Problem, clock: tuple[torch.Tensor, ...], states: torch.Tensor, *, apart: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Func at several times, and its derivatives by the states there; [G, S, d] and [S, n, n] with n = G · d.

    Where groups are `apart`, as samples are, each depends on itself alone: the derivatives are [G, S, d, d].
    """
    groups, count, d = states.shape
    n = d if apart else groups * d
    # A slope depends on the state of its own point alone: one pass gives a row for all points.
    rows = torch.eye(n, dtype=states.dtype, device=states.device).view(n, 1 if apart else groups, 1, d)
    rows = rows.expand(n, *states.shape)
    order, shape = ((1, 2, 0, 3), (groups, count, n, n)) if apart else ((2, 0, 1, 3), (count, n, n))
    if torch.is_inference_mode_enabled():
        # Which has no derivatives: differences are good enough to converge; each component moves by its own size.
        slopes, columns, lengths = problem.slopes(clock, states), [], states.abs().amax(1, keepdim=True)
        lengths = max(_DIFFERENCE, torch.finfo(states.dtype).eps ** 0.5) * torch.where(lengths > 0, lengths, 1.0)
        for row in rows:
            moved = torch.where(row > 0, states + lengths, states)
            rounded = torch.where(row > 0, moved - states, 0.0).sum(-1 if apart else (0, -1), keepdim=True)
            columns.append((problem.slopes(clock, moved) - slopes) / rounded)
        by_column = torch.stack(columns) if columns else rows
        return slopes, by_column.permute(order).reshape(shape).mT
    transformed = being_transformed()
    if transformed and not apart:
        each = zip(clock, states.unbind(1), strict=True)
        wholes = [torch.func.jacrev(partial(problem.packed_slope, time))(state) for time, state in each]
        return problem.slopes(clock, states), torch.stack([whole.reshape(n, n) for whole in wholes])
    long_enough = n >= _FEWEST_MAPPED and problem.n_evaluations >= _MAPPED_AFTER
    if problem.can_be_mapped and long_enough and not apart and not transformed:
        try:
            with outside_of_saved_tensor_hooks():  # such as a checkpoint's, inside of which `jacrev` does not run
                by_map = _mapped_jacobians(problem, clock, states)
        except NOT_MAPPED:
            problem.can_be_mapped = False
        else:
            problem.is_mapped = True
            return by_map
    with torch.enable_grad(), unhooked(transformed):
        at = states.detach().requires_grad_()
        slopes = problem.slopes(clock, at, transformed=transformed)
        found = pulled_back(slopes, at, rows) if n and slopes.requires_grad else None
    found = torch.zeros_like(rows) if found is None else found  # where func does not look at the state
    return slopes.detach(), found.permute(order).reshape(shape)


def _mapped_jacobians(
    problem: Problem, clock: tuple[torch.Tensor, ...], states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same for all points in one call of func, inside `torch.func.vmap`."""

    def twice(time: torch.Tensor, packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        slope = problem.mapped_slope(time, packed)
        return slope, slope

    slopes, jacobians = problem.mapped(torch.func.jacrev(twice, 1, has_aux=True), clock, states)[::-1]
    n = states[:, 0].numel()
    return slopes.detach().transpose(0, 1), jacobians.detach().reshape(-1, n, n)


class Products:
    """Func's derivatives at points [G, S, d], times any directions; `of_states` is the product with the points.

    What a pass backward gives is linear in the cotangent: its own derivative is the product wanted.
    """

    def __init__(self, problem: Problem, clock: tuple[torch.Tensor, ...], states: torch.Tensor) -> None:
        self.unit = component_sizes(states)
        with torch.inference_mode(False), torch.enable_grad(), unhooked():
            at = states.detach().clone().requires_grad_()
            slopes = problem.slopes(tuple(time.detach().clone() for time in clock), at)
            self._cotangent = torch.zeros_like(slopes, requires_grad=True)
            try:
                (self._back,) = torch.autograd.grad(slopes, at, self._cotangent, create_graph=True)
                self.of_states = self(states)
            except (RuntimeError, FracdnnError) as error:
                raise InvalidArgumentError(
                    f"func must have second derivatives where it is stiff and its {at.shape[-1]} components all depend "
                    f"on one another, got: {error}; write it in torch's operations, or pass method='adams' and n_steps="
                ) from error

    def __call__(self, direction: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode(False):
            (along,) = torch.autograd.grad(self._back, self._cotangent, direction.clone().to(self._back), True)
        return along


def pulled_back(slopes: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor | None:
    """Rows [K, *slopes.shape] times the Jacobian by `at`; None where slopes do not depend on it.

    All at once where there are many and func's operations can be batched.
    """
    back: Callable[..., tuple[torch.Tensor | None, ...]] = partial(
        torch.autograd.grad, slopes, at, retain_graph=True, allow_unused=True
    )
    try:
        if len(rows) > _ROW_BY_ROW:
            try:
                return back(rows, is_grads_batched=True)[0]
            except RuntimeError as error:
                if "use_reentrant" in str(error):
                    raise
                # An operation of func's has no rule for batches.
        found = [back(row)[0] for row in rows]
    except RuntimeError as error:
        if "use_reentrant" not in str(error):
            raise
        raise InvalidArgumentError(
            "func must not use torch.utils.checkpoint with use_reentrant=True in an implicit method, which needs "
            "its derivatives, got that; pass use_reentrant=False to checkpoint, or method='adams' and n_steps="
        ) from error
    return None if found[0] is None else torch.stack(found)  # type: ignore[arg-type]
