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

from fracdnn.container import checked, read_document, write_document
from fracdnn.exceptions import FileContentError
from fracdnn.optim import Status
from fracdnn.training.history import History
from fracdnn.training.loops import AdamTraining, falling_rates
from fracdnn.training.run import Checkpoints, NoImprovementError, Run, State
from fracdnn.training.stacked import can_stack
from fracdnn.training.stacked_adam import StackedAdam, padded_samples, sample_losses
from fracdnn.training.task import Task
from fracdnn.validation import check_count


def can_go_side_by_side(tasks: Sequence[Task], training: Any) -> bool:
    """Whether there are several tasks, on one process and device, with networks that can be stacked."""
    if len(tasks) < 2 or type(training) is not AdamTraining or not tasks[0].ranks.is_alone:
        return False
    terms = tasks[0].objective.regularization
    plain = not terms.operator and not terms.bias
    return plain and tasks[0].weight is not None and can_stack([task.network for task in tasks])


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
        if run in self._active and self._adam is not None:
            self._moments[place] = self._adam.moments(self._active.index(run))
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
        self._adam = (
            StackedAdam([run.task for run in self._active], self._training.batch_size) if self._active else None
        )
        if self._adam is None:
            return
        held_out = [run.validation for run in self._active if run.validation is not None]
        self._held_out = (padded_samples(held_out), held_out[0].objective) if held_out else None
        for place, run in enumerate(self._active):
            self._adam.set_moments(place, self._moments.get(self.runs.index(run), []))

    def _end_some(self, ended: Sequence[Run]) -> None:
        """Leave these out from now on."""
        assert self._adam is not None
        for place, run in enumerate(self._active):
            self._moments[self.runs.index(run)] = self._adam.moments(place)
        self._adam.stack.untie()
        self._active = [run for run in self._active if run not in ended]
        self._restack()

    def close(self) -> None:
        if self._adam is not None:
            self._adam.stack.untie()
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
        """Mean loss and accuracy of each network on the way."""
        assert self._adam is not None
        orders = [torch.randperm(run.task.n, generator=run.task.generator) for run in self._active]
        n_batches = self._adam.n_batches
        rates = [[self._rate(number, n) for n in n_batches] for number in range(max(n_batches))]
        found = self._adam.epoch(orders, rates)
        for run in self._active:
            run.history.captured |= self._adam.is_captured
        return found

    def _rate(self, number: int, n_batches: int) -> float:
        """Of a step within the epoch; 0 behind the last."""
        rate, most = self._training.learning_rate, self._training.max_epochs
        return falling_rates(rate, self._epoch + 1, most, n_batches, range(number, number + 1))[0] * (
            number < n_batches
        )

    @torch.no_grad()
    def _scores(self) -> list[float | None]:
        """The losses of what each network has not seen."""
        if self._adam is None or self._held_out is None:
            return [None] * len(self._active)
        (x, target, weight), objective = self._held_out
        data = sample_losses(self._adam.stack(x), target, objective)
        return ((data * weight).sum(1) / weight.sum(1)).tolist()
