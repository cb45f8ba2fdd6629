"""Several networks of one shape as one: their parameters stacked, so that a step of all costs little more than of one.

`StackedNetworks` is what `FractionalNetwork` computes, for dense layers behind an opening map, with a leading axis for
the networks; the networks' own parameters are views of it.
"""

from collections.abc import Sequence

import torch

from fracdnn.caputo.weights import l1_differences, l1_step_factor, lag_increments
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.learned import orders_from
from fracdnn.nn.operators import ACTIVATIONS

_RAW_ORDER = "memory.learned_order.raw"


def can_stack(networks: Sequence[FractionalNetwork]) -> bool:
    """Whether they are of one shape, and of a kind that is known here."""
    first = networks[0]
    alike = all(
        type(each) is FractionalNetwork and each.options == first.options and each.W.device == first.W.device
        for each in networks
    )
    a, memory = first.architecture, first.memory
    plain = a.has_opening and a.has_skip and a.operator == "dense" and a.bias == "vector" and first.adjoint == "exact"
    one_order = memory.learned_steps is None and not memory.order.dim() and not memory.step_size.dim()
    return alike and plain and one_order and first.engine == "auto"


class StackedNetworks:
    """The parameters of all, [n_networks, …], in the order in which each network has them."""

    def __init__(self, networks: Sequence[FractionalNetwork]) -> None:
        self.networks = list(networks)
        self.architecture, self.memory = networks[0].architecture, networks[0].memory
        self.names = [name for name, _ in networks[0].named_parameters()]
        each = [dict(network.named_parameters()) for network in networks]
        self.parameters = [torch.stack([one[name].detach() for one in each]) for name in self.names]
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self._own = [list(one.values()) for one in each]
        self._tie()
        device = networks[0].W.device  # a CUDA graph can hold no copying
        self._step_size = self.memory.step_size.to(device)
        self._fixed = None if self.memory.learned_order is not None else self._history(self.memory.order.to(device))

    def constants(self) -> object:
        """What a call reads beside the parameters."""
        return self._step_size, self._fixed

    def _tie(self) -> None:
        for place, own in enumerate(self._own):
            for one, stacked in zip(own, self.parameters, strict=True):
                one.data = stacked.detach()[place]

    def untie(self) -> None:
        """Give each network parameters of its own again."""
        for own in self._own:
            for one in own:
                one.data, one.grad = one.data.clone(), None

    def set_gradients(self, gradients: Sequence[torch.Tensor]) -> None:
        """Show each network its own, as views."""
        for place, own in enumerate(self._own):
            for one, stacked in zip(own, gradients, strict=True):
                one.grad = stacked[place]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs [n_networks, n, n_outputs] of samples [n_networks, n, n_features]."""
        of = dict(zip(self.names, self.parameters, strict=True))
        a = self.architecture
        activation, opening = ACTIVATIONS[a.activation], ACTIVATIONS[a.opening_activation]
        weights, factor = self._fixed or self._history(orders_from(of[_RAW_ORDER]))
        weights, factor = weights.to(x.dtype), factor.to(x.dtype)
        y = opening(torch.baddbmm(of["opening_bias"].unsqueeze(1), x, of["opening_weight"].transpose(1, 2)))
        states, K, b = [y], of["K"], of["b"].unsqueeze(2)
        for j in range(a.n_layers):
            y = factor * activation(torch.baddbmm(b[:, j], y, K[:, j].transpose(1, 2)))
            for k, state in enumerate(states):
                y = torch.addcmul(y, weights[:, j, k, None, None], state)
            states.append(y)
        return torch.bmm(y, of["W"].transpose(1, 2))

    def _history(self, order: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The weight of state k in layer j, [1 or n_networks, n_layers, n_layers], and the step factor."""
        n = self.architecture.n_layers
        order = order.reshape(-1)
        differences, oldest = l1_differences(order, n), lag_increments(1.0 - order, n)
        nothing = torch.zeros_like(order)
        rows = [
            torch.stack([oldest[:, j], *(differences[:, j - k] for k in range(1, j + 1)), *[nothing] * (n - j - 1)], 1)
            for j in range(n)
        ]
        factor = l1_step_factor(order, self._step_size)
        return torch.stack(rows, 1), factor.reshape(-1, 1, 1)
