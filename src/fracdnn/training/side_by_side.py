"""Adam on several networks at once, each with its own samples and shuffles: what `AdamTraining` does one by one.

Held-out scores, patience, records and the best network are those of each network's own `Run`. The state of all is one
checkpoint.
"""

import math
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from fracdnn.container import checked, read_document, write_document
from fracdnn.exceptions import FileContentError
from fracdnn.optim import Status
from fracdnn.training.history import History
from fracdnn.training.loops import AdamTraining, falling_rates
from fracdnn.training.objective import Objective
from fracdnn.training.run import Checkpoints, NoImprovementError, Run, State
from fracdnn.training.stacked import StackedNetworks, can_stack
from fracdnn.training.task import Task
from fracdnn.validation import check_count

_FIRST, _SECOND, _EPSILON = 0.9, 0.999, 1e-8  # as torch's Adam has them
_DECAYED = {"W": "class_map", "K": "decay", "opening_weight": "decay"}


def can_go_side_by_side(tasks: Sequence[Task], training: Any) -> bool:
    """Whether there are several tasks, on one process and the CPU, with networks that can be stacked."""
    if len(tasks) < 2 or type(training) is not AdamTraining or not tasks[0].ranks.is_alone:
        return False
    terms = tasks[0].objective.regularization
    plain = not terms.operator and not terms.bias
    return plain and tasks[0].x.is_cpu and tasks[0].weight is not None and can_stack([task.network for task in tasks])


def fit_side_by_side(training: AdamTraining, tasks: Sequence[Task]) -> list[History]:
    """Train all; where it ends from outside (Ctrl-C, time), all of them are at their best point so far."""
    group = _Group(training, tasks)
    try:
        ended = group.train()
    except KeyboardInterrupt:
        ended = "interrupted"
        if not training.keep_interrupted:
            raise
    finally:
        group.close()
    for run in group.runs:
        run.history.status = run.history.status or ended
    return [run.history for run in group.runs]


class _MemberRun(Run):
    """A run whose state is read and written with that of the others."""

    def __init__(self, saved: State | None, *arguments: Any) -> None:
        self._given = saved
        super().__init__(*arguments)

    def _saved(self) -> State | None:
        if self._given is not None:
            self._check_identity(self._given)
        return self._given

    def _write(self, position: State) -> None:
        """The group does."""


class _Group:
    def __init__(self, training: AdamTraining, tasks: Sequence[Task]) -> None:
        self._training, self._checkpoints = training, training.checkpoints
        for task in tasks:
            task.check_labels()
        saved = self._read(len(tasks))
        options = (training.settings(), training.early_stopping, training.checkpoints)
        states: Sequence[State | None] = saved or [None] * len(tasks)
        self.runs = [_MemberRun(state, task, *options) for state, task in zip(states, tasks, strict=True)]
        self._ends = None if training.max_time is None else time.monotonic() + training.max_time
        self._epoch = 0
        self._moments: dict[int, list[State]] = {}
        self._gradients: Sequence[torch.Tensor] = ()  # of the last step that each network took
        self._active = [run for run in self.runs if not self._has_ended(run)]
        with checked(self._path, "checkpoint") if saved else nullcontext():
            for place, each in enumerate(saved or []):
                self._epoch = check_count(each["position"]["epoch"], "epoch", minimum=1)
                self._moments[place] = list(each["position"]["optimizer"].values())
            self._restack()

    @property
    def _path(self) -> Path:
        assert self._checkpoints is not None
        return Path(self._checkpoints.path)

    def _read(self, n_tasks: int) -> list[State] | None:
        given = self._checkpoints
        if given is None or not given.resume or not Path(given.path).exists():
            return None
        document = read_document(given.path, "checkpoint")
        with checked(given.path, "checkpoint"):
            members = document.get("members")
            if not isinstance(members, list) or len(members) != n_tasks:
                found = len(members) if isinstance(members, list) else 1
                raise FileContentError(
                    f"{given.path} must be a checkpoint of {n_tasks} members, got one of {found}; "
                    f"go on with n_members={found}, or remove the file to start anew"
                )
        return members

    def _write(self) -> None:
        documents = [run.document(self._position(place)) for place, run in enumerate(self.runs)]
        write_document(self._path, "checkpoint", {"members": documents})

    def _position(self, place: int) -> State:
        run = self.runs[place]
        if run in self._active:
            self._moments[place] = self._taken(self._active.index(run))
        moments = {str(number): each for number, each in enumerate(self._moments[place])}
        return {"epoch": self._epoch, "optimizer": moments, "status": run.history.status}

    def _has_ended(self, run: Run) -> bool:
        """Also of a run that was resumed after its end."""
        run.history.status = run.position.get("status", "") if run.position else ""
        if run.history.status:
            return True
        try:
            run.check_patience()
        except NoImprovementError:
            run.history.status = "no improvement"
        return bool(run.history.status)

    def _restack(self) -> None:
        """Put the networks that are still trained side by side, with their moments."""
        self._stack = StackedNetworks([run.task.network for run in self._active]) if self._active else None
        if self._stack is None:
            return
        known = [self._moments.get(self.runs.index(run)) for run in self._active]
        self._first, self._second = ([torch.zeros_like(p) for p in self._stack.parameters] for _ in range(2))
        self._steps = torch.zeros(len(self._active), dtype=torch.float64)
        for place, moments in enumerate(known):
            for number, each in enumerate(moments or []):
                self._first[number][place] = each["exp_avg"]
                self._second[number][place] = each["exp_avg_sq"]
                self._steps[place] = float(each["step"])

    def _taken(self, place: int) -> list[State]:
        """The moments of a network, as torch's Adam keeps them."""
        step = self._steps[place].to(torch.float32)
        pairs = zip(self._first, self._second, strict=True)
        return [{"step": step.clone(), "exp_avg": a[place].clone(), "exp_avg_sq": b[place].clone()} for a, b in pairs]

    def _end_some(self, ended: Sequence[Run]) -> None:
        """Leave these out from now on."""
        assert self._stack is not None
        for place, run in enumerate(self._active):
            self._moments[self.runs.index(run)] = self._taken(place)
        self._stack.untie()
        self._active = [run for run in self._active if run not in ended]
        self._restack()

    def close(self) -> None:
        if self._stack is not None:
            self._stack.untie()
        for run in self.runs:
            run.keep_best()

    def train(self) -> str:
        training = self._training
        while self._active and self._epoch < training.max_epochs:
            losses, accuracies = self._one_epoch()
            self._epoch += 1
            ended = []
            found = zip(list(self._active), losses, accuracies, self._scores(), strict=True)
            for run, loss, accuracy, score in found:
                if not math.isfinite(loss):
                    run.history.status = str(Status.NOT_FINITE)
                    ended.append(run)
                    continue
                try:
                    run.note(loss, dict, accuracy=accuracy, score=score)
                except NoImprovementError:
                    run.history.status = "no improvement"
                    ended.append(run)
            is_over = self._ends is not None and time.monotonic() >= self._ends
            if ended:
                self._end_some(ended)
            if self._checkpoints is not None and self._is_due(self._checkpoints, is_over):
                self._write()
            if is_over and self._active:
                return "time limit"
        return "epoch limit"

    def _is_due(self, checkpoints: Checkpoints, is_over: bool) -> bool:
        return is_over or self._epoch % checkpoints.every == 0

    def _one_epoch(self) -> tuple[list[float], list[float | None]]:
        """Mean loss and accuracy of each network on the way; those that left what is finite are as they were."""
        assert self._stack is not None
        tasks, size = [run.task for run in self._active], self._training.batch_size
        before = [parameter.detach().clone() for parameter in self._stack.parameters]
        orders = [torch.randperm(task.n, generator=task.generator) for task in tasks]
        sizes = torch.tensor([task.n for task in tasks])
        n_batches = [-(-task.n // size) for task in tasks]
        longest = int(sizes.max())
        x, target, weight = (
            _padded([getattr(t, name)[o] for t, o in zip(tasks, orders, strict=True)], longest)
            for name in ("x", "target", "weight")
        )
        of_epoch, hits = torch.zeros(len(tasks), dtype=torch.float64), torch.zeros(len(tasks), dtype=torch.float64)
        for number in range(max(n_batches)):
            part = slice(number * size, (number + 1) * size)
            rates = [self._rate(number, n) for n in n_batches]
            loss, right = self._step(
                x[:, part], target[:, part], weight[:, part], torch.tensor(rates, dtype=torch.float64)
            )
            rows = (sizes - part.start).clamp(0, size)
            of_epoch += torch.where(rows > 0, loss * rows, 0.0)
            hits += right
        losses = (of_epoch / sizes).tolist()
        for place, value in enumerate(losses):
            if not math.isfinite(value):
                for parameter, old in zip(self._stack.parameters, before, strict=True):
                    parameter.detach()[place] = old[place]
        share = (hits / weight.double().sum(1)).tolist()
        classifies = tasks[0].objective.loss == "cross_entropy"
        return losses, [each if classifies else None for each in share]

    def _rate(self, number: int, n_batches: int) -> float:
        """Of a step within the epoch; 0 behind the last."""
        rate, most = self._training.learning_rate, self._training.max_epochs
        return falling_rates(rate, self._epoch + 1, most, n_batches, range(number, number + 1))[0] * (
            number < n_batches
        )

    @torch.no_grad()
    def _scores(self) -> list[float | None]:
        """The losses of what each network has not seen."""
        held_out = [run.validation for run in self._active if run.validation is not None]
        if self._stack is None or not held_out:
            return [None] * len(self._active)
        names, longest = ("x", "target", "weight"), max(task.n for task in held_out)
        x, target, weight = (_padded([getattr(task, name) for task in held_out], longest) for name in names)
        data = self._losses(self._stack(x), target, held_out[0].objective)
        return ((data * weight).sum(1) / weight.sum(1)).tolist()

    def _losses(self, outputs: torch.Tensor, target: torch.Tensor, objective: Objective) -> torch.Tensor:
        """Of each sample."""
        if objective.loss == "squared_error":
            return 0.5 * (outputs - target).square().mean(2)
        smoothing = objective.label_smoothing
        flat = cross_entropy(outputs.flatten(0, 1), target.flatten(), reduction="none", label_smoothing=smoothing)
        return flat.view(target.shape)

    @torch.enable_grad()
    def _step(
        self, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor, rates: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One step of all networks that have samples; their losses, and the weight of what they put right."""
        stack, objective = self._stack, self._active[0].task.objective
        assert stack is not None
        outputs, whole = stack(x), weight.sum(1)
        right = torch.zeros(len(x), dtype=torch.float64)
        if objective.loss == "cross_entropy":
            right += ((outputs.detach().argmax(2) == target) * weight).sum(1)
        data = (self._losses(outputs, target, objective) * weight).sum(1) / whole.clamp(
            min=torch.finfo(weight.dtype).tiny
        )
        gradients = torch.autograd.grad(data.sum(), stack.parameters)
        loss = data.detach().double()
        with torch.no_grad():
            for name, parameter, gradient in zip(stack.names, stack.parameters, gradients, strict=True):
                factor = getattr(objective.regularization, _DECAYED[name]) if name in _DECAYED else 0.0
                if factor:
                    gradient.add_(parameter, alpha=factor)
                    loss += 0.5 * factor * parameter.flatten(1).square().sum(1)
            self._move(gradients, rates)
            still = rates == 0
            for gradient, last in zip(gradients, self._gradients if still.any() else (), strict=False):
                gradient[still] = last[still]
            self._gradients = gradients
            stack.set_gradients(gradients)
        return loss, right

    def _move(self, gradients: Sequence[torch.Tensor], rates: torch.Tensor) -> None:
        """Adam's step; networks with a rate of 0 have no samples left, and stay with their moments as they are."""
        assert self._stack is not None
        moves = rates > 0
        self._steps += moves
        one = torch.tensor(1.0, dtype=torch.float64)
        rate = (rates / (one - _FIRST**self._steps).clamp(min=1e-300)).to(gradients[0].dtype)
        root = (one - _SECOND**self._steps).sqrt().to(gradients[0].dtype)
        all_move = bool(moves.all())
        lists = zip(self._stack.parameters, gradients, self._first, self._second, strict=True)
        for parameter, gradient, first, second in lists:
            shape = (-1, *[1] * (parameter.dim() - 1))
            kept = None if all_move else (first.clone(), second.clone())
            first.lerp_(gradient, 1 - _FIRST)
            second.mul_(_SECOND).addcmul_(gradient, gradient, value=1 - _SECOND)
            if kept is not None:
                still = ~moves
                first[still], second[still] = kept[0][still], kept[1][still]
            size = (second.sqrt() / root.view(shape)).add_(_EPSILON)
            parameter.sub_(rate.view(shape) * first / size)


def _padded(rows: Sequence[torch.Tensor], n: int) -> torch.Tensor:
    """Stacked, with zeros behind those that are shorter: samples without weight."""
    full = rows[0].new_zeros(len(rows), n, *rows[0].shape[1:])
    for place, each in enumerate(rows):
        full[place, : len(each)] = each
    return full
