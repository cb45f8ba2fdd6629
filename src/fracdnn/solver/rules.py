"""Rules that integrate a history: weights by nodes, near ones as numbers, far ones through modes.

A rule cuts the history at a node, the window's start. What is later is near: `near` gives its weights. What is earlier
is far: it is kept as modes Z (see `fracdnn.caputo.modes`), into which `absorb` puts nodes, which `advance` brings to a
later time, and which `far` weights. So a row costs the same however long the history, on any grid.
"""

import torch

from fracdnn.caputo.modes import Modes
from fracdnn.caputo.product_integration import constant_weights, linear_weights
from fracdnn.solver.arrays import Array, cast, library
from fracdnn.solver.panels import exponential_moments


class Rule:
    """Weights of one kind for orders [G]; times count from the solve's start.

    Values are "linear" between nodes, or "constant": they hold over an interval, from its earlier node on. "difference"
    is, of what is linear between nodes, minus the constant rule of order 1 − order for its slopes, by the values'
    differences from node to node before.
    """

    def __init__(self, kind: str, orders: torch.Tensor) -> None:
        self._kind, self._orders = kind, 1.0 - orders if kind == "difference" else orders

    def near(self, rows: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
        """[G, R, M]: the weights of the nodes of a window that begins with the first, in the rows at these times."""
        if self._kind == "linear":
            return _by_nodes(*linear_weights(self._orders, rows, nodes))
        return self._by_intervals(constant_weights(self._orders, rows, nodes), nodes)

    def absorb(self, modes: Modes, nodes: torch.Tensor) -> torch.Tensor:
        """[K + 1, M]: what the nodes of a window add to the modes at its end, where the next window begins."""
        earlier, later = _absorbed(modes, nodes)
        return _by_nodes(earlier, later) if self._kind == "linear" else self._by_intervals(earlier + later, nodes)

    def far(self, modes: Modes, distance: torch.Tensor) -> torch.Tensor:
        """[G, R, K + 1]: the weights of the modes in rows at these distances from the window's start."""
        return far_weights(modes.rates, modes.weights(self._orders), distance)

    def _by_intervals(self, weights: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
        """Of nodes, where each interval has but one weight."""
        if self._kind == "difference":
            return torch.nn.functional.pad(weights / -nodes.diff(), (1, 0))
        return torch.nn.functional.pad(weights, (0, 1))


def far_weights(rates: Array, weights: Array, distance: Array) -> Array:
    """[G, R, K + 1]: the kernel's weights [G, K + 1] for modes that were brought to a time so long before.

    Distances are [R], or [G, R].
    """
    weights, distance, of = weights[:, None], distance[..., None], library(rates)
    decay = of.exp(-rates * distance)
    # The mode t at a later time is itself and the distance times the constant mode.
    constant = weights[..., :1] + weights[..., -1:] * distance
    of_t = weights[..., -1:] + 0.0 * constant
    return of.concatenate([constant, weights[..., 1:-1] * decay[..., 1:], of_t], axis=-1)


def advance(rates: Array, far: Array, duration: Array) -> Array:
    """Modes Z [G, K + 1, d] at a later time; the duration is one number, or [G, 1, 1]."""
    of = library(rates)
    decay = cast(of.exp(-rates[:, None] * duration), far)
    of_t = far[:, -1:] + cast(duration, far) * far[:, :1]
    return of.concatenate([far[:, :-1] * decay, of_t], axis=1)


def _by_nodes(earlier: torch.Tensor, later: torch.Tensor) -> torch.Tensor:
    pad = torch.nn.functional.pad
    return pad(earlier, (0, 1)) + pad(later, (1, 0))


def _absorbed(modes: Modes, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """∫ of a mode, seen from the last node, times the linear functions of an interval; [K + 1, M − 1] each.

    For e^(−s·distance), with x = sτ: e^(−s·rest) τ φ_2(x) for the later node's, and φ_1 − φ_2 for the earlier one's.
    """
    steps, rest = nodes.diff(), nodes[-1] - nodes[1:]
    rates = modes.rates.unsqueeze(-1)
    # φ_1 and 2 φ_2 − φ_1
    first, second = exponential_moments(rates * steps, 2).unbind(-1)
    scale = torch.exp(-rates * rest) * steps / 2.0
    later_of_t = steps * (rest / 2.0 + steps / 6.0)
    earlier_of_t = steps * (rest / 2.0 + steps / 3.0)
    return (
        torch.cat([scale * (first - second), earlier_of_t.unsqueeze(0)]),
        torch.cat([scale * (first + second), later_of_t.unsqueeze(0)]),
    )
