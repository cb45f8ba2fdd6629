"""Ways to train a network behind one interface; here the paper's mini-batches, and full batches."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from fracdnn.exceptions import InvalidArgumentError, NotFiniteError
from fracdnn.optim import BFGS, Iteration, Status
from fracdnn.training import processes
from fracdnn.training.checkpoints import Checkpoints
from fracdnn.training.normalization import normalize_batch
from fracdnn.training.progress import current_log
from fracdnn.training.records import History, record_of
from fracdnn.training.run import EarlyStopping, EndedError, Member, Run, State
from fracdnn.training.task import Task
from fracdnn.validation import check_choice, check_count, check_positive

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "bfgs": BFGS,
    "textbook-bfgs": partial(BFGS, initial_matrix="identity"),
    "lbfgs": partial(BFGS, history_size=10),
}
NORMALIZATIONS = ("none", "feature", "global")


@dataclass(frozen=True, kw_only=True)
class Training(ABC):
    """A way to train. Ctrl-C leaves the network at its last good point and, if there are checkpoints, writes one of
    the last record; with `keep_interrupted` the training then ends with the status "interrupted".

    After `max_time` seconds, the iteration or epoch under way is the last, with the status "time limit" and, if there
    are checkpoints, one more. A resumed training has all of `max_time` again.
    """

    # The option that only says how long, if there is one: a checkpoint may be resumed with another value.
    _limit: ClassVar[str] = ""

    early_stopping: EarlyStopping | None = None
    checkpoints: Checkpoints | None = None
    keep_interrupted: bool = False
    max_time: float | None = None

    def fit(self, task: Task) -> History:
        """Change the network's parameters in place; the history's `status` says why the training ended."""
        return self.fit_all([task])[0]

    def fit_all(self, tasks: Sequence[Task]) -> list[History]:
        """Train several networks with the same results as by `fit`: by Adam side by side, else in turn.

        After Ctrl-C or a time limit, all are at their best point so far. Their state is one checkpoint.
        """
        if self.max_time is not None:
            check_positive(self.max_time, "max_time")
        for task in tasks:
            task.objective.check_labels(task.network.architecture.n_outputs, task.target)
        run = Run(tasks, self)
        ended = ""
        try:
            run.check_ended()
            ended = self._train(run)
        except EndedError as error:
            ended = str(error)
        except KeyboardInterrupt:
            ended = "interrupted"
            run.write_last()
            if not self.keep_interrupted:
                raise
        finally:
            for member in run.members:
                member.keep_best()
                member.history.status = member.history.status or ended
        return [member.history for member in run.members]

    def settings(self) -> dict[str, Any]:
        """Return what a checkpoint must have been written with to go on from it."""
        others = ("checkpoints", "keep_interrupted", "max_time", self._limit)
        kept = {name: value for name, value in asdict(self).items() if name not in others}
        return {"way": type(self).__name__, **kept}

    @abstractmethod
    def _train(self, run: Run) -> str:
        """Train from the members' positions on, noting each record; return the status of those without one."""


class _LineSearchTraining(Training):
    """Members one after the other, by an optimizer with a line search."""

    optimizer: str
    max_iter: int
    tolerance_grad: float

    def _train(self, run: Run) -> str:
        if processes.count() > 1:
            raise InvalidArgumentError(
                f"training must be AdamTraining on several processes, got {type(self).__name__}; use one process"
            )
        for member in run.members:
            if not member.history.status:
                status = self._train_one(run, member)
                member.history.status = member.history.status or status
                member.stay()
        return ""

    @abstractmethod
    def _train_one(self, run: Run, member: Member) -> str:
        """Train a member from its position on; return why it ended."""

    def _minimize(self, run: Run, member: Member, task: Task, place: State) -> str:
        """Run the optimizer on a task, noting each iteration; return why it stopped.

        A checkpoint holds `place` next to the state of the optimizer; the first call of a resumed run goes on from it.
        """
        resumed, member.position = member.position, {}
        with run.restoring():
            done = check_count(resumed.get("iteration", 0), "iteration")
        if done >= self.max_iter:
            member.current_position = lambda: resumed
            return str(Status.ITERATION_LIMIT)

        def note(iteration: Iteration) -> None:
            number, found = len(member.history.records) + 1, (iteration.loss, task.accuracy(task.output))
            record = record_of(task.network, number, *found, iteration.gradient_norm, iteration.line_search_trials)
            now = {**place, "iteration": done + iteration.iteration}
            member.current_position = lambda: {**now, "optimizer": minimizer.state_dict()}
            run.note([(member, member.add(record))])

        parameters = list(task.network.parameters())
        limits = {"max_iter": self.max_iter - done, "tolerance_grad": self.tolerance_grad}
        minimizer: Any = OPTIMIZERS[self.optimizer](parameters, **limits, callback=note)
        if resumed:
            with run.restoring():
                minimizer.load_state_dict(resumed["optimizer"])
        minimizer.step(partial(_evaluate, task, parameters))
        return str(minimizer.result.status)


def _evaluate(task: Task, parameters: Sequence[torch.nn.Parameter]) -> float:
    """Return the objective; its gradients become those of the parameters."""
    for parameter in parameters:
        parameter.grad = None
    try:
        value = task.backward()
    except NotFiniteError:
        return math.inf  # The line search takes a shorter step.
    if (log := current_log()) is not None:
        log.add_rows(task.n, lambda: value)
    return value


@dataclass(frozen=True)
class FullBatchTraining(_LineSearchTraining):
    """One optimizer on all samples, until the norm of the gradient is below `tolerance_grad` or `max_iter` is reached.

    `optimizer` is one of `OPTIMIZERS`; "textbook-bfgs" is BFGS from H = I without scaling.
    """

    _limit = "max_iter"

    optimizer: str = "lbfgs"
    max_iter: int = 200
    tolerance_grad: float = 1e-6

    def __post_init__(self) -> None:
        check_choice(self.optimizer, "optimizer", tuple(OPTIMIZERS))
        check_count(self.max_iter, "max_iter", minimum=1)

    def _train_one(self, run: Run, member: Member) -> str:
        return self._minimize(run, member, member.task, {})


@dataclass(frozen=True)
class MiniBatchTraining(_LineSearchTraining):
    """The paper's Alg. 3: `n_batches` (m1) random mini-batches, `max_iter` (m2) of the optimizer on each.

    A mini-batch is a random `batch_fraction` of the samples, drawn without replacement; with `by_class`, of each class.
    `normalization` is the paper's batch normalization (see `normalize_batch`): by "feature", "global" over all numbers,
    or "none". The `optimizer` (see `FullBatchTraining`) starts anew with each mini-batch: the curvature is that of
    another objective.
    """

    _limit = "n_batches"

    n_batches: int = 10
    max_iter: int = 15
    batch_fraction: float = 0.5
    optimizer: str = "bfgs"
    tolerance_grad: float = 1e-6
    normalization: str = "none"
    by_class: bool = False

    def __post_init__(self) -> None:
        check_choice(self.optimizer, "optimizer", tuple(OPTIMIZERS))
        check_choice(self.normalization, "normalization", NORMALIZATIONS)
        check_count(self.n_batches, "n_batches", minimum=1)
        check_count(self.max_iter, "max_iter", minimum=1)
        if not 0 < self.batch_fraction <= 1:
            raise InvalidArgumentError(
                f"batch_fraction must lie in (0, 1], got {self.batch_fraction}; the paper takes half of the samples"
            )

    def _train_one(self, run: Run, member: Member) -> str:
        task, first, status = member.task, 0, ""
        if member.position:
            with run.restoring():
                task.generator.set_state(member.position["drawn_from"])
                first = check_count(member.position["batch"], "batch")
        for number in range(first, self.n_batches):
            place = {"batch": number, "drawn_from": task.generator.get_state()}
            batch = task.part(self._drawn(task).to(task.x.device))
            if self.normalization != "none":
                batch.x = normalize_batch(batch.x, per_feature=self.normalization == "feature")
            status = self._minimize(run, member, batch, place)
        return status

    def _drawn(self, task: Task) -> torch.Tensor:
        """Return the rows of a mini-batch."""
        order = torch.randperm(task.n, generator=task.generator)
        if not self.by_class:
            return order[: max(1, round(self.batch_fraction * len(order)))]
        labels = task.target.cpu()[order]
        parts = [order[labels == label] for label in labels.unique()]
        return torch.cat([part[: max(1, round(self.batch_fraction * len(part)))] for part in parts])
