"""How a network is trained: the paper's mini-batches, full batches, or Adam, behind one interface."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from fracdnn.exceptions import InvalidArgumentError, NotFiniteError
from fracdnn.optim import BFGS, LBFGS, Iteration, Status, SteepestDescent
from fracdnn.training.captured import CapturedEpochs, CapturedEvaluation, can_capture
from fracdnn.training.history import History
from fracdnn.training.normalization import normalize_batch
from fracdnn.training.run import (
    Checkpoints,
    EarlyStopping,
    NoImprovementError,
    OutOfTimeError,
    Run,
    State,
    copied_state,
)
from fracdnn.training.task import Task
from fracdnn.validation import check_choice, check_count, check_positive

OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "bfgs": BFGS,
    "textbook-bfgs": partial(BFGS, initial_matrix="identity"),
    "lbfgs": LBFGS,
    "steepest": SteepestDescent,
}
NORMALIZATIONS = ("none", "feature", "global")


@dataclass(frozen=True, kw_only=True)
class Training(ABC):
    """A way to train. Ctrl-C leaves the network at its last good point; with `keep_interrupted` it is an end like
    others, with the status "interrupted".

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
        """Change the network's parameters in place and tell what happened; the history's `status` says why it ended."""
        if self.max_time is not None:
            check_positive(self.max_time, "max_time")
        ends = None if self.max_time is None else time.monotonic() + self.max_time
        settings = self.settings()
        with task.ranks.together("checking the labels"):
            task.check_labels()
        limits = (getattr(self, self._limit, None), self.max_time)
        run = Run(task, settings, self.early_stopping, self.checkpoints, limits, ends)
        try:
            with task.ranks.interrupts_noted():
                run.check_patience()
                run.history.status = self._train(run)
                run.end()
        except NoImprovementError:
            run.history.status = "no improvement"
            run.end()
        except OutOfTimeError:
            run.history.status = "time limit"
        except KeyboardInterrupt:
            run.history.status = "interrupted"
            if not self.keep_interrupted:
                raise
        finally:
            run.keep_best()
        return run.history

    def settings(self) -> dict[str, Any]:
        """What a checkpoint must have been written with to go on from it."""
        found = {"way": type(self).__name__, **asdict(self)}
        return {
            name: value
            for name, value in found.items()
            if name not in ("checkpoints", "keep_interrupted", "max_time", self._limit)
        }

    @abstractmethod
    def _train(self, run: Run) -> str:
        """Train from `run.position` on, noting each record; returns why it ended."""


@dataclass(frozen=True)
class FullBatchTraining(Training):
    """One optimiser on all samples, until the norm of the gradient is below `tolerance` or `max_iter` is reached.

    `optimizer` is one of `OPTIMIZERS`; "textbook-bfgs" is BFGS from H = I without scaling.
    """

    _limit = "max_iter"

    optimizer: str = "lbfgs"
    max_iter: int = 200
    tolerance: float = 1e-6

    def __post_init__(self) -> None:
        check_choice(self.optimizer, "optimizer", tuple(OPTIMIZERS))
        check_count(self.max_iter, "max_iter", minimum=1)

    def _train(self, run: Run) -> str:
        return _minimise(run, run.task, self.optimizer, self.max_iter, self.tolerance, {}, CapturedEvaluation())


@dataclass(frozen=True)
class MiniBatchTraining(Training):
    """The paper's training: `n_batches` (m1) random mini-batches, `iterations` (m2) of the optimiser on each.

    A mini-batch is a random `fraction` of the samples, drawn without replacement; with `by_class`, of each class.
    `normalization` is the paper's batch normalisation (see `normalize_batch`): by "feature", "global" over all numbers,
    or "none". The `optimizer` (see `FullBatchTraining`) starts anew with each: its curvature is that of another
    objective. (The paper's Alg. 3.)
    """

    _limit = "n_batches"

    n_batches: int = 10
    iterations: int = 15
    fraction: float = 0.5
    optimizer: str = "bfgs"
    tolerance: float = 1e-6
    normalization: str = "none"
    by_class: bool = False

    def __post_init__(self) -> None:
        check_choice(self.optimizer, "optimizer", tuple(OPTIMIZERS))
        check_choice(self.normalization, "normalization", NORMALIZATIONS)
        check_count(self.n_batches, "n_batches", minimum=1)
        check_count(self.iterations, "iterations", minimum=1)
        if not 0 < self.fraction <= 1:
            raise InvalidArgumentError(
                f"fraction must lie in (0, 1], got {self.fraction}; the paper takes half of the samples"
            )

    def _train(self, run: Run) -> str:
        task, status, captured = run.task, "", CapturedEvaluation()
        first = 0
        if run.position:
            with run.restoring():
                task.generator.set_state(run.position["drawn_from"])
                first = check_count(run.position["batch"], "batch")
        for number in range(first, self.n_batches):
            here = {"batch": number, "drawn_from": task.generator.get_state()}
            batch = task.part(self._drawn(task).to(task.x.device))
            if self.normalization != "none":
                by_feature = self.normalization == "feature"
                batch.x = normalize_batch(batch.x, per_feature=by_feature, ranks=task.ranks)
            status = _minimise(run, batch, self.optimizer, self.iterations, self.tolerance, here, captured)
        return status

    def _drawn(self, task: Task) -> torch.Tensor:
        """The samples of a mini-batch, in random order."""
        order = torch.randperm(task.n, generator=task.generator)
        if not self.by_class:
            return order[: max(1, round(self.fraction * len(order)))]
        labels = task.all_targets()[order]
        parts = [order[labels == label] for label in labels.unique()]
        return torch.cat([part[: max(1, round(self.fraction * len(part)))] for part in parts])


@dataclass(frozen=True)
class AdamTraining(Training):
    """Adam on shuffled mini-batches, a record an epoch.

    The loss is the mean over the epoch's batches, the accuracy the share of its samples, by weight, each with the
    parameters it met.

    The learning rate falls linearly, from step to step, to 0 at the end of `max_epochs`.
    """

    learning_rate: float = 1e-3
    batch_size: int = 64
    max_epochs: int = 200

    def __post_init__(self) -> None:
        check_positive(self.learning_rate, "learning_rate")
        for name in ("batch_size", "max_epochs"):
            check_count(getattr(self, name), name, minimum=1)

    def _train(self, run: Run) -> str:
        optimizer = new_adam(run.task.network, self.learning_rate)
        done_before = 0
        if run.position:
            with run.restoring():
                load_adam(optimizer, run.position["optimizer"])
                done_before = check_count(run.position["epoch"], "epoch", minimum=1)
        n_batches = -(-run.task.n // self.batch_size)
        epochs = CapturedEpochs(run.task, optimizer, self.batch_size) if can_capture(run.task) else None
        for epoch in range(done_before + 1, self.max_epochs + 1):
            rates = falling_rates(self.learning_rate, epoch, self.max_epochs, n_batches, range(n_batches))
            found = finite_epoch(run.task, optimizer, self.batch_size, rates, epochs)
            if found is None:
                return str(Status.NOT_FINITE)
            loss, accuracy = found
            run.history.captured = epochs is not None and epochs.is_captured
            run.note(loss, partial(adam_position, epoch, optimizer), accuracy=accuracy)
        return "epoch limit"


def new_adam(network: torch.nn.Module, learning_rate: float) -> torch.optim.Adam:
    # Fused: one call a step for all parameters. On a GPU all that it reads is there, so that it can be captured.
    parameters = list(network.parameters())
    captured = parameters[0].is_cuda
    rate = torch.tensor(learning_rate, device=parameters[0].device) if captured else learning_rate
    return torch.optim.Adam(parameters, lr=rate, fused=True, capturable=captured)


def falling_rates(learning_rate: float, epoch: int, max_epochs: int, n_batches: int, batches: range) -> list[float]:
    """The rates of some of an epoch's batches: from the learning rate linearly to 0 at the end of all epochs."""
    done = [(epoch - 1 + k / n_batches) / max_epochs for k in batches]
    return [learning_rate * (1.0 - share) for share in done]


def finite_epoch(
    task: Task,
    optimizer: torch.optim.Optimizer,
    batch_size: int,
    rates: Sequence[float],
    captured: CapturedEpochs | None = None,
) -> tuple[float, float | None] | None:
    """`adam_epoch`; None, and the network as it was before, where it left what is finite."""
    before = copied_state(task.network)
    try:
        loss, accuracy = adam_epoch(task, optimizer, batch_size, rates, captured)
    except NotFiniteError:
        loss, accuracy = math.nan, None
    if math.isfinite(loss):
        return loss, accuracy
    task.network.load_state_dict(before)
    return None


def adam_epoch(
    task: Task,
    optimizer: torch.optim.Optimizer,
    batch_size: int,
    rates: Sequence[float] | None = None,
    captured: CapturedEpochs | None = None,
) -> tuple[float, float | None]:
    """One pass over the samples in random order; mean loss and accuracy on the way.

    `rates` holds a learning rate for each mini-batch. What was `captured` of earlier epochs makes a step one launch.
    """
    order = torch.randperm(task.n, generator=task.generator).to(task.x.device)
    if captured is not None and rates is not None:
        return captured.run(order, rates)
    shuffled = task.part(order)
    batches, parameters = shuffled.batches(batch_size), list(task.network.parameters())
    loss: float | torch.Tensor = 0.0
    for number, batch in enumerate(batches):
        if rates is not None:
            _set_rate(optimizer, rates[number])
        for parameter in parameters:
            parameter.grad = None
        loss += batch.evaluate() * batch.n  # on a GPU nobody waits for it
        optimizer.step()
    return float(loss) / task.n, shuffled.accuracy(torch.cat([batch.output for batch in batches]))


def _set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    group = optimizer.param_groups[0]
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def adam_position(epoch: int, optimizer: torch.optim.Optimizer) -> State:
    return {"epoch": epoch, "optimizer": optimizer.state_dict()["state"]}


def load_adam(optimizer: torch.optim.Optimizer, state: State) -> None:
    """A ValueError unless the state is one of parameters of these shapes: torch would fail at the first step."""
    groups, parameters = optimizer.state_dict()["param_groups"], optimizer.param_groups[0]["params"]
    if list(state) != [str(number) for number in range(len(parameters))]:
        raise ValueError(f"moments of {len(state)} parameters for {len(parameters)}")
    for moments, parameter in zip(state.values(), parameters, strict=True):
        shapes = {"step": (), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
        if {name: value.shape for name, value in moments.items()} != shapes:
            raise ValueError(f"moments that do not fit a parameter of shape {tuple(parameter.shape)}")
        if moments["step"].dtype != torch.float32 or not all(value.is_floating_point() for value in moments.values()):
            raise ValueError("moments that are not floating-point numbers")
    optimizer.load_state_dict({"state": {int(key): value for key, value in state.items()}, "param_groups": groups})


def _minimise(
    run: Run, task: Task, optimizer: str, max_iter: int, tolerance: float, here: State, captured: CapturedEvaluation
) -> str:
    """Run a line-search optimiser on the task, noting each iteration; returns why it stopped.

    `here` is what a checkpoint must hold beside the state of the optimiser; of a checkpoint, the first call goes on.
    `captured` evaluates where it can.
    """
    resumed, run.position = run.position, {}
    with run.restoring():
        done = check_count(resumed.get("iteration", 0), "iteration")
    if done >= max_iter:
        return str(Status.ITERATION_LIMIT)

    def note(iteration: Iteration) -> None:
        run.history.captured = captured.is_captured
        run.note(
            iteration.loss,
            lambda: {**here, "iteration": done + iteration.iteration, "optimizer": minimizer.state_dict()},
            gradient_norm=iteration.gradient_norm,
            line_search_trials=iteration.line_search_trials,
            accuracy=task.accuracy(task.output),
        )

    parameters = list(task.network.parameters())
    minimizer: Any = OPTIMIZERS[optimizer](parameters, max_iter=max_iter - done, tolerance=tolerance, callback=note)
    if resumed:
        with run.restoring():
            minimizer.load_state_dict(resumed["optimizer"])
    minimizer.step(_closure(task, parameters, captured))
    return str(minimizer.result.status)


def _closure(
    task: Task, parameters: Sequence[torch.nn.Parameter], captured: CapturedEvaluation
) -> Callable[[], float | torch.Tensor]:
    by_capture = captured.bind(task)

    def closure() -> float | torch.Tensor:
        if by_capture:
            value, task.output = captured.backward()
            return value
        for parameter in parameters:
            parameter.grad = None
        try:
            return task.backward()
        except NotFiniteError:
            # A step too long: the line search takes a shorter one.
            return math.inf

    return closure
