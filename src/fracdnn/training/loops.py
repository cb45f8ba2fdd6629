"""How a network is trained, behind one interface; here the paper's mini-batches and full batches."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch

from fracdnn.exceptions import InvalidArgumentError, NotFiniteError
from fracdnn.optim import BFGS, Iteration, Status
from fracdnn.training import progress, together
from fracdnn.training.captured import Captured, can_capture
from fracdnn.training.checkpoints import Checkpoints
from fracdnn.training.normalization import normalize_batch
from fracdnn.training.records import History, record_of
from fracdnn.training.run import EarlyStopping, EndedError, Run, State
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
    """A way to train. Ctrl-C leaves the network at its last good point and, where there are checkpoints, writes one of
    the last record; with `keep_interrupted` it is an end like others, with the status "interrupted".

    After `max_time` seconds, the iteration or epoch under way is the last, with the status "time limit" and, where
    there are checkpoints, one more. A resumed training has all of `max_time` again.
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
        """`fit` for several tasks side by side, where `can_go_side_by_side` allows it, with the same results.

        After Ctrl-C or a time limit, all are at their best point so far. Their state is one checkpoint.
        """
        if self.max_time is not None:
            check_positive(self.max_time, "max_time")
        ends = None if self.max_time is None else time.monotonic() + self.max_time
        with together.joint("checking the labels"):
            for task in tasks:
                task.check_labels()
        run = Run(tasks, self, ends)
        ended = ""
        try:
            with together.interrupts_noted():
                try:
                    run.check_ended()
                    ended = self._train(run)
                except EndedError as error:
                    ended = str(error)
                if self.checkpoints is not None and self.checkpoints.at_end:
                    run.write_last()
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
        """What a checkpoint must have been written with to go on from it."""
        others = ("checkpoints", "keep_interrupted", "max_time", self._limit)
        kept = {name: value for name, value in asdict(self).items() if name not in others}
        return {"way": type(self).__name__, **kept}

    @abstractmethod
    def _train(self, run: Run) -> str:
        """Train from the members' positions on, noting each record; returns why those ended that say nothing else."""


@dataclass(frozen=True)
class FullBatchTraining(Training):
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

    def _train(self, run: Run) -> str:
        task = run.members[0].task
        return _minimise(self, run, task, {}, Captured(task.network) if can_capture(task) else None)


@dataclass(frozen=True)
class MiniBatchTraining(Training):
    """The paper's training: `n_batches` (m1) random mini-batches, `max_iter` (m2) of the optimizer on each.

    A mini-batch is a random `batch_fraction` of the samples, drawn without replacement; with `by_class`, of each class.
    `normalization` is the paper's batch normalization (see `normalize_batch`): by "feature", "global" over all numbers,
    or "none". The `optimizer` (see `FullBatchTraining`) starts anew with each: its curvature is that of another
    objective. (The paper's Alg. 3.)
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

    def _train(self, run: Run) -> str:
        member, status = run.members[0], ""
        task, first = member.task, 0
        captured = Captured(task.network) if can_capture(task) else None
        if member.position:
            with run.restoring():
                task.generator.set_state(member.position["drawn_from"])
                first = check_count(member.position["batch"], "batch")
        for number in range(first, self.n_batches):
            here = {"batch": number, "drawn_from": task.generator.get_state()}
            batch = task.part(self._drawn(task).to(task.x.device))
            if self.normalization != "none":
                batch.x = normalize_batch(batch.x, per_feature=self.normalization == "feature", shared=True)
            status = _minimise(self, run, batch, here, captured)
        return status

    def _drawn(self, task: Task) -> torch.Tensor:
        order = torch.randperm(task.n, generator=task.generator)
        if not self.by_class:
            return order[: max(1, round(self.batch_fraction * len(order)))]
        labels = task.all_targets()[order]
        parts = [order[labels == label] for label in labels.unique()]
        return torch.cat([part[: max(1, round(self.batch_fraction * len(part)))] for part in parts])


def _minimise(
    training: FullBatchTraining | MiniBatchTraining, run: Run, task: Task, here: State, captured: Captured | None
) -> str:
    """Run the line-search optimizer of a training on a task, noting each iteration; returns why it stopped.

    A checkpoint holds `here` next to the state of the optimizer; the first call of a resumed run continues from it.
    """
    member = run.members[0]
    if captured is not None:
        x, target, *weight = captured.load([each for each in task.chunk if each is not None])
        task = replace(task, x=x, target=target, weight=weight[0] if weight else None)
    resumed, member.position = member.position, {}
    with run.restoring():
        done = check_count(resumed.get("iteration", 0), "iteration")
    if done >= training.max_iter:
        return str(Status.ITERATION_LIMIT)

    def note(iteration: Iteration) -> None:
        member.history.captured |= captured is not None and captured.is_captured
        number, trials = len(member.history.records) + 1, iteration.line_search_trials
        found = iteration.loss, task.accuracy(task.output), iteration.gradient_norm
        record = member.add(record_of(task.network, number, *found, line_search_trials=trials))
        place = {**here, "iteration": done + iteration.iteration}
        run.note([(member, record)], lambda: [{**place, "optimizer": minimizer.state_dict()}])

    parameters = list(task.network.parameters())
    limits = {"max_iter": training.max_iter - done, "tolerance_grad": training.tolerance_grad}
    minimizer: Any = OPTIMIZERS[training.optimizer](parameters, **limits, callback=note)
    if resumed:
        with run.restoring():
            minimizer.load_state_dict(resumed["optimizer"])
    minimizer.step(partial(_evaluated, task, parameters, captured))
    return str(minimizer.result.status)


def _evaluated(task: Task, parameters: Sequence[torch.nn.Parameter], captured: Captured | None) -> float | torch.Tensor:
    """The objective, on a device where it is `captured`; its gradients become those of the parameters."""
    for parameter in parameters:
        parameter.grad = None
    if captured is not None:

        def work() -> Any:
            return (task.evaluate(), task.output, *(each.grad for each in parameters))

        value, task.output, *gradients = captured(work)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        return value
    try:
        found = task.backward()
    except NotFiniteError:
        # A step too long: the line search takes a shorter one.
        return math.inf
    if progress.log is not None:
        progress.log.add_rows(task.n, lambda: found)
    return found
