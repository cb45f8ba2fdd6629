"""The paper's optimizer: BFGS with Armijo's line search, a `torch.optim.Optimizer` with a closure."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, NamedTuple

import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.validation import check_choice, check_count

# The usual constants of Armijo's rule: the decrease that a length must give as a fraction of the slope's, the bounds of
# the next length as fractions of the refused one (Kelley 1999, section 3.2), and the budget of one search.
DECREASE, SHORTEST, LONGEST, MAX_TRIALS = 1e-4, 0.1, 0.5, 20
# The update of H is skipped if sᵀy is at most this fraction of ‖s‖‖y‖, where rounding decides its sign.
SMALLEST_CURVATURE = 1e-10


class Status(StrEnum):
    """The reason why an optimizer stopped."""

    CONVERGED = "converged"
    ITERATION_LIMIT = "iteration limit"
    LINE_SEARCH_FAILED = "line search failed"
    NOT_FINITE = "not finite"


@dataclass(frozen=True)
class Result:
    """Summary of one `step`; `line_search_trials` counts the trial points of all line searches."""

    status: Status
    loss: float
    gradient_norm: float
    iterations: int
    evaluations: int
    line_search_trials: int


@dataclass(frozen=True)
class Iteration:
    """Summary of one iteration, passed to the callback; parameters and their `.grad` are those of the new point."""

    iteration: int
    loss: float
    gradient_norm: float
    length: float
    line_search_trials: int


def search(value: Callable[[float], float], start: float, slope: float, length: float) -> float | None:
    """Return a length t with f(x + td) ≤ f(x) + DECREASE · t · ⟨∇f, d⟩ (Armijo's rule), or None.

    f(x + td) is value(t), f(x) is `start`, ⟨∇f, d⟩ < 0 is `slope`, and `length` the first trial. The next one minimizes
    the quadratic through f(x), the slope and the trial, or the cubic through the trial before too. The last call of
    `value` is the one with the returned length.
    """
    previous: tuple[float, float] | None = None
    for _ in range(MAX_TRIALS):
        trial, next_length = value(length), length * SHORTEST
        # The value must be below the start itself: for a tiny length the bound rounds to the start.
        if math.isfinite(trial) and trial < start and trial <= start + DECREASE * length * slope:
            return length
        if math.isfinite(trial):
            minimizer = _minimize_model(start, slope, length, trial, previous)
            next_length = min(max(minimizer, next_length), length * LONGEST)
            previous = (length, trial)
        length = next_length
    return None


def _minimize_model(start: float, slope: float, t: float, f: float, previous: tuple[float, float] | None) -> float:
    """Return the minimizer of the quadratic through the trial (t, f), or of the cubic through the previous one too."""
    quadratic = -slope * t * t / (2.0 * (f - start - slope * t))
    if previous is None:
        return quadratic
    u, g = previous
    first, second = (f - start - slope * t) / (t * t), (g - start - slope * u) / (u * u)
    a, b = (first - second) / (t - u), (u * -first + t * second) / (t - u)
    discriminant = b * b - 3.0 * a * slope
    if discriminant < 0.0:
        return quadratic
    root = math.sqrt(discriminant)
    # Both forms are the same number. The first does not cancel for b > 0, where the cubic is almost a quadratic.
    return -slope / (b + root) if b > 0.0 else (root - b) / (3.0 * a) if a else quadratic


class _Point(NamedTuple):
    """A position (all parameters in one row) with the objective's value and gradient there."""

    position: torch.Tensor
    loss: float
    gradient: torch.Tensor
    gradient_norm: float


class _Group(dict[str, Any]):
    """Parameter group without a learning rate, so that learning-rate schedulers are refused."""

    def __missing__(self, key: str) -> Any:
        raise InvalidArgumentError(
            f"param_groups must be left without {key!r} and learning-rate schedulers, got one for an optimizer that "
            f"searches for the length of each step; leave it out, or use an optimizer such as torch.optim.Adam"
        )

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value) if key in ("params", "param_names") else self.__missing__(key)


class BFGS(torch.optim.Optimizer):
    """BFGS with Armijo's line search, as in the paper: O(n²) memory and work for n parameters.

    One `step` runs up to `max_iter` iterations on one objective, until the norm of the gradient is at most
    `tolerance_grad`. `callback` is called after each; `result` says why the step stopped. The parameters end at the
    best accepted point, also if the closure raises. The next step continues with the same H until `reset()`.

    The direction is −H∇f with H ← (I − ρ s yᵀ) H (I − ρ y sᵀ) + ρ s sᵀ, ρ = 1/(yᵀs), for a step s that changes the
    gradient by y; updates with sᵀy ≤ 0 are skipped. If −H∇f leads uphill or its search fails, H is dropped and
    steepest descent is tried once.

    With `initial_matrix="scaled"` the first length is at most 1/‖g‖₁, and before its first update H = I is multiplied
    by sᵀs/sᵀy (Nocedal & Wright, eq. 6.17; the longer of the two usual scales, since BFGS corrects too large an H
    faster). With "identity" H starts as I and the first length is 1, as in textbooks.

    With `history_size` H is not stored: it is made of the last steps, starting from sᵀy/yᵀy of the newest (L-BFGS,
    Nocedal & Wright, Alg. 7.4), in O(history_size · n).
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        max_iter: int = 100,
        tolerance_grad: float = 1e-6,
        initial_matrix: Literal["scaled", "identity"] = "scaled",
        history_size: int | None = None,
        callback: Callable[[Iteration], None] | None = None,
    ) -> None:
        super().__init__(params, {})
        self._scaled = check_choice(initial_matrix, "initial_matrix", ("scaled", "identity")) == "scaled"
        self.max_iter = check_count(max_iter, "max_iter", minimum=1)
        if not 0.0 <= tolerance_grad < math.inf:
            raise InvalidArgumentError(
                f"tolerance_grad must be finite and not negative, got {tolerance_grad}; 1e-6 is usual"
            )
        self.tolerance_grad, self.callback = float(tolerance_grad), callback
        self.result: Result | None = None
        self._history_size = None if history_size is None else check_count(history_size, "history_size", minimum=1)
        self.reset()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add the only group, when the optimizer is made; raise for any other."""
        if self.param_groups:
            raise InvalidArgumentError(
                "params must be one group, got another; the search treats all parameters alike, so pass them together"
            )
        group = _Group()
        for key, value in param_group.items():
            group[key] = value
        super().add_param_group(group)

    def reset(self) -> None:
        """Forget the curvature learned so far, for another objective."""
        self._curvature: dict[str, torch.Tensor] = {}  # "matrix" is H, or "steps" and "changes" hold a pair per row

    def state_dict(self) -> dict[str, Any]:
        """Return the curvature, from which a training continues bit for bit, in the form of torch's optimizers."""
        groups = [{"params": list(range(len(self.param_groups[0]["params"])))}]
        return {"state": dict(self._curvature), "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state of an optimizer of as many parameters in the same dtype; raise for any other."""
        position, state = self._position(), dict(state_dict["state"])
        names = {"matrix"} if self._history_size is None else {"steps", "changes"}
        fits = all(value.dtype is position.dtype and value.shape[1:] == position.shape for value in state.values())
        rows = {len(value) for value in state.values()}
        if state and not (
            fits and state.keys() == names and len(rows) == 1 and ("steps" in names or rows == {len(position)})
        ):
            given = {name: (value.dtype, *value.shape) for name, value in state.items()}
            raise InvalidArgumentError(
                f"state_dict must be one of BFGS for {position.numel()} parameters in {position.dtype}, got {given}; "
                f"load one of the same network"
            )
        self._curvature = {name: value.to(position.device, copy=True) for name, value in state.items()}

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor | float] | None = None) -> torch.Tensor:  # type: ignore[override]
        """Run up to `max_iter` iterations and return the loss at the final point.

        The closure clears the gradients, computes the loss, calls backward on it and returns it.
        """
        if closure is None:
            raise InvalidArgumentError("closure must be given, got None; pass a function that returns the loss")
        position, iterations, evaluations = self._position(), 0, 1
        if any(value.shape[1:] != position.shape for value in self._curvature.values()):
            self.reset()  # Parameters were frozen or freed since the last step.
        try:
            point = self._evaluate(closure, position)
            while (status := self._status(point)) is Status.ITERATION_LIMIT and iterations < self.max_iter:
                accepted, length, trials = self._iterate(closure, point)
                evaluations += trials
                if accepted is None:
                    status = Status.LINE_SEARCH_FAILED
                    break
                point, position, iterations = accepted, accepted.position, iterations + 1
                if self.callback is not None:
                    self.callback(Iteration(iterations, point.loss, point.gradient_norm, length, trials))
        finally:
            self._move_to(position)
        for parameter, part in self._parts(point.gradient):
            parameter.grad = part.to(parameter.dtype, copy=True)
        self.result = Result(status, point.loss, point.gradient_norm, iterations, evaluations, evaluations - 1)
        return position.new_tensor(point.loss)

    def _iterate(self, closure: Callable[[], Any], start: _Point) -> tuple[_Point | None, float, int]:
        """Return the next point (None if all searches failed), the length of the step and the number of trials."""
        is_steepest, direction = not self._curvature, self._direction(start.gradient)
        slope, first, length = float(start.gradient @ direction), 1.0, None
        if is_steepest and self._scaled:
            first = min(1.0, 1.0 / max(float(start.gradient.abs().sum()), 1e-30))
        trials: list[_Point] = []

        def value(length: float) -> float:
            trials.append(self._evaluate(closure, torch.add(start.position, direction, alpha=length)))
            # A finite loss with a gradient that is not finite would end the training: refuse it like a bad loss.
            return math.inf if self._status(trials[-1]) is Status.NOT_FINITE else trials[-1].loss

        if is_steepest or slope < 0.0:
            length = search(value, start.loss, slope, first)
        if length is not None:
            self._update(length * direction, trials[-1].gradient - start.gradient)
            return trials[-1], length, len(trials)
        if is_steepest:
            return None, 0.0, len(trials)
        self.reset()
        point, length, more = self._iterate(closure, start)
        return point, length, len(trials) + more

    def _direction(self, gradient: torch.Tensor) -> torch.Tensor:
        """Return −H∇f; steepest descent while no curvature is known."""
        if not self._curvature:
            return -gradient
        if self._history_size is None:
            return -(self._curvature["matrix"] @ gradient)
        q, weights = gradient.clone(), []
        pairs = list(zip(self._curvature["steps"], self._curvature["changes"], strict=True))
        for step, change in reversed(pairs):
            weights.append((step @ q) / (step @ change))
            q -= weights[-1] * change
        step, change = pairs[-1]
        q *= (step @ change) / (change @ change)
        for (step, change), weight in zip(pairs, reversed(weights), strict=True):
            q += (weight - (change @ q) / (step @ change)) * step
        return -q

    def _update(self, step: torch.Tensor, change: torch.Tensor) -> None:
        """Learn the curvature of a step s that changed the gradient by y."""
        curvature, norms = float(step @ change), float(step.norm()) * float(change.norm())
        if not curvature > SMALLEST_CURVATURE * norms:
            return
        if self._history_size is not None:
            for name, row in (("steps", step), ("changes", change)):
                rows = torch.cat([self._curvature.get(name, row.new_empty(0, len(row))), row[None]])
                self._curvature[name] = rows[-self._history_size :]
            return
        if not self._curvature:
            scale = (step @ step) / curvature if self._scaled else step.new_ones(())
            self._curvature["matrix"] = torch.diag(scale.expand(step.numel())).contiguous()
        matrix, rho = self._curvature["matrix"], 1.0 / curvature
        image = matrix @ change
        factor = rho * (1.0 + rho * float(change @ image))
        # The symmetric form of the update is one product of two columns and two rows, which reads H once.
        correction = torch.add(step * (0.5 * factor), image, alpha=-rho)
        matrix.addmm_(torch.stack([step, correction]).T, torch.stack([correction, step]))

    def _evaluate(self, closure: Callable[[], Any], position: torch.Tensor) -> _Point:
        self._move_to(position)
        with torch.enable_grad():
            loss = closure()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p, _ in self._parts(position)]
        gradient = torch.cat([part.reshape(-1) for part in gradients])
        number = float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        return _Point(position, number, gradient, float(gradient.norm()))

    def _status(self, point: _Point) -> Status:
        """Return the reason to stop at a point, or the iteration limit if there is none."""
        # The norm of a finite gradient may overflow.
        if math.isfinite(point.loss) and (math.isfinite(point.gradient_norm) or bool(point.gradient.isfinite().all())):
            return Status.CONVERGED if point.gradient_norm <= self.tolerance_grad else Status.ITERATION_LIMIT
        return Status.NOT_FINITE

    def _position(self) -> torch.Tensor:
        """Return the trained parameters in one row: those that require a gradient now."""
        parameters = self.param_groups[0]["params"]
        return torch.cat([p.detach().reshape(-1) for p in parameters if p.requires_grad])

    def _parts(self, row: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return each trained parameter with its part of a row."""
        parameters = [p for p in self.param_groups[0]["params"] if p.requires_grad]
        parts = row.split([p.numel() for p in parameters])
        return [(p, part.view_as(p)) for p, part in zip(parameters, parts, strict=True)]

    def _move_to(self, position: torch.Tensor) -> None:
        for parameter, part in self._parts(position):
            parameter.copy_(part)
