"""Rules that integrate a history: weights by nodes, near ones as numbers, far ones through modes.

A rule cuts the history at a node, the window's start. What is later is near: `near` gives its weights. What is earlier
is far: it is kept as modes Z (see `fracdnn.caputo.modes`), into which `absorb` puts nodes, which `advance` brings to a
later time, and which `far` weights. So a row costs the same however long the history, on any grid.
"""

from abc import ABC, abstractmethod

import torch

from fracdnn.caputo.modes import Modes
from fracdnn.caputo.product_integration import constant_weights, linear_weights
from fracdnn.solver.arrays import Array, cast, library
from fracdnn.solver.panels import exponential_moments


class Rule(ABC):
    """Weights for orders [G]; times count from the solve's start."""

    def __init__(self, orders: torch.Tensor) -> None:
        self.orders = orders

    @abstractmethod
    def near(self, rows: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
        """[G, R, M]: the weights of the nodes of a window that begins with the first, in the rows at these times."""

    @abstractmethod
    def absorb(self, modes: Modes, nodes: torch.Tensor) -> torch.Tensor:
        """[K + 1, M]: what the nodes of a window add to the modes at its end, where the next window begins."""

    def far(self, modes: Modes, distance: torch.Tensor) -> torch.Tensor:
        """[G, R, K + 1]: the weights of the modes in rows at these distances from the window's start."""
        return far_weights(modes.rates, modes.weights(self.orders), distance)


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


class ConstantRule(Rule):
    """Values hold over an interval, from its earlier node on."""

    def near(self, rows: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(constant_weights(self.orders, rows, nodes), (0, 1))

    def absorb(self, modes: Modes, nodes: torch.Tensor) -> torch.Tensor:
        earlier, later = _absorbed(modes, nodes)
        return torch.nn.functional.pad(earlier + later, (0, 1))

    def without_memory(self, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """At order 1: the weights [M] of nodes in all later rows, and those in their own row.

        They are the same in every row, so that a running sum is all that a solve needs to carry.
        """
        steps = torch.nn.functional.pad(nodes.diff(), (0, 1))
        return steps, torch.zeros_like(steps)


class DifferenceRule(ConstantRule):
    """Minus that for the slopes of what is linear between nodes, by its differences from node to node before."""

    def near(self, rows: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(super().near(rows, nodes)[..., :-1] / -nodes.diff(), (1, 0))

    def absorb(self, modes: Modes, nodes: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(super().absorb(modes, nodes)[..., :-1] / -nodes.diff(), (1, 0))


class LinearRule(Rule):
    """Values are linear between nodes."""

    def near(self, rows: torch.Tensor, nodes: torch.Tensor) -> torch.Tensor:
        return _joined(*linear_weights(self.orders, rows, nodes))

    def absorb(self, modes: Modes, nodes: torch.Tensor) -> torch.Tensor:
        return _joined(*_absorbed(modes, nodes))

    def without_memory(self, nodes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        half = nodes.diff() / 2.0
        return _joined(half, half), torch.nn.functional.pad(half, (1, 0))


def _joined(earlier: torch.Tensor, later: torch.Tensor) -> torch.Tensor:
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
