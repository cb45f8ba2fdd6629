"""The memory weights as a series in the order, for training that changes the order in each step.

The formulas in `weights` take some seventy operations, and as many on the way back: longer than a step of a small
network. But powers of a lag are entire functions of the order, so a Chebyshev series on (0, 1) of low degree has them,
and their derivatives, to rounding.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from fracdnn.caputo.weights import memory_matrix
from fracdnn.tracing import outside_of_modes

Weights = Callable[[torch.Tensor], torch.Tensor]

# More layers have larger lags: the series would have to be longer.
MAX_LAYERS = 64
_DEGREE = 18


def memory_matrix_by_series(order: torch.Tensor, n_layers: int) -> torch.Tensor:
    """`memory_matrix` for one order, on the CPU, and up to `MAX_LAYERS`; absolute error below 1e-14 (tested)."""
    return _Series.apply(order, n_layers, 0)


class _Series(torch.autograd.Function):
    """The weights, or a derivative of them by the order."""

    @staticmethod
    def forward(ctx: Any, order: torch.Tensor, n_layers: int, derivative: int) -> torch.Tensor:
        ctx.save_for_backward(order)
        ctx.which = n_layers, derivative
        return _value(order, n_layers, derivative)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (order,), (n_layers, derivative) = ctx.saved_tensors, ctx.which
        # A graph where one is asked for; else numbers, which all transforms of a backward pass can take.
        slope = _Series.apply if torch.is_grad_enabled() else _value
        return (cotangent * slope(order, n_layers, derivative + 1)).sum(), None, None


def _value(order: torch.Tensor, n_layers: int, derivative: int) -> torch.Tensor:
    coefficients = _coefficients(n_layers, derivative)
    polynomials = np.cos(np.arange(len(coefficients)) * np.arccos(2.0 * float(order) - 1.0))
    return torch.from_numpy((polynomials @ coefficients).reshape(n_layers, n_layers))


@lru_cache(maxsize=256)
def _coefficients(n_layers: int, derivative: int) -> np.ndarray:
    """Of the series in 2 · order − 1 for all weights, [degree + 1, n_layers²].

    A derivative has a series of its own: that of the weights themselves, differentiated, would lose four digits.
    """
    angles = np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1)
    weights = _derived(partial(memory_matrix, n_layers=n_layers), derivative)

    @torch.enable_grad()
    def sampled() -> np.ndarray:
        orders = torch.from_numpy((np.cos(angles) + 1.0) / 2.0).requires_grad_().unbind()
        return torch.stack([weights(order) for order in orders]).detach().flatten(1).numpy()

    cosines = np.cos(np.arange(_DEGREE + 1)[:, None] * angles)
    cosines[0] /= 2.0
    return 2.0 / (_DEGREE + 1) * cosines @ outside_of_modes(sampled)


def _derived(function: Weights, times: int) -> Weights:
    """A function's derivative of this order, for an order that requires a gradient."""
    if times == 0:
        return function
    below = _derived(function, times - 1)

    def derivative(order: torch.Tensor) -> torch.Tensor:
        values = below(order)
        cotangent = torch.zeros_like(values, requires_grad=True)
        (slope,) = torch.autograd.grad(values, order, cotangent, create_graph=True)
        # The slope is linear in the cotangent: its gradient there holds the derivatives of all values at once.
        return torch.autograd.grad(slope, cotangent, create_graph=True)[0]

    return derivative
