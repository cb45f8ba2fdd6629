"""Several networks of one shape as one: their parameters stacked, so that a step of all costs little more than of one.

`StackedNetworks` is what `FractionalNetwork` computes, for dense layers behind an input projection, with a leading axis
for the networks; the networks' own parameters are views of it. `StackedMembers` are their samples, for `Epochs`.
"""

from collections.abc import Sequence

import torch

from fracdnn.caputo.weights import l1_step_factor, memory_matrix
from fracdnn.memory import MemorylessPlan
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.learned import orders_from
from fracdnn.nn.operators import ACTIVATIONS
from fracdnn.training.objective import Objective
from fracdnn.training.records import Record
from fracdnn.training.run import State
from fracdnn.training.task import Task

_RAW_ORDER = "memory.learned_order.raw"
_DECAYED = {"W": "decay_output", "K": "decay", "input_weight": "decay"}


def can_stack(networks: Sequence[FractionalNetwork]) -> bool:
    """Whether they are of one shape, and of a kind that is known here."""
    first = networks[0]
    alike = all(
        type(each) is FractionalNetwork and each.options == first.options and each.W.device == first.W.device
        for each in networks
    )
    a, memory = first.architecture, first.memory
    plain = a.has_input_projection and a.has_skip and a.operator == "dense" and a.bias is True
    plain = plain and isinstance(a.activation, str)
    one_order = memory.learned_steps is None and not memory.order.dim() and not memory.step_size.dim()
    trained = all(parameter.requires_grad for each in networks for parameter in each.parameters())
    return alike and plain and one_order and first.engine == "auto" and trained


class StackedNetworks:
    """The parameters of all, [n_networks, …], in the order in which each network has them."""

    def __init__(self, networks: Sequence[FractionalNetwork]) -> None:
        self.architecture, self._memory = networks[0].architecture, networks[0].memory
        self.names = [name for name, _ in networks[0].named_parameters()]
        self._own = [list(network.parameters()) for network in networks]
        self.parameters = [torch.stack([each.detach() for each in own]) for own in zip(*self._own, strict=True)]
        for place, own in enumerate(self._own):
            for one, stacked in zip(own, self.parameters, strict=True):
                one.data = stacked[place]
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self._step_size = self._memory.step_size.to(networks[0].W.device)  # a CUDA graph can hold no copying
        self._fixed = None if self._memory.learned_order is not None else self._fixed_weights(networks[0].W)

    def constants(self) -> object:
        """What a call reads beside the parameters."""
        return self._step_size, self._fixed

    def untie(self) -> None:
        """Give each network parameters of its own again."""
        for own in self._own:
            for one in own:
                one.data, one.grad = one.data.clone(), None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs [n_networks, n, n_outputs] of samples [n_networks, n, n_features]."""
        of = dict(zip(self.names, self.parameters, strict=True))
        a = self.architecture
        activation, at_input = ACTIVATIONS[a.activation], ACTIVATIONS[a.input_activation]
        weights, factor = self._fixed or self._learned_weights(of[_RAW_ORDER], x.dtype)
        y = at_input(torch.baddbmm(of["input_bias"].unsqueeze(1), x, of["input_weight"].transpose(1, 2)))
        # Taken apart at once: the gradient of each K[:, j] by itself would have the size of all.
        states, layers = [y], zip(of["b"].unsqueeze(2).unbind(1), of["K"].unbind(1), strict=True)
        for row, (b, K) in zip(weights[..., None, None].unbind(1), layers, strict=True):
            y = factor * activation(torch.baddbmm(b, y, K.transpose(1, 2)))
            for weight, state in zip(row.unbind(1), states, strict=False):
                y = torch.addcmul(y, weight, state)
            states.append(y)
        return torch.bmm(y, of["W"].transpose(1, 2))

    def _fixed_weights(self, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The memory's own: of state k in layer j, [1, n_layers, n_layers], and the step factor."""
        plan = self._memory.plan(like, self.architecture.n_layers, compress=False)
        without = isinstance(plan, MemorylessPlan)
        matrix = torch.eye(plan.n_layers) if without else plan.weight_tensors[0]
        return matrix.to(like.device, like.dtype).unsqueeze(0), plan.factors[0].to(like.device, like.dtype)

    def _learned_weights(self, raw: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """The same of each network, in the graph of its order."""
        orders = orders_from(raw).reshape(-1)
        matrices = torch.stack([memory_matrix(order, self.architecture.n_layers) for order in orders])
        return matrices.to(dtype), l1_step_factor(orders, self._step_size).reshape(-1, 1, 1).to(dtype)


class StackedMembers:
    """Tasks with stacked networks and samples: those of shorter ones are followed by zeros, samples without weight.

    All have the same number of batches.
    """

    axis = 1

    def __init__(self, tasks: Sequence[Task], batch_size: int, validation: Sequence[Task]) -> None:
        self.tasks, self._objective = tasks, tasks[0].objective
        self.network = StackedNetworks([task.network for task in tasks])
        self.parameters = self.kept = self.network.parameters
        self.counts = [task.n for task in tasks]
        self.n_batches = -(-max(self.counts) // batch_size)
        self.sizes = [batch_size] * self.n_batches
        self.data = _padded(tasks, len(self.sizes) * batch_size)
        starts = batch_size * torch.arange(len(self.sizes)).unsqueeze(1)
        rows = (torch.tensor(self.counts) - starts).clamp(0, batch_size)
        self.rows = rows.to(tasks[0].x.device, torch.float64)
        self._held_out = (_padded(validation), validation[0].objective) if validation else None

    def joined(self, moments: Sequence[State]) -> list[State]:
        """The moments of each parameter, from those of the members; all have done as many steps."""
        return [
            {name: each[0][name] if name == "step" else torch.stack([one[name] for one in each]) for name in each[0]}
            for each in zip(*(member.values() for member in moments), strict=True)
        ]

    def load(self, orders: Sequence[torch.Tensor]) -> None:
        """Write the samples in these orders."""
        _fill(self.data, self.tasks, orders)

    @torch.enable_grad()
    def evaluate(self, batch: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """The objective of each network and the outputs; the gradients become those of the parameters."""
        (x, target, weight), stack, terms = batch, self.network, self._objective.regularization
        outputs = stack(x)
        data = _mean_losses(outputs, target, weight, self._objective)
        # In memory as their parameters are, which the fused Adam takes for granted.
        gradients = [each.contiguous() for each in torch.autograd.grad(data.sum(), stack.parameters)]
        losses = data.detach().double()
        with torch.no_grad():
            for name, parameter, gradient in zip(stack.names, stack.parameters, gradients, strict=True):
                factor = getattr(terms, _DECAYED[name]) if name in _DECAYED else 0.0
                if factor:
                    gradient.add_(parameter, alpha=factor)
                    losses += 0.5 * factor * parameter.flatten(1).square().sum(1)
                parameter.grad = gradient
        return losses, outputs.detach()

    @torch.no_grad()
    def accuracies(self, outputs: torch.Tensor) -> list[float | None]:
        """Of outputs for all samples; None for regressions."""
        if self._objective.loss != "cross_entropy":
            return [None] * len(self.tasks)
        _, target, weight = self.data
        return list((((outputs.argmax(2) == target) * weight).sum(1) / weight.sum(1)).tolist())

    def records(
        self, number: int, found: Sequence[tuple[float, float | None]], gradients: Sequence[torch.Tensor]
    ) -> list[Record]:
        """A record of each network, of losses, accuracies and gradients."""
        squares = dict(zip(self.network.names, [each.double().square() for each in gradients], strict=True))
        norms = torch.stack([each.flatten(1).sum(1) for each in squares.values()]).sum(0).sqrt().tolist()
        layers = (squares["K"].sum((2, 3)) + squares["b"].sum(2)).sqrt().tolist()
        rows = zip(found, norms, layers, strict=True)
        return [Record(number, loss, norm, each, accuracy=share) for (loss, share), norm, each in rows]

    @torch.no_grad()
    def scores(self) -> list[float | None]:
        """The losses of what each network has not seen."""
        if self._held_out is None:
            return [None] * len(self.tasks)
        (x, target, weight), objective = self._held_out
        return list(_mean_losses(self.network(x), target, weight, objective).tolist())


def _mean_losses(
    outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, objective: Objective
) -> torch.Tensor:
    """The mean over its samples of each network, [n_networks]; 0 where they weigh nothing."""
    losses = objective.losses(outputs.flatten(0, 1), target.flatten(0, 1)).view(weight.shape)
    return (losses * weight).sum(1) / weight.sum(1).clamp(min=torch.finfo(weight.dtype).tiny)


def _padded(tasks: Sequence[Task], length: int | None = None) -> list[torch.Tensor]:
    """x, target and weight of all tasks; behind those that are shorter are zeros: samples without weight."""
    n = max(task.n for task in tasks) if length is None else length
    stacked = [kind.new_zeros(len(tasks), n, *kind.shape[1:]) for kind in tasks[0].chunk if kind is not None]
    _fill(stacked, tasks, [torch.arange(task.n, device=task.x.device) for task in tasks])
    return stacked


def _fill(stacked: Sequence[torch.Tensor], tasks: Sequence[Task], orders: Sequence[torch.Tensor]) -> None:
    for place, (task, order) in enumerate(zip(tasks, orders, strict=True)):
        for full, each in zip(stacked, task.chunk, strict=True):
            assert each is not None
            torch.index_select(each, 0, order, out=full[place, : len(order)])
