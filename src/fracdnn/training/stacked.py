"""Several networks of one shape as one: their parameters stacked, so that a step of all costs little more than of one.

`StackedNetworks` is what `FractionalNetwork` computes, for dense layers behind an input projection, with a leading axis
for the networks; the networks' own parameters are views of it. `StackedMembers` are their samples, for `Epochs`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import log_softmax

from fracdnn.caputo.weights import l1_step_factor, memory_matrix
from fracdnn.memory import MemorylessPlan
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.learned import orders_from
from fracdnn.nn.operators import ACTIVATIONS, SLOPES
from fracdnn.training.objective import Objective
from fracdnn.training.records import Record
from fracdnn.training.run import State
from fracdnn.training.task import Task

_RAW_ORDER = "memory.learned_order.raw"
_DECAYED = {"W": "decay_output", "K": "decay", "input_weight": "decay"}
# Axes that are the other way round in memory.
_LAYOUT = {"K": (0, 1), "b": (0, 1), "input_weight": (1, 2)}
# So many states stay in a processor's cache.
_ROWS_AT_A_TIME = 512


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
    """The parameters of all, [n_networks, …], in the order in which each network has them, and their `gradients`.

    Forward, then `back` by hand. A small product is half as fast with its right factor transposed, so the input
    projection lies in memory as it is multiplied, and the matrices of a layer lie next to each other. Gradients lie as
    their parameters do, which the fused Adam takes for granted.
    """

    def __init__(self, networks: Sequence[FractionalNetwork]) -> None:
        self.architecture, self._memory = networks[0].architecture, networks[0].memory
        self.names = [name for name, _ in networks[0].named_parameters()]
        self._own = [list(network.parameters()) for network in networks]
        self.parameters = []
        for name, *own in zip(self.names, *self._own, strict=True):
            first, second = _LAYOUT.get(name, (0, 0))
            stacked = torch.stack([each.detach() for each in own]).transpose(first, second)
            self.parameters.append(stacked.contiguous().transpose(first, second))
        self.gradients = [torch.empty_like(each) for each in self.parameters]
        for place, own in enumerate(self._own):
            for one, stacked in zip(own, self.parameters, strict=True):
                one.data = stacked[place]
        self._step_size = self._memory.step_size.to(networks[0].W.device)  # a CUDA graph can hold no copying
        self._fixed = None if self._memory.learned_order is not None else self._fixed_weights(networks[0].W)

    def constants(self) -> object:
        """What a call reads beside the parameters."""
        return self._step_size

    def untie(self) -> None:
        """Give each network parameters of its own again."""
        for own in self._own:
            for one in own:
                one.data, one.grad = one.data.clone(memory_format=torch.contiguous_format), None

    @torch.no_grad()
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Outputs [n_networks, n, n_outputs] of samples [n_networks, n, n_features]."""
        of, a = dict(zip(self.names, self.parameters, strict=True)), self.architecture
        weights, factor = self._fixed or self._learned_weights(of[_RAW_ORDER], x.dtype)
        argument = torch.baddbmm(of["input_bias"].unsqueeze(1), x, of["input_weight"].transpose(1, 2))
        y = ACTIVATIONS[a.input_activation](argument)
        # Of the projection and each layer the argument of the activation and its value.
        self._x, self._states, self._kept = x, [y], [(argument, y)]
        right = of["K"].transpose(2, 3).contiguous()
        is_kept = self._fixed is None or SLOPES[a.activation].keeps_value
        for b, K, row in zip(of["b"].unsqueeze(2).unbind(1), right.unbind(1), weights, strict=True):
            argument = torch.baddbmm(b, y, K)
            change = ACTIVATIONS[a.activation](argument)
            self._kept.append((argument, change))
            y = change * factor if is_kept else change.mul_(factor)
            for weight, state in zip(row, self._states, strict=False):
                _add(y, weight, state)
            self._states.append(y)
        return torch.bmm(y, of["W"].transpose(1, 2))

    @torch.no_grad()
    def back(self, cotangent: torch.Tensor) -> None:
        """The gradients, from those of the outputs of the last call."""
        of, a = dict(zip(self.names, self.parameters, strict=True)), self.architecture
        into = dict(zip(self.names, self.gradients, strict=True))
        weights, factor = self._fixed or self._last_learned
        n_layers, states, layers = a.n_layers, self._states, of["K"].unbind(1)
        into_K, into_b = into["K"].unbind(1), into["b"].unbind(1)
        torch.bmm(cotangent.transpose(1, 2), states[-1], out=into["W"])
        adjoints = {n_layers: torch.bmm(cotangent, of["W"])}
        for j in reversed(range(n_layers)):
            cotangent = _back(a.activation, adjoints[j + 1], self._kept[j + 1])
            cotangent = cotangent * factor if cotangent is adjoints[j + 1] else cotangent.mul_(factor)
            torch.bmm(cotangent.transpose(1, 2), states[j], out=into_K[j])
            torch.sum(cotangent, 1, out=into_b[j])
            adjoints[j] = torch.bmm(cotangent, layers[j])
            for later in range(j + 1, n_layers + 1):
                _add(adjoints[j], weights[later - 1][j], adjoints[later])
        cotangent = _back(a.input_activation, adjoints[0], self._kept[0])
        torch.bmm(self._x.transpose(1, 2), cotangent, out=into["input_weight"].transpose(1, 2))
        torch.sum(cotangent, 1, out=into["input_bias"])
        if self._fixed is None:
            self._back_to_orders(into[_RAW_ORDER], adjoints)

    def _fixed_weights(self, like: torch.Tensor) -> tuple[Sequence[Sequence[Any]], Any]:
        """The memory's own: of state k in layer j, and the step factor."""
        plan = self._memory.plan(like, self.architecture.n_layers, compress=False)
        without = isinstance(plan, MemorylessPlan)
        matrix = torch.eye(plan.n_layers) if without else plan.weight_tensors[0]
        return matrix.tolist(), float(plan.factors[0])

    @torch.enable_grad()
    def _learned_weights(self, raw: torch.Tensor, dtype: torch.dtype) -> tuple[Sequence[Sequence[Any]], Any]:
        """The same of each network, [n_networks, 1, 1], and the graph of its order."""
        raw = raw.detach().requires_grad_()
        orders = orders_from(raw).reshape(-1)
        matrices = torch.stack([memory_matrix(order, self.architecture.n_layers) for order in orders]).to(dtype)
        factor = l1_step_factor(orders, self._step_size).reshape(-1, 1, 1).to(dtype)
        self._graph = raw, matrices, factor
        rows = matrices.detach()[..., None, None].unbind(1)
        self._last_learned = [row.unbind(1) for row in rows], factor.detach()
        return self._last_learned

    def _back_to_orders(self, into: torch.Tensor, adjoints: dict[int, torch.Tensor]) -> None:
        raw, matrices, factor = self._graph
        by_weight, by_factor = torch.zeros_like(matrices), torch.zeros_like(factor)
        for j, (_, change) in enumerate(self._kept[1:]):
            by_factor += (adjoints[j + 1] * change).sum((1, 2), keepdim=True)
            for k, state in enumerate(self._states[: j + 1]):
                by_weight[:, j, k] = (adjoints[j + 1] * state).sum((1, 2))
        into.copy_(torch.autograd.grad((matrices, factor), raw, (by_weight, by_factor))[0])


def _add(total: torch.Tensor, weight: Any, state: torch.Tensor) -> None:
    """In place; a weight is a number, or one for each network."""
    if isinstance(weight, torch.Tensor):
        total.addcmul_(weight, state)
    elif weight:
        total.add_(state, alpha=weight)


def _back(activation: Any, cotangent: torch.Tensor, kept: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    slope = SLOPES[activation]
    return slope.back(cotangent, kept[slope.keeps_value])


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

    @torch.no_grad()
    def evaluate(self, batch: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """The objective of each network and the outputs; the gradients become those of the parameters."""
        (x, target, weight), stack, terms = batch, self.network, self._objective.regularization
        outputs = stack(x)
        losses, cotangent = _with_cotangent(outputs, target, weight, self._objective)
        stack.back(cotangent)
        losses = losses.double()
        for name, parameter, gradient in zip(stack.names, stack.parameters, stack.gradients, strict=True):
            factor = getattr(terms, _DECAYED[name]) if name in _DECAYED else 0.0
            if factor:
                gradient.add_(parameter, alpha=factor)
                losses += 0.5 * factor * parameter.square().sum(tuple(range(1, parameter.dim())))
            parameter.grad = gradient
        return losses, outputs

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
        parts = [x] if x.is_cuda else x.split(_ROWS_AT_A_TIME, 1)
        outputs = torch.cat([self.network(part) for part in parts], 1)
        return list(_with_cotangent(outputs, target, weight, objective)[0].tolist())


def _with_cotangent(
    outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, objective: Objective
) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean loss over its samples of each network, [n_networks], and its cotangent; 0 where they weigh nothing."""
    share = (weight / weight.sum(1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)).unsqueeze(2)
    if objective.loss == "squared_error":
        off = (outputs - target) * share
        return 0.5 * (off * (outputs - target)).mean(2).sum(1), off / outputs.shape[2]
    logs, others = log_softmax(outputs, 2), objective.label_smoothing / outputs.shape[2]
    labels = torch.full_like(logs, others)
    labels.scatter_(2, target.unsqueeze(2), 1.0 - objective.label_smoothing + others)
    return -(logs * labels * share).sum((1, 2)), (logs.exp() - labels) * share


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
