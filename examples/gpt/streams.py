"""The streams that are compared: what a sublayer sees of the embedding and of the sublayers before it.

At a fixed step size the order of a stack also sets the factor c = τ^γ Γ(2−γ) of a step and the horizon (Nτ)^γ/Γ(1+γ),
so the step size is chosen for each order: for c = 1, the residual stream's factor, or for its horizon, N.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from examples.gpt.model import Stream
from examples.gpt.rivals import AttentionResiduals, DenseFormer
from fracdnn.nn import FractionalStack

RESIDUAL = "residual"
# Where learned orders start.
START = 0.9


class Residual(nn.Module):
    """Y_j = Y_{j−1} + τ f_j(Y_{j−1})."""

    def __init__(self, sublayers: Sequence[nn.Module], step_size: float = 1.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(sublayers)
        self.step_size = step_size

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            y = torch.add(y, layer(y), alpha=self.step_size)
        return y


def step_for_factor(order: float) -> float:
    """The step size with τ^γ Γ(2−γ) = 1."""
    return math.gamma(2 - order) ** (-1 / order)


def step_for_horizon(order: float, n_layers: int) -> float:
    """The step size with (Nτ)^γ/Γ(1+γ) = N."""
    return (n_layers * math.gamma(1 + order)) ** (1 / order) / n_layers


def horizon(order: float, step_size: float, n_layers: int) -> float:
    """(Nτ)^γ/Γ(1+γ)."""
    return (n_layers * step_size) ** order / math.gamma(1 + order)


def _short(sublayers: Sequence[nn.Module], *, order: float) -> Residual:
    """The residual stream with the horizon that an order has at c = 1, which is short."""
    n_layers = len(sublayers)
    return Residual(sublayers, horizon(order, step_for_factor(order), n_layers) / n_layers)


def _matched(sublayers: Sequence[nn.Module], *, order: float, **options: Any) -> FractionalStack:
    return FractionalStack(sublayers, order=order, step_size=step_for_factor(order), **options)


def _same_horizon(sublayers: Sequence[nn.Module], *, order: float) -> FractionalStack:
    return FractionalStack(sublayers, order=order, step_size=step_for_horizon(order, len(sublayers)))


STREAMS: dict[str, Stream] = {
    RESIDUAL: Residual,
    "order 0.9": partial(_matched, order=0.9),
    "order 0.5": partial(_matched, order=0.5),
    "order 0.5, horizon": partial(_same_horizon, order=0.5),
    "residual, short": partial(_short, order=0.5),
    "learned order": partial(_matched, order=START, learn_order=True),
    "learned by layer": partial(_matched, order=START, learn_order="layer"),
    "DenseFormer": DenseFormer,
    "attention residuals": AttentionResiduals,
}


def learned_orders(stream: nn.Module) -> list[float] | None:
    """The orders a stream has learned: one, or one for each sublayer; None where none is learned."""
    if not isinstance(stream, FractionalStack) or stream.memory.learned_order is None:
        return None
    return stream.order.detach().reshape(-1).tolist()
