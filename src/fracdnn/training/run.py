"""Trainings under way, of one network or of several: histories, early stopping, checkpoints to go on from."""

import copy
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from fracdnn.container import checked
from fracdnn.exceptions import FileContentError, InvalidArgumentError
from fracdnn.interrupts import interrupt_afterwards
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.operators import describe
from fracdnn.optim import Status
from fracdnn.training import processes
from fracdnn.training.checkpoints import Checkpoints, newest, write_checkpoint
from fracdnn.training.progress import current_log
from fracdnn.training.records import History, Record
from fracdnn.training.task import Task
from fracdnn.validation import check_count

State = dict[str, Any]
NO_IMPROVEMENT, TIME_LIMIT = "no improvement", "time limit"


@dataclass(frozen=True)
class EarlyStopping:
    """Hold out a random share of the samples; stop after so many records without a better loss on it; keep the best."""

    validation_fraction: float = 0.1
    n_iter_no_change: int = 10

    def __post_init__(self) -> None:
        check_count(self.n_iter_no_change, "n_iter_no_change", minimum=1)
        if not 0 < self.validation_fraction < 1:
            raise InvalidArgumentError(
                f"validation_fraction must lie in (0, 1), got {self.validation_fraction}; 0.1 is a tenth"
            )


class EndedError(Exception):
    """Raised by a run that ends before its loop does, with the status of members that have none."""


class Member:
    """One network of a run: its `task` without the rows held out for `validation`, and its history.

    `position` holds what a checkpoint said of the loop, empty at the beginning; `current_position` returns the present
    one. `history.status` is set once the member has ended.
    """

    def __init__(self, whole: Task, identity: State, saved: State | None, stopping: EarlyStopping | None) -> None:
        """Hold out samples of the `whole`, or take all from the saved state."""
        self._stopping, self._identity = stopping, identity
        self.history, self.position = History(), State()
        self.current_position: Callable[[], State] = lambda: self.position
        self._best: State | None = None
        self._best_score, self._waited = float("inf"), 0
        self._held_out = _held_out(whole, stopping) if stopping else None
        if saved:
            self._held_out = _checked(saved["held_out"], self._held_out, whole)
        self.task, self.validation = whole, None
        if self._held_out is not None:
            kept = torch.ones(whole.n, dtype=torch.bool)
            kept[self._held_out] = False
            self.task = whole.part(kept.nonzero().squeeze(1).to(whole.x.device))
            validation = whole.part(self._held_out.to(whole.x.device))
            self.validation = replace(validation, objective=validation.objective.unsmoothed())
        if saved:
            self._restore(saved)
        self.check_patience()

    def add(self, record: Record, score: float | None = None) -> Record:
        """Note a record of the point where the network stands; `score` is the held-out loss if it is known."""
        if self.validation is not None:
            if score is None:
                with torch.no_grad():
                    score = float(self.validation.data_loss())
            record = replace(record, validation_score=score)
            self._waited += 1
            if score < self._best_score:
                self._best_score, self._waited = score, 0
                self._best = {name: value.clone() for name, value in self.task.network.state_dict().items()}
        self.history.records.append(record)
        return record

    def check_patience(self) -> None:
        """End if the held-out loss has not improved for long enough."""
        if self._stopping is not None and self._waited >= self._stopping.n_iter_no_change:
            self.history.status = NO_IMPROVEMENT

    def keep_best(self) -> None:
        if self._best is not None:
            self.task.network.load_state_dict(self._best)

    def stay(self) -> None:
        """Keep the present position when the loop that made it ends."""
        self.position = self.current_position()
        self.current_position = lambda: self.position

    def document(self) -> State:
        """Return a copy of the whole state of the training, to go on from."""
        return {
            "identity": self._identity,
            "history": replace(self.history, records=list(self.history.records)),
            "position": copy.deepcopy(self.current_position()) | {"status": self.history.status},
            "network": copy.deepcopy(self.task.network.state_dict()),
            "generator": self.task.generator.get_state(),
            "held_out": self._held_out,
            "best": self._best,
            "best_score": self._best_score,
            "waited": self._waited,
        }

    def _restore(self, saved: State) -> None:
        self._best, self._best_score = saved["best"], float(saved["best_score"])
        self._waited, self.position = check_count(saved["waited"], "waited"), dict(saved["position"])
        status = str(self.position.pop("status"))
        if not self.position and saved["history"]["records"]:
            raise ValueError("no position to go on from")
        # A run that came to its limit may go on with a larger one.
        status = "" if status == Status.ITERATION_LIMIT else status
        self.history = replace(History.from_dict(saved["history"]), status=status)
        self.keep_best()  # which shows whether it fits
        self.task.network.load_state_dict(saved["network"])
        self.task.generator.set_state(saved["generator"])


def _held_out(whole: Task, stopping: EarlyStopping) -> torch.Tensor:
    """Return the rows to hold out."""
    if whole.held_out is not None:
        return whole.held_out
    n_held_out = max(1, int(stopping.validation_fraction * whole.n))
    if n_held_out == whole.n:
        raise InvalidArgumentError(
            f"early_stopping must leave samples to train on, got {n_held_out} in all; pass more samples or None"
        )
    return torch.randperm(whole.n, generator=whole.generator)[:n_held_out]


def _checked(saved: torch.Tensor | None, drawn: torch.Tensor | None, whole: Task) -> torch.Tensor | None:
    """Return the rows held out in a checkpoint, which must be as many of the whole as are drawn now."""
    if saved is None or drawn is None:
        if saved is not drawn:
            raise ValueError("samples held out without early stopping, or none with it")
        return None
    known = int(torch.isin(torch.arange(whole.n), saved).sum())
    if saved.dtype != torch.int64 or saved.shape != drawn.shape or len(saved) != known:
        raise ValueError(f"held-out samples of shape {tuple(saved.shape)} that are not among the {whole.n}")
    if whole.held_out is not None and not torch.equal(saved, drawn):
        raise ValueError("other samples held out")
    return saved


class Run:
    """The members of a training, its checkpoints and its time limit. The state of all members is one file."""

    def __init__(self, tasks: Sequence[Task], training: Any) -> None:
        self._ends = None if training.max_time is None else time.monotonic() + training.max_time
        self._checkpoints: Checkpoints | None = training.checkpoints
        # The state of all members at the last record, unless it was written.
        self._unwritten: list[State] = []
        identities = [_identity(task, training.settings()) if training.checkpoints else {} for task in tasks]
        stopping, saved = training.early_stopping, self._saved(identities)
        with self.restoring():
            self.members = [Member(*each, stopping) for each in zip(tasks, identities, saved, strict=True)]

    def note(self, records: Sequence[tuple[Member, Record]]) -> None:
        """Write a checkpoint, show the records and end, each if it is due; call it after the members' `add`."""
        if not records:  # Do not write a checkpoint of a non-finite state.
            self.check_ended()
            return
        number = records[0][1].iteration
        is_over = self._ends is not None and processes.is_true_on_any(time.monotonic() >= self._ends)
        # An interrupt in between would leave a record in the checkpoint that nobody was shown.
        with interrupt_afterwards():
            if self._checkpoints is not None:
                self._unwritten = [member.document() for member in self.members]
                if is_over or number % self._checkpoints.every == 0:
                    self._write(self._checkpoints)
            for member, record in records:
                if member.task.watch is not None:
                    member.task.watch(record)
        for member, _ in records:
            member.check_patience()
        self.check_ended()
        if is_over:
            raise EndedError(TIME_LIMIT)

    def check_ended(self) -> None:
        if all(member.history.status for member in self.members):
            raise EndedError

    def write_last(self) -> None:
        """Write the state at the last record if it was not written; ranks that an interrupt stopped cannot agree."""
        if self._checkpoints is not None and self._unwritten and processes.count() == 1:
            self._write(self._checkpoints)

    def restoring(self) -> AbstractContextManager[None]:
        """Report what does not fit in a checkpoint as the file's fault."""
        points = self._checkpoints
        return checked(points.path, "checkpoint") if points and points.resume else nullcontext()

    def _write(self, points: Checkpoints) -> None:
        members = [{**state, "history": state["history"].to_dict()} for state in self._unwritten]
        for state in members if processes.count() > 1 else ():
            state["ranks"] = processes.from_each({name: state[name] for name in ("generator", "held_out")})
        if processes.is_first():
            write_checkpoint(points.path, {"members": members})
        if (log := current_log()) is not None:
            log.checkpoint = max(len(state["history"].records) for state in self._unwritten)
        self._unwritten = []

    def _saved(self, identities: Sequence[State]) -> Sequence[State | None]:
        """Return the states of the members in a checkpoint, which must be of the same training."""
        n, points = len(identities), self._checkpoints
        found = newest(points.path) if points and points.resume and processes.is_first() else None
        found = processes.from_first(found)
        if points is None or found is None:
            return [None] * n
        if found.damage:
            warnings.warn(f"{found.damage}; training goes on from the checkpoint before it, {found.path}", stacklevel=2)
        with self.restoring():
            members = found.document["members"]
            if len(members) != n:
                raise FileContentError(
                    f"{points.path} must be a checkpoint of {n} members, got one of {len(members)}; "
                    f"go on with n_members={len(members)}, or remove the file to start anew"
                )
            for identity, each in zip(identities, members, strict=True):
                others = [name for name, value in identity.items() if each["identity"].get(name) != value]
                if others:
                    raise FileContentError(
                        f"{points.path} must be a checkpoint of this training, got one with other {others[0]}; "
                        f"go on with what it was begun with, or remove the file to start anew"
                    )
                each |= each["ranks"][processes.rank()] if processes.count() > 1 else {}
        return members


def _identity(task: Task, settings: State) -> State:
    """Return what must be the same to go on, as JSON gives it back."""
    data, objective = " ".join(processes.from_each(task.digest())), asdict(task.objective)
    return {"data": data, "network": _described(task.network), "objective": objective, "settings": settings}


def _described(network: FractionalNetwork) -> State:
    options = {**network.options, "activation": describe(network.architecture.activation)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}
