"""Derivatives of distributed order, ∫ density(γ) D^γ y dγ, as a sum over Gauss's nodes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fracdnn.exceptions import InvalidArgumentError
from fracdnn.solver.multi_term import MultiTerm
from fracdnn.validation import check_count


def distributed_order(
    density: Callable[[torch.Tensor], Any] | torch.Tensor,
    right_side: Callable[[torch.Tensor, torch.Tensor], Any],
    *,
    between: tuple[float, float] = (0.0, 1.0),
    n_nodes: int = 8,
) -> MultiTerm:
    """The equation ∫ density(γ) D^γ y dγ = right_side(t, y) over orders `between` two of them, as a `MultiTerm`.

    The integral is Gauss's sum over `n_nodes` orders: for a smooth density its error falls exponentially with them.
    `density` is a function of an order, such as `linear_input(orders, samples)`, or a tensor [n_nodes] of its
    values at the nodes of `gauss_orders(n_nodes, between)`, learned ones, say. Gradients go to the density.
    """
    n_nodes = check_count(n_nodes, "n_nodes", minimum=1)
    orders, lengths = _rule(n_nodes, between)
    if callable(density):
        values = torch.stack([torch.as_tensor(density(order), dtype=torch.float64).reshape(()) for order in orders])
    else:
        values = torch.as_tensor(density, dtype=torch.float64)
    if values.shape != (n_nodes,):
        raise InvalidArgumentError(
            f"density must be a function of an order or hold a value for each of n_nodes = {n_nodes} orders, got shape "
            f"{tuple(values.shape)}; pass n_nodes=len(density)"
        )
    coefficients = [*(lengths.to(values.device) * values).unbind(0), 0.0]  # y itself is known to right_side
    return MultiTerm([*orders.tolist(), 0.0], coefficients, lambda t, lower: right_side(t, lower[-1]))


def gauss_orders(n_nodes: int, between: tuple[float, float] = (0.0, 1.0)) -> torch.Tensor:
    """The orders at which `distributed_order` takes its density; [n_nodes], increasing."""
    return _rule(check_count(n_nodes, "n_nodes", minimum=1), between)[0]


def _rule(n_nodes: int, between: Any) -> tuple[torch.Tensor, torch.Tensor]:
    lowest, highest = (float(each) for each in between)
    if not 0.0 <= lowest < highest < float("inf"):
        raise InvalidArgumentError(
            f"between must be two increasing orders, not below 0, got ({lowest:g}, {highest:g}); (0, 1) is usual"
        )
    places, lengths = np.polynomial.legendre.leggauss(n_nodes)
    half = (highest - lowest) / 2.0
    return torch.from_numpy(lowest + half * (1.0 + places)), torch.from_numpy(half * lengths)
