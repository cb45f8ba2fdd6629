"""Epochs of Adam: the one loop over mini-batches, of one network of any kind or of several that are stacked."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.optim.adam import adam

from fracdnn.exceptions import NotFiniteError
from fracdnn.nn import FractionalNetwork
from fracdnn.training import progress
from fracdnn.training.captured import Captured
from fracdnn.training.records import Record, record_of
from fracdnn.training.run import State
from fracdnn.training.stacked import StackedMembers
from fracdnn.training.task import Task

# Mean loss and accuracy, which a regression has not.
Result = tuple[float, float | None]
# As torch's Adam has them.
_OPTIONS = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "maximize": False}


class Adam:
    """Adam's moments and rate for some parameters; from the start, or from the moments of a state.

    A step is torch's function: its class would import the compiler, which takes longer than a small training. Fused, it
    is one call. In a CUDA graph all that it reads is on the device, in float64, which the fused one cannot.
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], moments: Sequence[State] = (), *, captured: bool = False
    ) -> None:
        self.parameters, device = parameters, parameters[0].device
        self._options = {**_OPTIONS, **({"foreach": True, "capturable": True} if captured else {"fused": True})}
        number: Any = {"dtype": torch.float64 if captured else torch.float32, "device": device}
        self._rate: float | torch.Tensor = torch.zeros((), **number) if captured else 0.0
        # As torch's Adam calls them.
        zeros = partial(torch.zeros_like, requires_grad=False)
        self.states: list[State] = [
            {"step": torch.zeros((), **number), "exp_avg": zeros(each), "exp_avg_sq": zeros(each)}
            for each in parameters
        ]
        for state, values in zip(self.states, moments, strict=False):
            for name, value in values.items():
                state[name].copy_(value)

    def set_rate(self, rate: float) -> None:
        self._rate = self._rate.fill_(rate) if isinstance(self._rate, torch.Tensor) else rate

    @torch.no_grad()
    def step(self) -> None:
        pairs = zip(self.parameters, self.states, strict=True)
        moved = [(each, each.grad, *state.values()) for each, state in pairs if each.grad is not None]
        parameters, gradients, steps, firsts, seconds = map(list, zip(*moved, strict=True))
        options: Any = {**self._options, "lr": self._rate}
        adam(parameters, gradients, firsts, seconds, [], steps, **options)


def _mean(loss: torch.Tensor, rows: float) -> float:
    return float(loss.flatten()[0]) / rows


class OneMember:
    """A task by itself, with the interface of `StackedMembers`; on several processes the samples that are here."""

    axis = 0

    def __init__(self, network: FractionalNetwork, batch_size: int) -> None:
        self._size, self.network = batch_size, network
        self.parameters = list(network.parameters())
        self.kept = [*self.parameters, *network.buffers()]

    def set_task(self, task: Task) -> None:
        self.tasks, self.counts = [task], [task.n]
        self.n_batches = -(-task.n // self._size)

    def joined(self, moments: Sequence[State]) -> list[State]:
        """The moments of each parameter, from those of the members."""
        return [state for each in moments for state in each.values()]

    def load(self, orders: Sequence[torch.Tensor]) -> None:
        self._shuffled = task = self.tasks[0].part(orders[0])
        parts = task.numbered.split(self._size)
        self.sizes = [part.n_here for part in parts]
        self.rows = torch.tensor([[part.n] for part in parts], dtype=torch.float64, device=task.x.device)
        self.data = [each for each in task.chunk if each is not None]

    def evaluate(self, batch: Sequence[torch.Tensor]) -> tuple[float | torch.Tensor, torch.Tensor]:
        for parameter in self.parameters:
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

    `gradients` are those of the last step.
    """

    def __init__(self, members: OneMember | StackedMembers, optimizer: Adam, *, captured: bool = False) -> None:
        self.members, self.optimizer = members, optimizer
        self._captured = Captured(members.network) if captured else None
        self.gradients: list[torch.Tensor] = []

    @property
    def is_captured(self) -> bool:
        return self._captured is not None and self._captured.is_captured

    def run(self, rates: Sequence[float]) -> list[Result]:
        """`one`; a member whose loss is not finite is then as it was before."""
        members = self.members
        before = [each.detach().clone() for each in members.kept]
        try:
            found = self.one(rates)
        except NotFiniteError:
            found = [(math.nan, None)]
        for member, (loss, _) in enumerate(found):
            if not math.isfinite(loss):
                part = self._part(member)
                for each, old in zip(members.kept, before, strict=True):
                    each.detach()[part] = old[part]
        return found

    def one(self, rates: Sequence[float]) -> list[Result]:
        """An epoch in random order, with a rate for each batch: mean loss and accuracy of each member on the way, each
        sample with the parameters it met.
        """
        members, optimizer = self.members, self.optimizer
        pairs = zip(members.counts, members.tasks, strict=True)
        members.load([torch.randperm(n, generator=task.generator).to(task.x.device) for n, task in pairs])
        loss, outputs, begin = torch.zeros_like(members.rows[0]), [], 0
        each_has = members.counts[0] / max(1, len(members.sizes))
        for number, (size, rate) in enumerate(zip(members.sizes, rates, strict=True)):
            batch: Sequence[torch.Tensor] = [each.narrow(members.axis, begin, size) for each in members.data]
            optimizer.set_rate(rate)
            if self._captured is None:
                value, output, *self.gradients = self._step(batch)
            else:
                held = self._captured.load(batch, copy=True)
                value, output, *self.gradients = self._captured(partial(self._step, held))
                output = output.clone()
            loss, begin = loss + value * members.rows[number], begin + size
            outputs.append(output)
            progress.add_rows(each_has, partial(_mean, loss, (number + 1) * each_has))
        for parameter, gradient in zip(optimizer.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        losses = (loss.cpu() / torch.tensor(members.counts)).tolist()
        return list(zip(losses, members.accuracies(torch.cat(outputs, members.axis)), strict=True))

    def _step(self, batch: Sequence[torch.Tensor]) -> tuple:
        value, output = self.members.evaluate(batch)
        self.optimizer.step()
        return value, output, *[parameter.grad for parameter in self.optimizer.parameters]

    def _part(self, member: int) -> Any:
        """Where the numbers of a member are in a tensor of all."""
        return member if self.members.axis else ...

    def moments(self, member: int) -> State:
        """As torch's Adam keeps them, by the number of the parameter."""
        part = self._part(member)
        return {
            str(number): {
                "step": state["step"].to("cpu", torch.float32, copy=True),
                **{name: state[name][part].clone() for name in ("exp_avg", "exp_avg_sq")},
            }
            for number, state in enumerate(self.optimizer.states)
        }
