"""Several networks of one shape as one: their parameters stacked, so that a step of all costs little more than of one.

`StackedNetworks` goes forward and back as a network does by hand, for dense layers behind an input projection, with a
leading axis for the networks; the networks' own parameters are views of it. `StackedMembers` are their samples, for
`Epochs`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import log_softmax

from fracdnn.caputo.weights import quick_memory_matrix, step_factor
from fracdnn.memory.plan import MembersPlan
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.architecture import Weights
from fracdnn.nn.engines.by_hand import Walk
from fracdnn.nn.learned import orders_from
from fracdnn.training.objective import Objective
from fracdnn.training.records import Record
from fracdnn.training.task import Task

_RAW_ORDER = "memory.learned_order.raw"
# As in `Weights`.
_WEIGHTS = ("K", "b", "W", "input_weight", "input_bias")
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
    return alike and plain and one_order and trained


class StackedNetworks:
    """The parameters of all, [n_networks, …], in the order in which each network has them, and their `gradients`.

    The matrices of a layer lie next to each other in memory, and gradients as their parameters do, which the fused Adam
    takes for granted.
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
        self.gradients: list[torch.Tensor] = []
        for place, own in enumerate(self._own):
            for one, stacked in zip(own, self.parameters, strict=True):
                one.data = stacked[place]
        self._step_size = self._memory.step_size.to(networks[0].W.device)  # a CUDA graph can hold no copying
        is_fixed, like, n_layers = self._memory.is_fixed, networks[0].W, self.architecture.n_layers
        plan = self._memory.plan(like, n_layers, compress=False) if is_fixed else None
        self._fixed = plan and self._walk_by(MembersPlan(plan.factors, plan.matrix()))

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
        self._walk = self._fixed or self._walk_by(self._learned_plan(self.parameters[self.names.index(_RAW_ORDER)]))
        return self._walk.outputs(x)

    @torch.no_grad()
    def back(self, cotangent: torch.Tensor) -> None:
        """The gradients, from those of the outputs of the last call."""
        weights: list[Any] = list(self._walk.back(cotangent))
        found, memory = dict(zip(_WEIGHTS, weights, strict=False)), weights[len(_WEIGHTS) :]
        if memory:
            found[_RAW_ORDER] = torch.autograd.grad(self._learned_weights, self._raw, memory)[0]
        self.gradients = [found[name] for name in self.names]

    def _walk_by(self, plan: MembersPlan) -> Walk:
        self._learned_weights = plan.weight_tensors
        of = dict(zip(self.names, self.parameters, strict=True))
        return Walk(self.architecture, plan, Weights(*[of[name] for name in _WEIGHTS]))

    @torch.enable_grad()
    def _learned_plan(self, raw: torch.Tensor) -> MembersPlan:
        """With weights [N, N, n_networks, 1, 1] and factors [N, n_networks, 1, 1], on the graph of the orders."""
        self._raw, n_layers = raw.detach().requires_grad_(), self.architecture.n_layers
        orders = orders_from(self._raw).reshape(-1)
        matrices = torch.stack([quick_memory_matrix(order, n_layers) for order in orders], dim=-1)
        factors = step_factor(orders, self._step_size).expand(n_layers, -1)
        return MembersPlan(factors[..., None, None], matrices[..., None, None])


class StackedMembers:
    """Tasks with stacked networks and samples: those of shorter ones are followed by zeros, samples without weight.

    All have the same number of batches.
    """

    axis = 1

    def __init__(self, tasks: Sequence[Task], batch_size: int, validation: Sequence[Task]) -> None:
        self.tasks, self._objective = tasks, tasks[0].objective
        self._chunks = [task.chunk for task in tasks]
        self.network = StackedNetworks([task.network for task in tasks])
        self.parameters = self.kept = self.network.parameters
        self.untie = self.network.untie
        self.counts = [task.n for task in tasks]
        self.n_batches = -(-max(self.counts) // batch_size)
        self.sizes = [batch_size] * self.n_batches
        self.data = _padded(self._chunks, len(self.sizes) * batch_size)
        starts = batch_size * torch.arange(len(self.sizes)).unsqueeze(1)
        rows = (torch.tensor(self.counts) - starts).clamp(0, batch_size)
        self.rows = rows.to(tasks[0].x.device, torch.float64)
        self._held_out = (_padded([task.chunk for task in validation]), validation[0].objective) if validation else None

    def load(self, orders: Sequence[torch.Tensor]) -> None:
        """Write the samples in these orders."""
        _fill(self.data, self._chunks, orders)

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
            return [None] * len(self._chunks)
        _, target, weight = self.data
        return list((((outputs.argmax(2) == target) * weight).sum(1) / weight.sum(1)).tolist())

    def records(self, number: int, results: Sequence[tuple[float, float | None]]) -> list[Record]:
        """A record of each network, of losses, accuracies and the gradients of its parameters."""
        own = [each.grad.double().square() for each in self.parameters if each.grad is not None]
        squares = dict(zip(self.network.names, own, strict=True))
        norms = torch.stack([each.flatten(1).sum(1) for each in squares.values()]).sum(0).sqrt().tolist()
        layers = (squares["K"].sum((2, 3)) + squares["b"].sum(2)).sqrt().tolist()
        rows = zip(results, norms, layers, strict=True)
        return [Record(number, loss, norm, each, accuracy=share) for (loss, share), norm, each in rows]

    @torch.no_grad()
    def scores(self) -> list[float | None]:
        """The losses of what each network has not seen."""
        if self._held_out is None:
            return [None] * len(self._chunks)
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


def _padded(chunks: Sequence[Sequence[Any]], length: int | None = None) -> list[torch.Tensor]:
    """x, target and weight of all tasks; behind those that are shorter are zeros: samples without weight."""
    sizes = [len(x) for x, *_ in chunks]
    n = max(sizes) if length is None else length
    stacked = [kind.new_zeros(len(chunks), n, *kind.shape[1:]) for kind in chunks[0] if kind is not None]
    _fill(stacked, chunks, [torch.arange(size, device=stacked[0].device) for size in sizes])
    return stacked


def _fill(stacked: Sequence[torch.Tensor], chunks: Sequence[Sequence[Any]], orders: Sequence[torch.Tensor]) -> None:
    for place, (chunk, order) in enumerate(zip(chunks, orders, strict=True)):
        for full, each in zip(stacked, chunk, strict=True):
            torch.index_select(each, 0, order, out=full[place, : len(order)])
