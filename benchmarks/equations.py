"""Equations with a parameter, and solutions and gradients that are known: what solvers are measured on.

Each is d_t^order u = field(t, u, parameter) to a final time, in torch and, for packages without it, in NumPy.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fracdnn import fdeint
from fracdnn.caputo import mittag_leffler

FLOAT64 = torch.float64


class Equation(ABC):
    """A problem in float64; the loss is the solution's sum at the end."""

    order: float
    T: float
    y0: torch.Tensor
    slope: torch.Tensor | None = None  # for an order above 1
    parameter: torch.Tensor

    @abstractmethod
    def field(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """In torch, with the parameter as a leaf."""

    @abstractmethod
    def plain_field(self, t: float, y: np.ndarray) -> np.ndarray:
        """In NumPy."""

    def plain_jacobian(self, t: float, y: np.ndarray) -> np.ndarray:
        """∂field/∂y, for implicit methods."""
        raise NotImplementedError

    @property
    @abstractmethod
    def exact(self) -> list[torch.Tensor]:
        """The solution at T, and the gradient of its sum for the parameter."""

    @property
    def start(self) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """As `fdeint` takes it."""
        return self.y0 if self.slope is None else (self.y0, self.slope)


class Singular(Equation):
    """P1: a right-hand side made for u = t⁸ − 3 t^(4+α/2) + 9/4 t^α, not smooth at 0; Diethelm, Ford, Freed, 2004.

    Here − k u^(3/2) with k = 1; its gradient for k is a solution of the collocation at 1e-12.
    """

    order, T = 0.5, 1.0

    def __init__(self) -> None:
        self.y0 = torch.zeros((), dtype=FLOAT64)
        self.parameter = torch.ones((), dtype=FLOAT64, requires_grad=True)
        a, gamma = self.order, math.gamma
        self._factors = 40320 / gamma(9 - a), 3 * gamma(5 + a / 2) / gamma(5 - a / 2), 2.25 * gamma(a + 1)

    def _source(self, t: Any) -> Any:
        first, second, constant = self._factors
        a = self.order
        return first * t ** (8 - a) - second * t ** (4 - a / 2) + constant + self._root(t) ** 3

    def _root(self, t: Any) -> Any:
        """√u."""
        return 1.5 * t ** (self.order / 2) - t**4

    def field(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self._source(t) - self.parameter * y**1.5

    def plain_field(self, t: float, y: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # a method that steps below 0 gets NaN, as it does in torch
            return self._source(t) - y**1.5

    def plain_jacobian(self, t: float, y: np.ndarray) -> np.ndarray:
        return -1.5 * y**0.5

    @cached_property
    def exact(self) -> list[torch.Tensor]:
        return [torch.tensor(0.25, dtype=FLOAT64), self._sensitivity()]

    @torch.no_grad()
    def _sensitivity(self) -> torch.Tensor:
        """∂u/∂k = s solves d_t^α s = −u^(3/2) − 3/2 u^(1/2) s with the known u = w²: no solver's gradient is asked."""

        def field(t: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
            w = self._root(t)
            return -(w**3) - 1.5 * w * s

        way = {"method": "collocation", "rtol": 1e-12, "atol": 1e-13, "trajectory": False}
        return fdeint(field, self.y0, [0.0, self.T], order=self.order, **way)


class Relaxation(Equation):
    """P6: d_t^0.5 u = −k u with k = 4, u = u_0 erfcx(k √t)."""

    order, T = 0.5, 1.0

    def __init__(self) -> None:
        self.y0 = torch.tensor(0.5, dtype=FLOAT64)
        self.parameter = torch.tensor(4.0, dtype=FLOAT64, requires_grad=True)

    def field(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return -self.parameter * y

    def plain_field(self, t: float, y: np.ndarray) -> np.ndarray:
        return -4.0 * y

    def plain_jacobian(self, t: float, y: np.ndarray) -> np.ndarray:
        return np.full_like(y, -4.0)

    @cached_property
    def exact(self) -> list[torch.Tensor]:
        return _with_slope(lambda k: 0.5 * mittag_leffler(-k, self.order), 4.0)


class Oscillation(Equation):
    """P7: d_t^1.8 u = 1 − k u from rest with k = 1, u = t^α E_{α,α+1}(−k t^α): a damped oscillation about 1/k."""

    order, T = 1.8, 10.0

    def __init__(self) -> None:
        self.y0 = torch.zeros((), dtype=FLOAT64)
        self.slope = torch.zeros((), dtype=FLOAT64)
        self.parameter = torch.ones((), dtype=FLOAT64, requires_grad=True)

    def field(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 1.0 - self.parameter * y

    def plain_field(self, t: float, y: np.ndarray) -> np.ndarray:
        return 1.0 - y

    def plain_jacobian(self, t: float, y: np.ndarray) -> np.ndarray:
        return np.full_like(y, -1.0)

    @cached_property
    def exact(self) -> list[torch.Tensor]:
        power = self.T**self.order
        return _with_slope(lambda k: power * mittag_leffler(-k * power, self.order, self.order + 1.0), 1.0)


class NeuralField(Equation):
    """d_t^order u = tanh(u A) − u for 256 samples in 32 dimensions; the reference is the collocation at 1e-11."""

    T = 1.0

    def __init__(self, order: float = 0.5, shape: tuple[int, int] = (256, 32)) -> None:
        generator = torch.Generator().manual_seed(0)
        self.order = order
        self.y0 = torch.randn(shape, dtype=FLOAT64, generator=generator)
        matrix = torch.randn(shape[1], shape[1], dtype=FLOAT64, generator=generator) / math.sqrt(shape[1])
        self.parameter = matrix.requires_grad_()
        self._plain = matrix.detach().numpy()

    def field(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(y @ self.parameter) - y

    def plain_field(self, t: float, y: np.ndarray) -> np.ndarray:
        states = y.reshape(self.y0.shape)
        return (np.tanh(states @ self._plain) - states).reshape(-1)

    @cached_property
    def exact(self) -> list[torch.Tensor]:
        return referred(self, 1e-11)


def referred(equation: Equation, rtol: float) -> list[torch.Tensor]:
    """Solution and gradient by our own method of highest order."""
    way = {"method": "collocation", "rtol": rtol, "atol": rtol}
    end = fdeint(equation.field, equation.start, [0.0, equation.T], order=equation.order, trajectory=False, **way)
    (gradient,) = torch.autograd.grad(end.sum(), equation.parameter)
    return [end.detach(), gradient]


def _with_slope(solution: Callable[[torch.Tensor], torch.Tensor], at: float) -> list[torch.Tensor]:
    k = torch.tensor(at, dtype=FLOAT64, requires_grad=True)
    value = solution(k)
    (slope,) = torch.autograd.grad(value, k)
    return [value.detach(), slope]
