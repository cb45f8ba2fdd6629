"""Epochs of Adam: the one loop over mini-batches, of one network of any kind or of several that are stacked."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import EllipsisType
from typing import Any

import torch
from torch.optim.adam import adam

from fracdnn.exceptions import NotFiniteError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import progress
from fracdnn.training.captured import Repeated
from fracdnn.training.records import Record, record_of
from fracdnn.training.run import State
from fracdnn.training.stacked import StackedMembers
from fracdnn.training.task import Task

# Mean loss and accuracy, which a regression has not.
Result = tuple[float, float | None]
# As torch's Adam has them.
_OPTIONS = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "maximize": False}


class Adam:
    """Groups of parameters, each with a rate and moments of its own; from the start, or from the moments of a state.

    A step is torch's function: its class would import the compiler, which takes longer than a small training. Fused, it
    is one call for a group. In a CUDA graph all that it reads is on the device, in float64, which the fused one cannot.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[torch.Tensor]],
        moments: Sequence[Sequence[State]] | None = None,
        *,
        captured: bool = False,
    ) -> None:
        self.groups, device = groups, groups[0][0].device
        self._options = {**_OPTIONS, **({"foreach": True, "capturable": True} if captured else {"fused": True})}
        number: Any = {"dtype": torch.float64 if captured else torch.float32, "device": device}
        self.rates: list[float | torch.Tensor] = [torch.zeros((), **number) if captured else 0.0 for _ in groups]
        self.states = [[_from_start(parameter, **number) for parameter in group] for group in groups]
        for group, given in zip(self.states, moments or [], strict=False):
            for state, values in zip(group, given, strict=True):
                for name, value in values.items():
                    state[name].copy_(value)

    def set_rate(self, group: int, rate: float) -> None:
        here = self.rates[group]
        self.rates[group] = here.fill_(rate) if isinstance(here, torch.Tensor) else rate

    @torch.no_grad()
    def step(self, group: int) -> None:
        """Move the parameters of a group that have a gradient."""
        pairs = [pair for pair in zip(self.groups[group], self.states[group], strict=True) if pair[0].grad is not None]
        firsts, seconds, steps = ([state[name] for _, state in pairs] for name in ("exp_avg", "exp_avg_sq", "step"))
        parameters, gradients = [parameter for parameter, _ in pairs], [parameter.grad for parameter, _ in pairs]
        options: Any = {**self._options, "lr": self.rates[group]}
        adam(parameters, gradients, firsts, seconds, [], steps, **options)  # type: ignore[arg-type]


def _mean(loss: torch.Tensor, rows: float) -> float:
    return float(loss.flatten()[0]) / rows


def _from_start(parameter: torch.Tensor, **number: Any) -> State:
    """As torch's Adam calls them."""
    zeros = {name: torch.zeros_like(parameter, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}
    return {"step": torch.zeros((), **number), **zeros}


class OneMember:
    """A task by itself, with the interface of `StackedMembers`; on several processes the samples that are here."""

    axis = 0

    def __init__(self, network: FractionalNetwork, batch_size: int) -> None:
        self._size, self.network = batch_size, network
        self.groups = [list(network.parameters())]
        self.kept = [*network.parameters(), *network.buffers()]

    def set_task(self, task: Task) -> None:
        """Take these samples from now on."""
        self.tasks, self.counts = [task], [task.n]
        self.n_batches = [-(-task.n // self._size)]

    def grouped(self, moments: Sequence[State]) -> list[list[State]]:
        """The moments of each parameter of each group, from those of the members."""
        return [list(moments[0].values())]

    def place(self, member: int) -> tuple[int, EllipsisType]:
        return member, ...

    def load(self, orders: Sequence[torch.Tensor]) -> None:
        """Take the samples in this order."""
        self._shuffled = task = self.tasks[0].part(orders[0])
        parts = task.numbered.split(self._size)
        self.sizes = [part.n_here for part in parts]
        self.rows = torch.tensor([[part.n] for part in parts], dtype=torch.float64, device=task.x.device)
        self.data = [each for each in task.chunk if each is not None]

    def evaluate(
        self, batch: Sequence[torch.Tensor], moving: Sequence[int]
    ) -> tuple[float | torch.Tensor, torch.Tensor]:
        for parameter in self.groups[0]:
            parameter.grad = None
        x, target, *weight = batch
        task = replace(self.tasks[0], x=x, target=target, weight=weight[0] if weight else None)
        return task.evaluate(), task.output

    def accuracies(self, outputs: torch.Tensor) -> list[float | None]:
        return [self._shuffled.accuracy(outputs)]

    def records(self, number: int, found: Sequence[Result], gradients: object) -> list[Record]:
        return [record_of(self.network, number, *found[0])]

    def scores(self) -> list[float | None]:
        """Left to the run, which may have samples in pieces."""
        return [None]


class Epochs:
    """Epochs of some members with one optimizer, captured in CUDA graphs where that is said.

    Each group of parameters has a rate, and moves while it has batches; the gradients are those of its last step.
    """

    def __init__(self, members: OneMember | StackedMembers, optimizer: Adam, *, captured: bool = False) -> None:
        self.members, self.optimizer, self._captures = members, optimizer, captured
        self._replayed: dict[object, tuple[Repeated, list[torch.Tensor]]] = {}
        self.gradients: list[Sequence[torch.Tensor]] = []

    @property
    def is_captured(self) -> bool:
        return any(step.is_captured for step, _ in self._replayed.values())

    def run(self, rates: Sequence[Sequence[float]]) -> list[Result]:
        """`one`; a member whose loss is not finite is then as it was before."""
        members = self.members
        before = [each.detach().clone() for each in members.kept]
        try:
            found = self.one(rates)
        except NotFiniteError:
            found = [(math.nan, None)]
        for member, (loss, _) in enumerate(found):
            if not math.isfinite(loss):
                part = member if members.axis else ...
                for each, old in zip(members.kept, before, strict=True):
                    each.detach()[part] = old[part]
        return found

    def one(self, rates: Sequence[Sequence[float]]) -> list[Result]:
        """An epoch in random order, with a rate for each group and batch: mean loss and accuracy of each member on the
        way, each sample with the parameters it met.
        """
        members, optimizer = self.members, self.optimizer
        pairs = zip(members.counts, members.tasks, strict=True)
        members.load([torch.randperm(n, generator=task.generator).to(task.x.device) for n, task in pairs])
        self.gradients = [()] * len(optimizer.groups)
        loss, outputs, begin = torch.zeros_like(members.rows[0]), [], 0
        each_has = members.counts[0] / max(1, len(members.sizes))
        for number, size in enumerate(members.sizes):
            batch = [each.narrow(members.axis, begin, size) for each in members.data]
            moving = [group for group, each in enumerate(rates) if number < len(each)]
            for place in moving:
                optimizer.set_rate(place, rates[place][number])
            value, output, *gradients = self._replay(batch, moving) if self._captures else self._step(batch, moving)
            for place in reversed(moving):
                self.gradients[place] = [gradients.pop() for _ in optimizer.groups[place]][::-1]
            loss, begin = loss + value * members.rows[number], begin + size
            outputs.append(output)
            rows = (number + 1) * each_has
            progress.add_rows(each_has, partial(_mean, loss, rows))
        for group, found in zip(optimizer.groups, self.gradients, strict=True):
            for parameter, gradient in zip(group, found, strict=True):
                parameter.grad = gradient
        losses = (loss.cpu() / torch.tensor(members.counts)).tolist()
        return list(zip(losses, members.accuracies(torch.cat(outputs, members.axis)), strict=True))

    def _step(self, batch: Sequence[torch.Tensor], moving: Sequence[int]) -> tuple:
        value, output = self.members.evaluate(batch, moving)
        for group in moving:
            self.optimizer.step(group)
        return value, output, *[parameter.grad for group in moving for parameter in self.optimizer.groups[group]]

    def _replay(self, batch: Sequence[torch.Tensor], moving: Sequence[int]) -> tuple:
        """The same from a graph, which reads the batch where it found the first one."""
        key = (tuple(moving), *(each.shape for each in batch))
        if key not in self._replayed:
            repeated = Repeated(self.members.network, batch[0].device)
            self._replayed[key] = (repeated, [each.clone() for each in batch])
        repeated, held = self._replayed[key]
        for mine, each in zip(held, batch, strict=True):
            mine.copy_(each)
        value, output, *gradients = repeated(partial(self._step, held, moving))
        return value, output.clone(), *gradients

    def moments(self, member: int) -> State:
        """As torch's Adam keeps them, by the number of the parameter."""
        group, part = self.members.place(member)
        return {
            str(number): {
                "step": state["step"].to("cpu", torch.float32, copy=True),
                **{name: state[name][part].clone() for name in ("exp_avg", "exp_avg_sq")},
            }
            for number, state in enumerate(self.optimizer.states[group])
        }
