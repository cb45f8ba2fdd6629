"""Optimizers for any module: a direction times a line search, as `torch.optim.Optimizer`s with a closure.

A step is `max_iter` iterations on one objective. Failure is a value: `result` says why the last step stopped. The
parameters end at the best point that was accepted, never at a worse or a non-finite one, also if the closure raises.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

import torch
from torch.linalg import vector_norm

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.optim.directions import Armijo, InverseHessian, LimitedMemory, search
from fracdnn.validation import check_choice, check_count, check_positive

Closure = Callable[[], torch.Tensor | float]
INITIAL_MATRICES = ("scaled", "identity")

# sᵀy below this fraction of ‖s‖‖y‖ tells nothing of the curvature.
_CURVATURE = 1e-10


class Status(StrEnum):
    """Why an optimizer stopped."""

    CONVERGED = "converged"
    ITERATION_LIMIT = "iteration limit"
    LINE_SEARCH_FAILED = "line search failed"
    NOT_FINITE = "not finite"


@dataclass(frozen=True)
class Result:
    """What one step did. `line_search_trials` counts the trial points of all line searches."""

    status: Status
    loss: float
    gradient_norm: float
    iterations: int
    evaluations: int
    line_search_trials: int


@dataclass(frozen=True)
class Iteration:
    """What a callback is told after an iteration; parameters and their `.grad` are those of the new point."""

    iteration: int
    loss: float
    gradient_norm: float
    length: float
    line_search_trials: int


@dataclass(frozen=True)
class _Point:
    """A point and what the closure found there, parameters in one row."""

    position: torch.Tensor
    loss: float
    gradient: torch.Tensor
    gradient_norm: float

    @property
    def is_smooth(self) -> bool:
        """Whether the gradient is finite; its norm may be too large for a number where it is."""
        return math.isfinite(self.gradient_norm) or bool(torch.isfinite(self.gradient).all())


class _Group(dict[str, Any]):
    """The parameters. There is no learning rate or other setting of a group to read or set: schedulers are refused."""

    def __missing__(self, key: str) -> Any:
        raise InvalidArgumentError(
            f"param_groups must be left without {key!r} and learning-rate schedulers, got one for an optimizer that "
            f"searches for the length of each step; leave it out, or use an optimizer such as torch.optim.Adam"
        )

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in ("params", "param_names"):
            self.__missing__(key)
        super().__setitem__(key, value)


class LineSearchOptimizer(torch.optim.Optimizer):
    """Common to all: iterate direction, search, update. Use BFGS, LBFGS or SteepestDescent.

    A step stops after `max_iter` iterations, or when the norm of the gradient is at most `tolerance_grad` (1e-6 as in
    the paper). `line_search` holds Armijo's constants; `callback` is told of each iteration. There is no learning rate,
    so torch's learning-rate schedulers are refused.
    """

    def __init__(
        self,
        params: Iterable[Any],
        direction: InverseHessian | LimitedMemory,
        *,
        max_iter: int = 100,
        tolerance_grad: float = 1e-6,
        line_search: Armijo = Armijo(),  # noqa: B008
        callback: Callable[[Iteration], None] | None = None,
    ) -> None:
        super().__init__(params, {})
        self._parameters = self._trained()
        self.max_iter = check_count(max_iter, "max_iter", minimum=1)
        self.tolerance_grad = float(tolerance_grad)
        if not (math.isfinite(self.tolerance_grad) and self.tolerance_grad >= 0):
            raise InvalidArgumentError(
                f"tolerance_grad must be finite and not negative, got {tolerance_grad}; 1e-6 is usual"
            )
        self.line_search = line_search
        self.callback = callback
        self.result: Result | None = None
        self._direction = direction
        self._length: float | None = None

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> torch.Tensor:  # type: ignore[override]
        """Up to `max_iter` iterations; the closure clears gradients, computes the loss, calls backward and returns it.

        Returns the loss at the final point; `result` has the rest.
        """
        if closure is None:
            raise InvalidArgumentError("closure must be given, got None; pass a function that returns the loss")
        trained = self._trained()
        if [id(p) for p in trained] != [id(p) for p in self._parameters]:
            self._parameters = trained
            self.reset()  # the curvature was that of others
        evaluations = 0

        def value_at(position: torch.Tensor) -> _Point:
            nonlocal evaluations
            self._move_to(position)
            evaluations += 1
            with torch.enable_grad():
                loss = closure()
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
            gradient = torch.cat([part.reshape(-1) for part in parts])
            number, norm = _numbers(loss.detach() if isinstance(loss, torch.Tensor) else loss, vector_norm(gradient))
            return _Point(position, number, gradient, norm)

        x, iterations = self._position(), 0
        try:
            point = value_at(x)
            status = self._status(point)
            while status is Status.ITERATION_LIMIT and iterations < self.max_iter:
                before, accepted = evaluations, self._iterate(point, value_at)
                if accepted is None:
                    status = Status.LINE_SEARCH_FAILED
                    break
                point, x, iterations = accepted, accepted.position, iterations + 1
                status = self._status(point)
                if self.callback is not None:
                    norm, length = point.gradient_norm, cast(float, self._length)
                    self.callback(Iteration(iterations, point.loss, norm, length, evaluations - before))
        finally:
            self._move_to(x)
        for parameter, part in zip(self._parameters, self._split(point.gradient), strict=True):
            parameter.grad = part.to(parameter.dtype, copy=True)
        # All evaluations but the first are trials.
        self.result = Result(status, point.loss, point.gradient_norm, iterations, evaluations, evaluations - 1)
        return torch.tensor(point.loss, dtype=x.dtype, device=x.device)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Once, for the group that it is made with; there is no other."""
        if self.param_groups:
            raise InvalidArgumentError(
                "params must be one group, got another; the search treats all parameters alike, so pass them together"
            )
        group = _Group()
        for key, value in param_group.items():
            group[key] = value
        super().add_param_group(group)

    def _trained(self) -> list[torch.Tensor]:
        """The parameters that require a gradient now: they may be frozen and freed between steps."""
        return [p for p in self.param_groups[0]["params"] if p.requires_grad]

    def reset(self) -> None:
        """Forget the curvature learned so far, for another objective."""
        self._direction.state = {}
        self._length = None

    def state_dict(self) -> dict[str, Any]:
        """Direction and last length: enough to go on as if nothing had happened. In the form of torch's optimizers."""
        learned = self._direction.state.items()
        tensors = {name: torch.stack(value) if isinstance(value, list) else value for name, value in learned}
        groups = [{"params": list(range(len(self.param_groups[0]["params"])))}]
        return {"state": {"direction": tensors, "length": self._length}, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what `state_dict` gave, of as many parameters of the same dtype; else nothing changes."""
        state, like = state_dict["state"], self._position()
        length = state["length"]
        length = None if length is None else check_positive(length, "length", remedy="load a state_dict of this class")
        direction = dict(state["direction"])
        found = {name: (value.dtype, *value.shape) for name, value in direction.items()}
        alike = all(value.dtype is like.dtype and value.shape[1:] == like.shape for value in direction.values())
        rows = {len(value) for value in direction.values()}  # as many steps as changes; a matrix is square
        alike = alike and len(rows) <= 1 and ("matrix" not in direction or rows == {like.numel()})
        if direction.keys() not in (set(), self._direction.names) or not alike:
            raise InvalidArgumentError(
                f"state_dict must be one of {type(self).__name__} for {like.numel()} parameters in {like.dtype}, "
                f"got {found}; load one of the same network"
            )
        self._direction.state = {name: value.to(like.device) for name, value in direction.items()}
        self._length = length

    def _status(self, point: _Point) -> Status:
        """The reason to stop at a point; where there is none, iterations may go on to their limit."""
        if not (math.isfinite(point.loss) and point.is_smooth):
            return Status.NOT_FINITE
        return Status.CONVERGED if point.gradient_norm <= self.tolerance_grad else Status.ITERATION_LIMIT

    def _iterate(self, start: _Point, value_at: Callable[[torch.Tensor], _Point]) -> _Point | None:
        """One iteration; a search that fails is tried again along steepest descent, once."""
        is_steepest, trials = not self._direction.state, list[_Point]()
        direction = self._direction.direction(start.gradient)
        slope, length = float(start.gradient @ direction), None

        def value(length: float) -> float:
            point = value_at(torch.add(start.position, direction, alpha=length))
            trials.append(point)
            # A finite loss with a gradient that is not finite would end the walk: it counts as a bad trial.
            return point.loss if point.is_smooth else math.inf

        if is_steepest or slope < 0.0:
            guess = self._direction.first_length(start.gradient, self._length)
            length = search(self.line_search, value, start.loss, slope, guess)
        if length is None:
            self._direction.state = {}
            return None if is_steepest else self._iterate(start, value_at)
        self._length = length
        step, change = length * direction, trials[-1].gradient - start.gradient
        curvature, *sizes = _numbers(step @ change, vector_norm(step), vector_norm(change))
        if curvature > _CURVATURE * math.prod(sizes):
            self._direction.update(step, change, curvature)
        return trials[-1]

    def _position(self) -> torch.Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self._parameters])

    def _move_to(self, position: torch.Tensor) -> None:
        for parameter, part in zip(self._parameters, self._split(position), strict=True):
            parameter.copy_(part)

    def _split(self, flat: torch.Tensor) -> list[torch.Tensor]:
        parts = flat.split([p.numel() for p in self._parameters])
        return [part.view_as(p) for part, p in zip(parts, self._parameters, strict=True)]


def _numbers(*values: torch.Tensor | float) -> list[float]:
    """As Python has them; those that are on a GPU come together, since each time is one to wait."""
    if all(isinstance(value, torch.Tensor) and value.is_cuda for value in values):
        numbers: list[torch.Tensor] = [value.double().reshape(()) for value in values]  # type: ignore[union-attr]
        return torch.stack([number.to(numbers[0].device) for number in numbers]).tolist()
    return [float(value) for value in values]


class BFGS(LineSearchOptimizer):
    """The paper's optimizer: full BFGS with Armijo search. Options as in `LineSearchOptimizer`.

    O(n²) memory and work for n parameters. The direction is reset to steepest descent when it is not one of descent;
    updates with sᵀy ≤ 0 are skipped.

    `initial_matrix` is what the inverse Hessian H begins with, at first and after each reset: "scaled" takes 1/‖g‖₁ as
    the first length and scales H = I before its first update, by the curvature found; "identity" is the textbook's
    H = I, first length 1, never scaled.

    Against SciPy's BFGS, which searches for Wolfe's conditions: 0.9 to 1.3 times its evaluations on the test functions
    of Rosenbrock, Beale and Powell; three times on a quadratic of condition 1000, where an exact search pays.
    """

    def __init__(self, params: Iterable[Any], *, initial_matrix: str = "scaled", **options: Any) -> None:
        scaled = check_choice(initial_matrix, "initial_matrix", INITIAL_MATRICES) == "scaled"
        super().__init__(params, InverseHessian(scaled=scaled), **options)


class LBFGS(LineSearchOptimizer):
    """Limited-memory BFGS with Armijo search: the curvature of the last `history_size` steps, O(history_size · n) work.

    Other options as in `LineSearchOptimizer`.
    """

    def __init__(self, params: Iterable[Any], *, history_size: int = 10, **options: Any) -> None:
        super().__init__(params, LimitedMemory(check_count(history_size, "history_size", minimum=1)), **options)


class SteepestDescent(LineSearchOptimizer):
    """Steepest descent with Armijo search; a search starts from twice the last length.

    Options as in `LineSearchOptimizer`.
    """

    def __init__(self, params: Iterable[Any], **options: Any) -> None:
        super().__init__(params, LimitedMemory(0), **options)
