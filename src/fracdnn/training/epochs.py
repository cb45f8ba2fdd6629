"""Epochs of Adam: the one loop over mini-batches, of one network of any kind or of several that are stacked."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import EllipsisType

import torch

from fracdnn.exceptions import NotFiniteError
from fracdnn.nn import FractionalNetwork
from fracdnn.training.captured import Repeated
from fracdnn.training.history import Record, record_of
from fracdnn.training.run import State
from fracdnn.training.stacked import StackedMembers
from fracdnn.training.task import Task

# Mean loss and accuracy, which a regression has not.
Result = tuple[float, float | None]


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
        self.data = [each for each in (task.x, task.target, task.weight) if each is not None]

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

    def __init__(
        self, members: OneMember | StackedMembers, optimizer: torch.optim.Adam, *, captured: bool = False
    ) -> None:
        self.members, self.optimizer, self._captures = members, optimizer, captured
        self._replayed: dict[object, tuple[Repeated, list[torch.Tensor]]] = {}
        self._gradients: list[Sequence[torch.Tensor]] = []

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
        members, groups = self.members, self.optimizer.param_groups
        pairs = zip(members.counts, members.tasks, strict=True)
        members.load([torch.randperm(n, generator=task.generator).to(task.x.device) for n, task in pairs])
        self._gradients = [()] * len(groups)
        loss, outputs, begin = torch.zeros_like(members.rows[0]), [], 0
        for number, size in enumerate(members.sizes):
            batch = [each.narrow(members.axis, begin, size) for each in members.data]
            moving = [group for group, each in enumerate(rates) if number < len(each)]
            for group in moving:
                _set_rate(groups[group], rates[group][number])
            value, output, *gradients = self._replay(batch, moving) if self._captures else self._step(batch, moving)
            for group in reversed(moving):
                n = len(groups[group]["params"])
                self._gradients[group] = [gradients.pop() for _ in range(n)][::-1]
            loss, begin = loss + value * members.rows[number], begin + size
            outputs.append(output)
        for options, found in zip(groups, self._gradients, strict=True):
            for parameter, gradient in zip(options["params"], found, strict=True):
                parameter.grad = gradient
        losses = (loss.cpu() / torch.tensor(members.counts)).tolist()
        return list(zip(losses, members.accuracies(torch.cat(outputs, members.axis)), strict=True))

    def _step(self, batch: Sequence[torch.Tensor], moving: Sequence[int]) -> tuple:
        value, output = self.members.evaluate(batch, moving)
        self.optimizer.step()
        groups = [self.optimizer.param_groups[group]["params"] for group in moving]
        return value, output, *[parameter.grad for group in groups for parameter in group]

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

    def records(self, number: int, found: Sequence[Result]) -> list[Record]:
        """A record of each member."""
        return self.members.records(number, found, self._gradients)

    def moments(self, member: int) -> State:
        """As torch's Adam keeps them, by the number of the parameter."""
        group, part = self.members.place(member)
        states = [self.optimizer.state[parameter] for parameter in self.optimizer.param_groups[group]["params"]]
        return {
            str(number): {
                "step": state["step"].to("cpu", torch.float32, copy=True),
                **{name: state[name][part].clone() for name in ("exp_avg", "exp_avg_sq")},
            }
            for number, state in enumerate(states)
        }


def make_adam(
    groups: Sequence[Sequence[torch.Tensor]],
    learning_rate: float,
    moments: Sequence[Sequence[State]] | None = None,
    *,
    captured: bool = False,
) -> torch.optim.Adam:
    """The Adam of torch for groups of parameters, with a state for each parameter or from the start.

    Fused: one call for a group. In a CUDA graph all that it reads is on the device, in float64, which the fused one is
    not made for.
    """
    device = groups[0][0].device
    options = {"foreach": True, "capturable": True} if captured else {"fused": True}
    found = torch.optim.Adam(
        [
            {
                "params": group,
                "lr": torch.tensor(learning_rate, dtype=torch.float64, device=device) if captured else learning_rate,
            }
            for group in groups
        ],
        **options,  # type: ignore[arg-type]
    )
    zero = torch.zeros((), device=device)
    for number, group in enumerate(groups):
        for place, parameter in enumerate(group):
            given = moments[number][place] if moments else {"step": zero, "exp_avg": zero, "exp_avg_sq": zero}
            step = given["step"].to(device, torch.float64 if captured else torch.float32, copy=True)
            averages = {name: torch.zeros_like(parameter) + given[name] for name in ("exp_avg", "exp_avg_sq")}
            found.state[parameter] = {"step": step, **averages}
    return found


def _set_rate(group: State, rate: float) -> None:
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate
