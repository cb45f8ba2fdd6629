"""One training under way: its history, what is held out to stop early, and checkpoints to go on from."""

import copy
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fracdnn.container import checked, read_document, write_document
from fracdnn.exceptions import FileContentError, InvalidArgumentError
from fracdnn.training.history import History, Record, layer_gradient_norms
from fracdnn.training.task import Task
from fracdnn.validation import check_count

State = dict[str, Any]


@dataclass(frozen=True)
class EarlyStopping:
    """Hold out a random `fraction`; stop when its loss has not improved for `patience` records; keep the best."""

    fraction: float = 0.1
    patience: int = 10

    def __post_init__(self) -> None:
        check_count(self.patience, "patience", minimum=1)
        if not 0 < self.fraction < 1:
            raise InvalidArgumentError(
                f"fraction must lie in (0, 1), got {self.fraction}; 0.1 holds out a tenth of the samples"
            )


@dataclass(frozen=True)
class Checkpoints:
    """Write the whole state of the training to `path` every so many records; with `resume`, go on from there.

    A run that is killed and resumed ends at the same bits as one that was not. Where there is no file yet, `resume`
    starts from the beginning. A file of other data, another network or other settings is refused.

    With `at_end` the last record is written too, so that a training that came to its end is not begun again.
    """

    path: str | Path
    every: int = 50
    resume: bool = False
    at_end: bool = False

    def __post_init__(self) -> None:
        check_count(self.every, "every", minimum=1)

    def of_member(self, number: int) -> "Checkpoints":
        """Those of one of several networks, which are trained one after the other: a file for each."""
        path = Path(self.path)
        name = path.name if number == 0 else f"{path.name}.{number + 1}"
        return replace(self, path=path.with_name(name), at_end=True)


class NoImprovementError(Exception):
    """Raised by a run to end its loop; never leaves this package."""


class OutOfTimeError(Exception):
    """The same, where `max_time` is over."""


class Run:
    """What a loop tells of each record, and what it needs to go on: `position`, empty at the beginning.

    `task` is the part of the samples to train on.
    """

    def __init__(
        self,
        task: Task,
        settings: State,
        early_stopping: EarlyStopping | None,
        checkpoints: Checkpoints | None,
        limits: tuple[float | None, ...] = (),
        ends: float | None = None,
    ) -> None:
        self._ends = ends
        self._position: Callable[[], State] | None = None
        self.history = History()
        self.position: State = {}
        self._early_stopping = early_stopping
        self._checkpoints = checkpoints
        self._best: State | None = None
        self._best_score, self._waited = float("inf"), 0
        self._whole, self._ranks = task, task.ranks
        if not task.ranks.is_alone:
            _check_ranks(task, {**settings, "limits": limits}, checkpoints)
        self._identity = _identity(task, settings) if checkpoints else {}
        saved = self._saved()
        with self.restoring():
            self._held_out = self._taken_held_out(saved["held_out"]) if saved else self._drawn()
            self._divide()
            if saved:
                self._restore(saved)

    def note(
        self,
        loss: float,
        position: Callable[[], State],
        *,
        gradient_norm: float | None = None,
        line_search_trials: int = 0,
        accuracy: float | None = None,
        score: float | None = None,
    ) -> None:
        """Add a record for the point where the network and its gradients stand; `position` is how to go on from it.

        `score` is the loss of the held-out samples, where that is known.
        """
        record = self._record(loss, gradient_norm, line_search_trials, accuracy, self._validate(score))
        self.history.records.append(record)
        is_over = self._is_over()
        with self._ranks.together(f"record {record.iteration}"):
            is_written = self._write_if_due(record.iteration, position, is_over)
            self._position = None if is_written else position
            if self.task.watch is not None:
                self.task.watch(record)
        self.check_patience()
        if is_over:
            raise OutOfTimeError

    def end(self) -> None:
        """The training came to its end: note where, if that is asked for and the last record was not written."""
        if self._checkpoints is not None and self._checkpoints.at_end and self._position is not None:
            with self._ranks.together("writing the last checkpoint"):
                if self._ranks.is_first:
                    self._write(self._position())

    def mark(self, number: int, loss: float, position: Callable[[], State], *, accuracy: float | None = None) -> None:
        """Between records: a checkpoint where so many steps towards the next one are worth it, and where the time is
        over, the end. Then what there is of the next record is the last one; a resumed run makes it anew.
        """
        is_over = self._is_over()
        with self._ranks.together("writing a checkpoint"):
            self._write_if_due(number, position, is_over)
        if is_over:
            self.history.records.append(self._record(loss, None, 0, accuracy, None))
            raise OutOfTimeError

    def _record(
        self,
        loss: float,
        gradient_norm: float | None,
        line_search_trials: int,
        accuracy: float | None,
        score: float | None,
    ) -> Record:
        network = self.task.network
        if gradient_norm is None:
            gradients = [p.grad for p in network.parameters() if p.grad is not None]
            gradient_norm = float(torch.nn.utils.get_total_norm(gradients))
        number, layers = len(self.history.records) + 1, layer_gradient_norms(network)
        return Record(number, loss, gradient_norm, layers, line_search_trials, accuracy, score)

    def _write_if_due(self, number: int, position: Callable[[], State], is_over: bool) -> bool:
        is_due = self._checkpoints is not None and (is_over or number % self._checkpoints.every == 0)
        if is_due and self._ranks.is_first:
            self._write(position())
        return is_due

    def check_patience(self) -> None:
        """End the loop where the held-out part has not improved for long enough, also before a resumed run."""
        if self._early_stopping is not None and self._waited >= self._early_stopping.patience:
            raise NoImprovementError

    def _is_over(self) -> bool:
        """Whether the time is over on any rank: clocks began at different moments, and all must end together."""
        if self._ends is None:
            return False
        return bool(self._ranks.largest(torch.tensor([int(time.monotonic() >= self._ends)]), "the time left"))

    def keep_best(self) -> None:
        if self._best is not None:
            self.task.network.load_state_dict(self._best)

    def restoring(self) -> AbstractContextManager[None]:
        """Around what is taken from a checkpoint: what does not fit is the file's fault, and the error says so."""
        resumes = self._checkpoints is not None and self._checkpoints.resume
        return checked(self._checkpoints.path, "checkpoint") if self._checkpoints and resumes else nullcontext()

    def _taken_held_out(self, held_out: torch.Tensor | None) -> torch.Tensor | None:
        """The rows that a checkpoint says are held out."""
        wanted = self._whole.held_out
        if wanted is not None and not (held_out is not None and torch.equal(held_out, wanted)):
            raise ValueError("other samples held out")
        if (held_out is None) != (self._early_stopping is None or self._whole.validation is not None):
            raise ValueError("samples held out without early stopping, or none with it")
        if held_out is not None:
            n = self._whole.n
            if held_out.dtype != torch.int64 or held_out.dim() != 1 or not 0 < len(held_out) < n:
                raise ValueError(f"held-out samples of shape {tuple(held_out.shape)} and {held_out.dtype}")
            if len(held_out.unique()) < len(held_out) or not 0 <= int(held_out.min()) <= int(held_out.max()) < n:
                raise ValueError(f"held-out samples that are not among the {n}")
        return held_out

    def _drawn(self) -> torch.Tensor | None:
        if self._early_stopping is None or self._whole.validation is not None:
            return None
        n = self._whole.n
        if self._whole.held_out is not None:
            return self._whole.held_out
        held_out = max(1, int(self._early_stopping.fraction * n))
        if held_out == n:
            raise InvalidArgumentError(
                f"early_stopping must leave samples to train on, got {n} in all; pass more samples or None"
            )
        return torch.randperm(n, generator=self._whole.generator)[:held_out]

    def _divide(self) -> None:
        self.task, self._validation = self._whole, self._whole.validation if self._early_stopping else None
        if self._held_out is not None:
            kept = torch.ones(self._whole.n, dtype=torch.bool)
            kept[self._held_out] = False
            device = self._whole.x.device
            self.task = self._whole.part(kept.nonzero().squeeze(1).to(device))
            validation = self._whole.part(self._held_out.to(device))
            self._validation = replace(validation, objective=validation.objective.unsmoothed())

    @property
    def validation(self) -> Task | None:
        """The samples that are held out, with the labels as they are."""
        return self._validation

    def _validate(self, score: float | None) -> float | None:
        if self._validation is None:
            return None
        if score is None:
            with torch.no_grad():
                score = float(self._validation.data_loss())
        self._waited += 1
        if score < self._best_score:
            self._best_score, self._waited = score, 0
            self._best = copied_state(self.task.network)
        return score

    def _write(self, position: State) -> None:
        assert self._checkpoints is not None
        write_document(self._checkpoints.path, "checkpoint", self.document(position))

    def document(self, position: State) -> State:
        """The whole state of the training, to go on from."""
        return {
            "identity": self._identity,
            "position": position,
            "history": self.history.to_dict(),
            "network": self.task.network.state_dict(),
            "generator": self.task.generator.get_state(),
            "held_out": self._held_out,
            "best": self._best,
            "best_score": self._best_score,
            "waited": self._waited,
        }

    def _saved(self) -> State | None:
        if self._checkpoints is None or not self._checkpoints.resume:
            return None
        path, content = Path(self._checkpoints.path), None
        with self._ranks.together("reading the checkpoint"):
            if self._ranks.is_first and path.exists():
                content = path.read_bytes()
        content = self._from_first(content)
        if content is None:
            return None
        document = read_document(path, "checkpoint", content)
        self._check_identity(document)
        return document

    def _check_identity(self, document: State) -> None:
        """Refuse the state of another training."""
        path = self._checkpoints.path if self._checkpoints is not None else None
        with self.restoring():
            for name, value in self._identity.items():
                if document["identity"].get(name) != value:
                    raise FileContentError(
                        f"{path} must be a checkpoint of this training, got one with other {name}; "
                        f"go on with what it was begun with, or remove the file to start anew"
                    )

    def _from_first(self, content: bytes | None) -> bytes | None:
        """The first rank's: others may have no such file."""
        if self._ranks.is_alone:
            return content
        octets = np.frombuffer(content or b"", dtype=np.uint8).copy()
        found = self._ranks.from_rank(0, torch.from_numpy(octets), "the checkpoint")
        return found.numpy().tobytes() or None

    def _restore(self, saved: State) -> None:
        """Take all of it or, with an error, nothing: a trial shows what fits."""
        trial, best = copy.deepcopy(self.task.network), saved["best"]
        for state in (best, saved["network"]):
            if state is not None:
                trial.load_state_dict(state)
        torch.Generator().set_state(saved["generator"])
        position, waited = dict(saved["position"]), check_count(saved["waited"], "waited")
        if not position:
            raise ValueError("no position to go on from")
        self.history = History.from_dict(saved["history"])
        self._best, self._best_score, self._waited = best, float(saved["best_score"]), waited
        self.position = position
        self.task.network.load_state_dict(saved["network"])
        self.task.generator.set_state(saved["generator"])


def copied_state(network: torch.nn.Module) -> State:
    return {name: value.clone() for name, value in network.state_dict().items()}


def _identity(task: Task, settings: State) -> State:
    """What must be the same to go on; as JSON gives it back."""
    network = {name: list(v) if isinstance(v, tuple) else v for name, v in task.network.options.items()}
    return {"data": task.digest(), "network": network, "objective": asdict(task.objective), "settings": settings}


def _check_ranks(task: Task, settings: State, checkpoints: Checkpoints | None) -> None:
    """Refuse ranks that were given something else than others."""
    state = [value.detach().cpu().contiguous().numpy().tobytes() for value in task.network.parameters()]
    task.ranks.check_same(
        training=repr(settings),
        checkpoints=repr(checkpoints and (checkpoints.every, checkpoints.resume)),
        network=repr(task.network.options),
        objective=repr(task.objective),
        parameters=b"".join(state),
        generator=task.generator.get_state().numpy().tobytes(),
    )
    task.check_alike()
