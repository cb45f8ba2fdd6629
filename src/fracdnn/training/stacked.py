"""Several networks of one shape as one: their parameters stacked, so that a step of all costs little more than of one.

`StackedNetworks` computes outputs and gradients as a network does by hand, for dense layers behind an input projection,
with a leading axis for the networks; the networks' own parameters are views of it. `StackedMembers` adds samples and
the objective; `SingleMember` has the same interface for one network of any kind.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.nn.functional import log_softmax

from fracdnn.caputo.weights import memory_matrix, quick_memory_matrix, step_factor
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.architecture import Weights
from fracdnn.nn.learned import orders_from
from fracdnn.nn.stacked_pass import StackedPass
from fracdnn.training.objective import Objective, Regularization
from fracdnn.training.records import Record, record_of
from fracdnn.training.task import Task

_RAW_ORDER = "memory.learned_order.raw"
# The fields of `Weights`.
_WEIGHTS = ("K", "b", "W", "input_weight", "input_bias")
_DECAYED = {"W": "decay_output", "K": "decay", "input_weight": "decay"}
# Axes that are swapped in memory: the matrices of a layer lie next to each other.
_LAYOUT = {"K": (0, 1), "b": (0, 1), "input_weight": (1, 2)}
# As many states as stay in a processor's cache.
_ROWS_AT_A_TIME = 512


def can_stack(tasks: Sequence[Task]) -> bool:
    """Return True if the networks have one shape and kind, and one plain objective, that `StackedMembers` knows."""
    first, objective = tasks[0].network, tasks[0].objective
    alike = all(
        type(each) is FractionalNetwork and each.options == first.options and each.W.device == first.W.device
        for each in (task.network for task in tasks)
    )
    a, memory = first.architecture, first.memory
    plain = a.has_input_projection and a.has_skip and a.operator == "dense" and a.bias is True
    plain = plain and isinstance(a.activation, str)
    one_order = memory.learned_steps is None and not memory.order.dim() and not memory.step_size.dim()
    trained = all(parameter.requires_grad for task in tasks for parameter in task.network.parameters())
    terms = objective.regularization
    known = type(objective) is Objective and type(terms) is Regularization and not terms.smooth and not terms.decay_bias
    weighted = all(task.weight is not None and task.objective == objective for task in tasks)
    return alike and plain and one_order and trained and known and weighted


class StackedNetworks:
    """The parameters of all networks, [n_networks, …], in the order of each network's own, and their `gradients`.

    Gradients lie in memory as their parameters do, which the fused Adam requires.
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
        self._step_size = self._memory.step_size.to(networks[0].W.device)
        self._fixed: StackedPass | None = None
        if self._memory.is_fixed:
            order, n_layers = self._memory.order, self.architecture.n_layers
            factors = step_factor(order, self._memory.step_size).expand(n_layers)
            self._fixed = self._pass_with(memory_matrix(order, n_layers), factors)

    def untie(self) -> None:
        """Give each network parameters of its own again."""
        for own in self._own:
            for one in own:
                one.data, one.grad = one.data.clone(memory_format=torch.contiguous_format), None

    @torch.no_grad()
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return outputs [n_networks, n, n_outputs] of samples [n_networks, n, n_features]."""
        self._pass = self._fixed or self._pass_with(*self._learned_memory())
        return self._pass.outputs(x)

    @torch.no_grad()
    def back(self, cotangent: torch.Tensor) -> None:
        """Compute the gradients from those of the outputs of the last call."""
        weights, memory = self._pass.back(cotangent)
        found: dict[str, Any] = dict(zip(_WEIGHTS, weights, strict=True))
        if memory:
            found[_RAW_ORDER] = torch.autograd.grad(self._learned, self._raw, memory)[0]
        self.gradients = [found[name] for name in self.names]

    def _pass_with(self, matrix: torch.Tensor, factors: torch.Tensor) -> StackedPass:
        named, a = dict(zip(self.names, self.parameters, strict=True)), self.architecture
        weights = Weights(*[named[name] for name in _WEIGHTS])
        activations: Any = (a.input_activation, a.activation)  # names, as `can_stack` requires
        return StackedPass(activations, weights, matrix, factors)

    @torch.enable_grad()
    def _learned_memory(self) -> tuple[torch.Tensor, ...]:
        """Return weights [N, N, n_networks] and factors [N, n_networks] on the graph of the orders."""
        self._raw = self.parameters[self.names.index(_RAW_ORDER)].detach().requires_grad_()
        n_layers = self.architecture.n_layers
        orders = orders_from(self._raw).reshape(-1)
        matrices = torch.stack([quick_memory_matrix(order, n_layers) for order in orders], dim=-1)
        self._learned = matrices, step_factor(orders, self._step_size).expand(n_layers, -1)
        return self._learned


class SingleMember:
    """One task as members of its own: tensors without the axis of members."""

    axis = 0

    def __init__(self, task: Task, batch_size: int) -> None:
        self._task, self.counts = task, [task.n]
        self.parameters = list(task.network.parameters())
        self.changing = [*self.parameters, *task.network.buffers()]
        self.sizes = [min(batch_size, task.n - begin) for begin in range(0, task.n, batch_size)]
        self.rows = torch.tensor(self.sizes, dtype=torch.float64, device=task.x.device).unsqueeze(1)

    def shuffle(self) -> None:
        """Put the samples in a new random order."""
        order = torch.randperm(self._task.n, generator=self._task.generator)
        self._shuffled = self._task.part(order.to(self._task.x.device))
        self.data = [each for each in self._shuffled.chunk if each is not None]

    def evaluate(self, batch: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the objective [1] and the outputs; the gradients become those of the parameters."""
        for parameter in self.parameters:
            parameter.grad = None
        x, target, *weight = batch
        task = replace(self._task, x=x, target=target, weight=weight[0] if weight else None)
        return torch.tensor([task.backward()], dtype=torch.float64, device=x.device), task.output

    def hits(self, outputs: torch.Tensor) -> torch.Tensor | None:
        """Return the share of right classes [1], then 1, of outputs for all samples; None for a regression."""
        share = self._shuffled.accuracy(outputs)
        return None if share is None else torch.tensor([[share], [1.0]], dtype=torch.float64)

    def records(self, number: int, results: Sequence[tuple[float, float | None]]) -> list[Record]:
        return [record_of(self._task.network, number, *results[0])]

    def held_out_losses(self) -> None:
        """Leave it to `Member.add`."""

    def untie(self) -> None:
        """Do nothing: the network's parameters are its own."""


class StackedMembers:
    """Tasks with stacked networks and samples, in `n_batches` equal mini-batches.

    Members with fewer samples are padded with zeros, samples without weight.
    """

    axis = 1

    def __init__(self, tasks: Sequence[Task], batch_size: int, n_batches: int, validation: Sequence[Task]) -> None:
        self._tasks, self._objective = tasks, tasks[0].objective
        self._chunks = [task.chunk for task in tasks]
        self.network = StackedNetworks([task.network for task in tasks])
        self.parameters = self.changing = self.network.parameters
        self.untie = self.network.untie
        self.counts = [task.n for task in tasks]
        self.sizes = [batch_size] * n_batches
        self.data = _padded(self._chunks, n_batches * batch_size)
        starts = batch_size * torch.arange(n_batches).unsqueeze(1)
        rows = (torch.tensor(self.counts) - starts).clamp(0, batch_size)
        self.rows = rows.to(tasks[0].x.device, torch.float64)
        self._held_out = (_padded([task.chunk for task in validation]), validation[0].objective) if validation else None

    def shuffle(self) -> None:
        """Put the samples of each member in a new random order."""
        orders = [torch.randperm(task.n, generator=task.generator).to(task.x.device) for task in self._tasks]
        _fill(self.data, self._chunks, orders)

    @torch.no_grad()
    def evaluate(self, batch: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the objectives [n_members] and the outputs; the gradients become those of the parameters."""
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
    def hits(self, outputs: torch.Tensor) -> torch.Tensor | None:
        """Return the weight of right classes and of all samples, [2, n_members]; None for regressions."""
        if self._objective.loss != "cross_entropy":
            return None
        _, target, weight = self.data
        return torch.stack([((outputs.argmax(2) == target) * weight).sum(1), weight.sum(1)]).cpu().double()

    def records(self, number: int, results: Sequence[tuple[float, float | None]]) -> list[Record]:
        """Return a record for each member, from losses, accuracies and the gradients of its parameters."""
        own = [each.grad.double().square() for each in self.parameters if each.grad is not None]
        squares = dict(zip(self.network.names, own, strict=True))
        norms = torch.stack([each.flatten(1).sum(1) for each in squares.values()]).sum(0).sqrt().tolist()
        layers = (squares["K"].sum((2, 3)) + squares["b"].sum(2)).sqrt().tolist()
        rows = zip(results, norms, layers, strict=True)
        return [Record(number, loss, norm, each, accuracy=share) for (loss, share), norm, each in rows]

    @torch.no_grad()
    def held_out_losses(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return each member's mean loss on its held-out samples, and what these weigh."""
        if self._held_out is None:
            return None
        (x, target, weight), objective = self._held_out
        parts = [x] if x.is_cuda else x.split(_ROWS_AT_A_TIME, 1)
        outputs = torch.cat([self.network(part) for part in parts], 1)
        return _with_cotangent(outputs, target, weight, objective)[0], weight.sum(1)


def _with_cotangent(
    outputs: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, objective: Objective
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean loss [n_networks] and its cotangent; 0 for samples without weight."""
    share = (weight / weight.sum(1, keepdim=True).clamp(min=torch.finfo(weight.dtype).tiny)).unsqueeze(2)
    if objective.loss == "squared_error":
        off = (outputs - target) * share
        return 0.5 * (off * (outputs - target)).mean(2).sum(1), off / outputs.shape[2]
    logs, others = log_softmax(outputs, 2), objective.label_smoothing / outputs.shape[2]
    labels = torch.full_like(logs, others)
    labels.scatter_(2, target.unsqueeze(2), 1.0 - objective.label_smoothing + others)
    return -(logs * labels * share).sum((1, 2)), (logs.exp() - labels) * share


def _padded(chunks: Sequence[Sequence[Any]], length: int | None = None) -> list[torch.Tensor]:
    """Return x, target and weight of all members, with zeros after the samples of shorter ones."""
    sizes = [len(x) for x, *_ in chunks]
    n = max(sizes) if length is None else length
    stacked = [kind.new_zeros(len(chunks), n, *kind.shape[1:]) for kind in chunks[0] if kind is not None]
    _fill(stacked, chunks, [torch.arange(size, device=stacked[0].device) for size in sizes])
    return stacked


def _fill(stacked: Sequence[torch.Tensor], chunks: Sequence[Sequence[Any]], orders: Sequence[torch.Tensor]) -> None:
    for place, (chunk, order) in enumerate(zip(chunks, orders, strict=True)):
        for full, each in zip(stacked, chunk, strict=True):
            torch.index_select(each, 0, order, out=full[place, : len(order)])
