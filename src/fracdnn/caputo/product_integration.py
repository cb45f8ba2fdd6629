"""Weights that integrate (t − s)^(order−1) / Γ(order) exactly against functions given at nodes, for any times.

The fractional integral of a function that is constant or linear between nodes t_0 < t_1 < …, with u = t − t_k,
v = t − t_{k+1} and τ = t_{k+1} − t_k (u and v not below 0):

    over [t_k, t_{k+1}] of 1:              (u^γ − v^γ) / Γ(γ+1)
    of (s − t_k)/τ, the later node's part: (u^(γ+1) − v^(γ+1)) / (τ Γ(γ+2)) − v^γ / Γ(γ+1).

Source: Diethelm, Ford, Freed, "Detailed error analysis for a fractional Adams method", 2004, for uniform nodes.
Orders have shape [G], rows [R], nodes [M]; weights have shape [G, R, M−1], one for each interval. float64, and
differentiable in all three. An interval that begins after a row's time has weight 0; one that ends after it counts as
far as that time.
"""

import torch

from fracdnn.caputo.weights import gamma, power, power_difference
from fracdnn.tracing import being_traced

# In intervals shorter than this part of their distance, differences of powers lose more than three digits: they are
# integrated by Gauss's rule on [0, 1], with these places and weights.
_SHORT = 1e-3
_GAUSS = ((0.1127016653792583, 5 / 18), (0.5, 4 / 9), (0.8872983346207417, 5 / 18))


def constant_weights(order: torch.Tensor, rows: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
    """Return the weights of values that hold from node to node; at order 0 only the newest interval counts."""
    begin, end, steps = _distances(rows, nodes)
    exponent = order.view(-1, 1, 1)
    return power_difference(begin, end, steps, exponent) / gamma(exponent + 1.0)


def linear_weights(order: torch.Tensor, rows: torch.Tensor, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights of an interval's earlier and later node, between which values are linear."""
    begin, end, steps = _distances(rows, nodes)
    exponent = order.view(-1, 1, 1)
    whole = power_difference(begin, end, steps, exponent) / gamma(exponent + 1.0)
    slope = power_difference(begin, end, steps, exponent + 1.0) / (steps * gamma(exponent + 2.0))
    later = slope - power(end, exponent) / gamma(exponent + 1.0)
    short = steps < _SHORT * end
    if being_traced() or bool(short.detach().any()):
        # Where the difference would cancel: τ ∫_0^1 (v + τ(1 − y))^(γ−1) y dy / Γ(γ) by Gauss's rule, to rounding.
        end, total = torch.where(short, end, 1.0), torch.zeros_like(end)
        for place, weight in _GAUSS:
            total = total + weight * place * (end + (1.0 - place) * steps) ** (exponent - 1.0)
        later = torch.where(short, steps * total * exponent / gamma(exponent + 1.0), later)
    return whole - later, later


def _distances(rows: torch.Tensor, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    distance = (rows.unsqueeze(-1) - nodes).clamp(min=0.0)
    return distance[:, :-1], distance[:, 1:], nodes.diff()
