"""Where to go: search directions from gradients, each a small state that learns from the steps taken."""

from abc import ABC, abstractmethod
from typing import Any

import torch


class Direction(ABC):
    """A descent direction, and what it has learned: `state`, tensors and lists of them, so that it can be saved.

    Without a state it is the direction of steepest descent, unscaled: its first step needs a length.
    """

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    @abstractmethod
    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        """A direction for this gradient."""

    @abstractmethod
    def update(self, step: torch.Tensor, gradient_change: torch.Tensor, curvature: float) -> None:
        """Learn from a step s that changed the gradient by y; its curvature sᵀy is positive."""

    @abstractmethod
    def first_length(self, gradient: torch.Tensor, last: float | None) -> float:
        """How far to try first; `last` is the length of the step before."""

    @abstractmethod
    def fits(self, shapes: dict[str, tuple[int, ...]], n: int) -> bool:
        """Whether a state of these shapes can be one of n parameters."""


class Steepest(Direction):
    """−∇f."""

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient

    def update(self, step: torch.Tensor, gradient_change: torch.Tensor, curvature: float) -> None:
        pass

    def first_length(self, gradient: torch.Tensor, last: float | None) -> float:
        return 1.0 if last is None else 2.0 * last

    def fits(self, shapes: dict[str, tuple[int, ...]], n: int) -> bool:
        return not shapes


class InverseHessian(Direction):
    """−H∇f with the full inverse-Hessian approximation of BFGS; O(n²) memory and work.

    H ← (I − ρ s yᵀ) H (I − ρ y sᵀ) + ρ s sᵀ, ρ = 1/(yᵀs), from H = I. If `scaled`, the first step is of unit size at
    most, and before the first update H becomes sᵀs/sᵀy · I (Nocedal & Wright, eq. 6.17; the longer of the two usual
    scales, since BFGS corrects too large an H faster).
    """

    def __init__(self, *, scaled: bool = True) -> None:
        super().__init__()
        self._scaled = scaled

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        return -(self.state["matrix"] @ gradient) if self.state else -gradient

    def update(self, step: torch.Tensor, gradient_change: torch.Tensor, curvature: float) -> None:
        if not self.state:
            scale = (step @ step) / curvature if self._scaled else step.new_ones(())
            self.state["matrix"] = torch.diag(scale.expand(step.numel())).contiguous()
        matrix = self.state["matrix"]
        image = matrix @ gradient_change
        rho = 1.0 / curvature
        inner = gradient_change @ image
        factor = rho * (1.0 + rho * (inner if inner.is_cuda else float(inner)))
        # The symmetric form of the update above, as one product of two columns and two rows: H is gone through once.
        correction = torch.add(step * (0.5 * factor), image, alpha=-rho)
        matrix.addmm_(torch.stack([step, correction]).T, torch.stack([correction, step]))

    def first_length(self, gradient: torch.Tensor, last: float | None) -> float:
        return _quasi_newton_length(gradient, self._scaled and not self.state)

    def fits(self, shapes: dict[str, tuple[int, ...]], n: int) -> bool:
        return shapes in ({}, {"matrix": (n, n)})


class LimitedMemory(Direction):
    """−H∇f with H from the last few steps by the two-loop recursion (Nocedal & Wright, Alg. 7.4)."""

    def __init__(self, memory: int) -> None:
        super().__init__()
        self._memory = memory

    def direction(self, gradient: torch.Tensor) -> torch.Tensor:
        if not self.state:
            return -gradient
        q = gradient.clone()
        weights = []
        pairs = list(zip(self.state["steps"], self.state["changes"], strict=True))
        for step, change in reversed(pairs):
            weight = (step @ q) / (step @ change)
            weights.append(weight)
            q -= weight * change
        step, change = pairs[-1]
        q *= (step @ change) / (change @ change)
        for (step, change), weight in zip(pairs, reversed(weights), strict=True):
            q += (weight - (change @ q) / (step @ change)) * step
        return -q

    def update(self, step: torch.Tensor, gradient_change: torch.Tensor, curvature: float) -> None:
        for name, latest in (("steps", step), ("changes", gradient_change)):
            self.state[name] = [*self.state.get(name, ()), latest][-self._memory :]

    def first_length(self, gradient: torch.Tensor, last: float | None) -> float:
        return _quasi_newton_length(gradient, not self.state)

    def fits(self, shapes: dict[str, tuple[int, ...]], n: int) -> bool:
        k = shapes.get("steps", ())[:1]
        return not shapes or (k > (0,) and shapes == dict.fromkeys(("steps", "changes"), (*k, n)))


def _quasi_newton_length(gradient: torch.Tensor, unit_size: bool) -> float:
    """1, the Newton step; before any curvature is known, a step of unit size at most."""
    return min(1.0, 1.0 / max(float(gradient.abs().sum()), 1e-30)) if unit_size else 1.0
