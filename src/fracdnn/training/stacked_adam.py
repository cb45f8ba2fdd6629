"""Epochs of Adam on stacked networks, each with its own samples. On a GPU a step of all is one launch."""

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch.nn.functional import cross_entropy

from fracdnn.training.captured import Repeated, can_capture
from fracdnn.training.objective import Objective
from fracdnn.training.run import State
from fracdnn.training.stacked import StackedNetworks
from fracdnn.training.task import Task

_FIRST, _SECOND, _EPSILON = 0.9, 0.999, 1e-8  # as torch's Adam has them
_DECAYED = {"W": "class_map", "K": "decay", "opening_weight": "decay"}


class StackedAdam:
    """The networks of some tasks, their moments, and how an epoch goes."""

    def __init__(self, tasks: Sequence[Task], batch_size: int) -> None:
        self.stack = StackedNetworks([task.network for task in tasks])
        self._tasks, self._size, self._objective = tasks, batch_size, tasks[0].objective
        parameters, device = self.stack.parameters, tasks[0].x.device
        # The gradients are those of the last step that each network took.
        self._first, self._second, self._gradients = ([torch.zeros_like(p) for p in parameters] for _ in range(3))
        self._n = torch.tensor([task.n for task in tasks])
        self.n_batches = [-(-task.n // batch_size) for task in tasks]
        captures = all(map(can_capture, tasks))
        self._samples = padded_samples(tasks, max(self.n_batches) * batch_size if captures else None)
        self._steps, self._loss, self._hits = (
            torch.zeros(len(tasks), dtype=torch.float64, device=device) for _ in range(3)
        )
        starts = batch_size * torch.arange(max(self.n_batches)).unsqueeze(1)
        self._rows = (self._n - starts).clamp(0, batch_size).to(device)
        self._rates = torch.zeros(self._rows.shape, dtype=torch.float64, device=device)
        self._number = torch.zeros(1, dtype=torch.int64, device=device)
        self._replayed = {whole: Repeated(self.stack, device) for whole in (True, False)} if captures else {}

    @property
    def is_captured(self) -> bool:
        return any(step.is_captured for step in self._replayed.values())

    def moments(self, place: int) -> list[State]:
        """Of a network, as torch's Adam keeps them."""
        step = self._steps[place].to("cpu", torch.float32)
        pairs = zip(self._first, self._second, strict=True)
        return [{"step": step.clone(), "exp_avg": a[place].clone(), "exp_avg_sq": b[place].clone()} for a, b in pairs]

    def set_moments(self, place: int, moments: Sequence[State]) -> None:
        """The inverse."""
        for number, each in enumerate(moments):
            self._first[number][place] = each["exp_avg"]
            self._second[number][place] = each["exp_avg_sq"]
            self._steps[place] = float(each["step"])

    def epoch(
        self, orders: Sequence[torch.Tensor], rates: Sequence[Sequence[float]]
    ) -> tuple[list[float], list[float | None]]:
        """Mean loss and accuracy of each network on the way; those that left what is finite are as they were.

        A rate for each step and network; one without samples left has 0.
        """
        before = [parameter.detach().clone() for parameter in self.stack.parameters]
        fill_samples(self._samples, self._tasks, orders)
        self._rates.copy_(torch.tensor(rates, dtype=torch.float64))
        for counter in (self._loss, self._hits, self._number):
            counter.zero_()
        for number in range(max(self.n_batches)):
            all_move = number < min(self.n_batches)
            if self._replayed:
                self._replayed[all_move](partial(self._counted_step, all_move))
            else:
                part = slice(number * self._size, (number + 1) * self._size)
                batch = [each[:, part] for each in self._samples]
                self._step(batch, self._rates[number], self._rows[number], all_move)
        self.stack.set_gradients(self._gradients)
        losses = (self._loss.cpu() / self._n).tolist()
        for place, value in enumerate(losses):
            if not math.isfinite(value):
                for parameter, old in zip(self.stack.parameters, before, strict=True):
                    parameter.detach()[place] = old[place]
        share = (self._hits / self._samples[2].double().sum(1)).tolist()
        classifies = self._objective.loss == "cross_entropy"
        return losses, [each if classifies else None for each in share]

    def _counted_step(self, all_move: bool) -> tuple[torch.Tensor, ...]:
        """The step whose number is on the device: the same work each time."""
        places = self._number * self._size + torch.arange(self._size, device=self._number.device)
        batch = [each.index_select(1, places) for each in self._samples]
        self._step(batch, self._rates[self._number].squeeze(0), self._rows[self._number].squeeze(0), all_move)
        self._number += 1
        return ()

    @torch.enable_grad()
    def _step(self, batch: Sequence[torch.Tensor], rates: torch.Tensor, rows: torch.Tensor, all_move: bool) -> None:
        """One step of all networks that have samples; losses, and the weight of what is put right, are added up."""
        (x, target, weight), objective, stack = batch, self._objective, self.stack
        outputs, whole = stack(x), weight.sum(1)
        if objective.loss == "cross_entropy":
            self._hits += ((outputs.detach().argmax(2) == target) * weight).sum(1)
        tiny = torch.finfo(weight.dtype).tiny
        data = (sample_losses(outputs, target, objective) * weight).sum(1) / whole.clamp(min=tiny)
        gradients = torch.autograd.grad(data.sum(), stack.parameters)
        loss = data.detach().double()
        with torch.no_grad():
            for name, parameter, gradient in zip(stack.names, stack.parameters, gradients, strict=True):
                factor = getattr(objective.regularization, _DECAYED[name]) if name in _DECAYED else 0.0
                if factor:
                    gradient.add_(parameter, alpha=factor)
                    loss += 0.5 * factor * parameter.flatten(1).square().sum(1)
            self._loss += torch.where(rows > 0, loss * rows, 0.0)
            self._move(gradients, rates, all_move)

    def _move(self, gradients: Sequence[torch.Tensor], rates: torch.Tensor, all_move: bool) -> None:
        """Adam's step; networks with a rate of 0 have no samples left, and stay with their moments as they are."""
        moves = rates > 0
        self._steps += moves
        rate = (rates / (1.0 - _FIRST**self._steps).clamp(min=1e-300)).to(gradients[0].dtype)
        root = (1.0 - _SECOND**self._steps).sqrt().to(gradients[0].dtype)
        lists = zip(self.stack.parameters, gradients, self._first, self._second, self._gradients, strict=True)
        for parameter, gradient, first, second, last in lists:
            shape = (-1, *[1] * (parameter.dim() - 1))
            kept = None if all_move else (first.clone(), second.clone())
            first.lerp_(gradient, 1 - _FIRST)
            second.mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
            if kept is not None:
                moving = moves.view(shape)
                first.copy_(torch.where(moving, first, kept[0]))
                second.copy_(torch.where(moving, second, kept[1]))
                gradient = torch.where(moving, gradient, last)
            last.copy_(gradient)
            size = (second.sqrt() / root.view(shape)).add_(_EPSILON)
            parameter.sub_(rate.view(shape) * first / size)


def sample_losses(outputs: torch.Tensor, target: torch.Tensor, objective: Objective) -> torch.Tensor:
    """Of each sample, [n_networks, n]."""
    if objective.loss == "squared_error":
        return 0.5 * (outputs - target).square().mean(2)
    smoothing = objective.label_smoothing
    flat = cross_entropy(outputs.flatten(0, 1), target.flatten(), reduction="none", label_smoothing=smoothing)
    return flat.view(target.shape)


def padded_samples(tasks: Sequence[Task], length: int | None = None) -> list[torch.Tensor]:
    """x, target and weight of all tasks; behind those that are shorter are zeros: samples without weight."""
    n = max(task.n for task in tasks) if length is None else length
    kinds = [tasks[0].x, tasks[0].target, tasks[0].weight]
    stacked = [kind.new_zeros(len(tasks), n, *kind.shape[1:]) for kind in kinds if kind is not None]
    fill_samples(stacked, tasks)
    return stacked


def fill_samples(
    stacked: Sequence[torch.Tensor], tasks: Sequence[Task], orders: Sequence[torch.Tensor] | None = None
) -> None:
    """Write the tasks' samples, in these orders, where `padded_samples` put them."""
    for place, task in enumerate(tasks):
        order = slice(None) if orders is None else orders[place].to(task.x.device)
        for full, each in zip(stacked, (task.x, task.target, task.weight), strict=True):
            assert each is not None
            full[place, : task.n] = each[order]
