"""Trainings under way, of one network or of several at once: histories, early stopping, checkpoints to go on from."""

import copy
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from fracdnn.container import checked
from fracdnn.exceptions import FileContentError, InvalidArgumentError
from fracdnn.interrupts import interrupt_afterwards
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.operators import describe
from fracdnn.training import progress, together
from fracdnn.training.checkpoints import Checkpoints, newest, write_checkpoint
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
    """Raised by a run that ends before its loop does, with the status of members that have none; see `fit_all`."""


class Member:
    """One network of a run: `task`, the samples to train on, `validation`, those held out, and its history.

    `position` is what its loop needs to go on, empty at the beginning. `history.status` is set where it has ended.
    """

    def __init__(self, whole: Task, identity: State, saved: State | None, early_stopping: EarlyStopping | None) -> None:
        """Hold samples of the `whole` out, or take all from the state that a checkpoint has."""
        self._early_stopping, self._identity = early_stopping, identity
        self.history, self.position = History(), State()
        self._best: State | None = None
        self._best_score, self._waited = float("inf"), 0
        self.task, self.validation = whole, whole.validation if early_stopping else None
        held_out = _drawn(whole, early_stopping) if early_stopping and whole.validation is None else None
        if saved:
            held_out = _checked(saved["held_out"], held_out, whole)
        self._held_out = held_out
        if held_out is not None:
            kept = torch.ones(whole.n, dtype=torch.bool)
            kept[held_out] = False
            self.task = whole.part(kept.nonzero().squeeze(1).to(whole.x.device))
            validation = whole.part(held_out.to(whole.x.device))
            self.validation = replace(validation, objective=validation.objective.unsmoothed())
        if saved:
            self._restore(saved)
        self.check_patience()

    def add(self, record: Record, score: float | None = None) -> Record:
        """Note a record of the point where the network stands; `score` is the held-out loss where that is known."""
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
        """End where the held-out part has not improved for long enough, also before a resumed run."""
        if self._early_stopping is not None and self._waited >= self._early_stopping.n_iter_no_change:
            self.history.status = NO_IMPROVEMENT

    def keep_best(self) -> None:
        if self._best is not None:
            self.task.network.load_state_dict(self._best)

    def document(self, position: State) -> State:
        """A copy of the whole state of the training, to go on from."""
        return {
            "identity": self._identity,
            "history": replace(self.history, records=list(self.history.records)),
            "position": copy.deepcopy(position),
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
        if not self.position:
            raise ValueError("no position to go on from")
        self.history = History.from_dict(saved["history"])
        # One of several may have ended; a run that came to its end may go on with other limits.
        self.history.status = str(self.position.get("status", ""))
        self.keep_best()  # which shows whether it fits
        self.task.network.load_state_dict(saved["network"])
        self.task.generator.set_state(saved["generator"])


def _drawn(whole: Task, early_stopping: EarlyStopping) -> torch.Tensor:
    """The rows to hold out, unless the task says so."""
    if whole.held_out is not None:
        return whole.held_out
    n_held_out = max(1, int(early_stopping.validation_fraction * whole.n))
    if n_held_out == whole.n:
        raise InvalidArgumentError(
            f"early_stopping must leave samples to train on, got {n_held_out} in all; pass more samples or None"
        )
    return torch.randperm(whole.n, generator=whole.generator)[:n_held_out]


def _checked(saved: torch.Tensor | None, drawn: torch.Tensor | None, whole: Task) -> torch.Tensor | None:
    """The rows that a checkpoint says are held out, if they can be; as many as are `drawn` now."""
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
    """Where a loop notes its records. The state of all members is one file."""

    def __init__(self, tasks: Sequence[Task], training: Any, ends: float | None) -> None:
        """`training` is a `Training`; when the clock says `ends`, its time is over."""
        self._ends = ends
        self._checkpoints: Checkpoints | None = training.checkpoints
        # How each member goes on from the last record or mark, unless it was written.
        self._unwritten: list[State] = []
        if not together.is_alone():
            _check_ranks(tasks[0], training)
        identities = [_identity(task, training.settings()) if training.checkpoints else {} for task in tasks]
        stopping, saved = training.early_stopping, self._saved(identities)
        with self.restoring():
            self.members = [Member(*each, stopping) for each in zip(tasks, identities, saved, strict=True)]

    def note(self, records: Sequence[tuple[Member, Record]], positions: Callable[[], Iterable[State]]) -> None:
        """After the members' `add`: write a checkpoint, show the records and end, each if it is due.

        `positions` says how each of the members goes on from here.
        """
        if not records:  # what was not finite is no place to go on from
            self.check_ended()
            return
        number, is_over = records[0][1].iteration, self._is_over()
        # Ctrl-C in between would leave a record that the next run goes on from, and nobody was shown.
        with interrupt_afterwards(), together.joint(f"record {number}"):
            self._write_if_due(number, positions, is_over)
            for member, record in records:
                if member.task.watch is not None:
                    member.task.watch(record)
        for member, _ in records:
            member.check_patience()
        self.check_ended()
        if is_over:
            raise EndedError(TIME_LIMIT)

    def mark(self, number: int, positions: Callable[[], Iterable[State]], records: Callable[[], list[Record]]) -> None:
        """Between records, after `number` steps towards the next one: write a checkpoint if it is due, and end if the
        time is over. Then the next record, as far as it is, is the last one; a resumed run makes it anew.
        """
        is_over = self._is_over()
        with together.joint("writing a checkpoint"):
            self._write_if_due(number, positions, is_over)
        if is_over:
            self.members[0].history.records += records()
            raise EndedError(TIME_LIMIT)

    def check_ended(self) -> None:
        if "" not in [member.history.status for member in self.members]:
            raise EndedError

    def write_last(self) -> None:
        """Write how to go on from the last record or mark, if there are checkpoints and that was not written."""
        with together.joint("writing the last checkpoint"):
            if self._unwritten:
                self._write()

    def restoring(self) -> AbstractContextManager[None]:
        """Around what is taken from a checkpoint: what does not fit is the file's fault, and the error says so."""
        points = self._checkpoints
        return checked(points.path, "checkpoint") if points and points.resume else nullcontext()

    def _is_over(self) -> bool:
        """Whether the time is over on any rank: clocks began at different moments, and all must end together."""
        if self._ends is None:
            return False
        return bool(together.largest(torch.tensor([int(time.monotonic() >= self._ends)]), "the time left"))

    def _write_if_due(self, number: int, positions: Callable[[], Iterable[State]], is_over: bool) -> None:
        """Write a checkpoint, or keep it for an interrupt, which comes where nobody could go on from."""
        if self._checkpoints is None or not together.is_first():
            return
        pairs = zip(self.members, positions(), strict=True)
        self._unwritten = [member.document(position) for member, position in pairs]
        if is_over or number % self._checkpoints.every == 0:
            self._write()

    def _write(self) -> None:
        assert self._checkpoints is not None
        members = [{**state, "history": state["history"].to_dict()} for state in self._unwritten]
        write_checkpoint(self._checkpoints.path, {"members": members})
        if progress.log is not None:
            progress.log.checkpoint = max(len(state["history"].records) for state in self._unwritten)
        self._unwritten = []

    def _saved(self, identities: Sequence[State]) -> Sequence[State | None]:
        """The states of the members in a checkpoint, which must be of the same training."""
        n, points = len(identities), self._checkpoints
        if points is None or not points.resume or (found := newest(points.path)) is None:
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
        return members


def _identity(task: Task, settings: State) -> State:
    """What must be the same to go on; as JSON gives it back."""
    network, objective = _described(task.network), asdict(task.objective)
    return {"data": task.digest(), "network": network, "objective": objective, "settings": settings}


def _described(network: FractionalNetwork) -> State:
    options = {**network.options, "activation": describe(network.architecture.activation)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in options.items()}


def _check_ranks(task: Task, training: Any) -> None:
    """Refuse ranks that were given something else than others."""
    points = training.checkpoints
    state = [value.detach().cpu().contiguous().numpy().tobytes() for value in task.network.parameters()]
    together.check_same(
        training=repr(replace(training, checkpoints=None, keep_interrupted=False)),
        checkpoints=repr(points and (points.every, points.resume)),
        network=repr(_described(task.network)),
        objective=repr(task.objective),
        parameters=b"".join(state),
        generator=task.generator.get_state().numpy().tobytes(),
    )
    task.check_alike()
