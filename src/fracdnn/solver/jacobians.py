"""Func's derivatives by the state, at several times at once."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.solver.problem import Problem
from fracdnn.tracing import being_transformed

_ROW_BY_ROW = 8  # components up to which rows of a Jacobian come one by one
_DIFFERENCE = 1e-5  # of a state, by which it moves: far enough for a func that computes in single precision


def unhooked() -> AbstractContextManager[None]:
    """Keep hooks of the caller's on saved tensors, such as those of a checkpoint, off a graph that is used up here."""
    if being_transformed():  # which knows no such hooks
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def slopes_with_jacobians(
    problem: Problem, clock: tuple[torch.Tensor, ...], states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Func at several times, and its derivatives by the states there; [G, S, d] and [S, n, n] with n = G · d."""
    groups, count, d = states.shape
    n = groups * d
    if torch.is_inference_mode_enabled():
        return _by_differences(problem, clock, states)
    if being_transformed():
        each = zip(clock, states.unbind(1), strict=True)
        found = [torch.func.jacrev(partial(problem.packed_slope, time))(state) for time, state in each]
        return problem.slopes(clock, states), torch.stack([whole.reshape(n, n) for whole in found])
    with torch.enable_grad(), unhooked():
        at = states.detach().requires_grad_()
        slopes = problem.slopes(clock, at)
        if not n or not slopes.requires_grad:  # func does not look at the state
            return slopes.detach(), states.new_zeros(count, n, n)
        # A slope depends on the state of its own point alone: one pass gives a row for all points.
        rows = torch.eye(n, dtype=slopes.dtype, device=slopes.device).view(n, groups, 1, d).expand(n, groups, count, d)
        whole = pulled_back(slopes, at, rows)
    if whole is None:
        return slopes.detach(), states.new_zeros(count, n, n)
    return slopes.detach(), whole.permute(2, 0, 1, 3).reshape(count, n, n)


def slopes_with_own_jacobians(
    problem: Problem, clock: tuple[torch.Tensor, ...], states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same where a group depends on itself alone, as samples do; the derivatives are [G, S, d, d]."""
    groups, count, d = states.shape
    if torch.is_inference_mode_enabled():
        slopes, columns = problem.slopes(clock, states), []
        for component, lengths in enumerate(_differences(states).unbind(-1)):
            moved = states.clone()
            moved[..., component] += lengths[:, None]
            step = moved[..., component] - states[..., component]
            columns.append((problem.slopes(clock, moved) - slopes) / step[..., None])
        return slopes, torch.stack(columns, dim=-1)
    with torch.enable_grad(), unhooked():
        at = states.detach().requires_grad_()
        slopes = problem.slopes(clock, at)
        whole = None
        if slopes.requires_grad:
            rows = torch.eye(d, dtype=slopes.dtype, device=slopes.device).view(d, 1, 1, d)
            whole = pulled_back(slopes, at, rows.expand(d, groups, count, d))
    return slopes.detach(), states.new_zeros(*states.shape, d) if whole is None else whole.permute(1, 2, 0, 3)


def slopes_along(
    problem: Problem, clock: tuple[torch.Tensor, ...], states: torch.Tensor, direction: torch.Tensor
) -> torch.Tensor | None:
    """Func's derivatives along a direction [G, S, d], of the same shape; None where it has none.

    By two passes backward: what the first gives is linear in the cotangent, whose derivative is the product wanted.
    """
    with torch.enable_grad(), unhooked():
        at = states.detach().requires_grad_()
        slopes = problem.slopes(clock, at)
        if not slopes.requires_grad:
            return None
        cotangent = torch.zeros_like(slopes, requires_grad=True)
        try:
            (back,) = torch.autograd.grad(slopes, at, cotangent, create_graph=True, allow_unused=True)
            if back is None or not back.requires_grad:
                return None
            (along,) = torch.autograd.grad(back, cotangent, direction.to(back), allow_unused=True)
        except RuntimeError:  # an operation of func's has no second derivatives, or is a checkpoint
            return None
    return along


def pulled_back(slopes: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor | None:
    """Rows [K, *slopes.shape] times the Jacobian by `at`; None where slopes do not depend on it."""
    try:
        return _pulled_back(slopes, at, rows)
    except RuntimeError as error:
        if "use_reentrant" not in str(error):
            raise
        raise InvalidArgumentError(
            "func must not use torch.utils.checkpoint with use_reentrant=True in an implicit method, which needs "
            "its derivatives, got that; pass use_reentrant=False to checkpoint, or method='adams' and n_steps="
        ) from error


def _pulled_back(slopes: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor | None:
    """All rows, at once where there are many and func's operations can be batched."""
    back: Callable[..., tuple[torch.Tensor | None, ...]] = partial(
        torch.autograd.grad, slopes, at, retain_graph=True, allow_unused=True
    )
    if len(rows) > _ROW_BY_ROW:
        try:
            return back(rows, is_grads_batched=True)[0]
        except RuntimeError as error:
            if "use_reentrant" in str(error):
                raise
            # An operation of func's has no rule for batches.
    found = [back(row)[0] for row in rows]
    return None if found[0] is None else torch.stack(found)  # type: ignore[arg-type]


def _by_differences(
    problem: Problem, clock: tuple[torch.Tensor, ...], states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """For inference mode, which has no derivatives: good enough to converge; each component moves by its own size."""
    groups, count, d = states.shape
    slopes, lengths = problem.slopes(clock, states), _differences(states)
    columns = []
    for group in range(groups):
        for component in range(d):
            moved = states.clone()
            moved[group, :, component] += lengths[group, component]
            step = moved[group, :, component] - states[group, :, component]  # as it was rounded
            columns.append((problem.slopes(clock, moved) - slopes) / step[None, :, None])
    n = groups * d
    if not n:
        return slopes, states.new_zeros(count, n, n)
    return slopes, torch.stack(columns).permute(2, 1, 3, 0).reshape(count, n, n)


def _differences(states: torch.Tensor) -> torch.Tensor:
    """How far components [G, d] of states [G, S, d] move."""
    lengths = states.abs().amax(1)
    return max(_DIFFERENCE, torch.finfo(states.dtype).eps ** 0.5) * torch.where(lengths > 0, lengths, 1.0)
