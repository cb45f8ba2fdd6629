"""How an estimator is trained: its members one after the other, each of which holds out a different fold."""

import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from fracdnn.estimators.calibration import Calibration, temperature_of, weight_of
from fracdnn.estimators.model_file import parameters_document
from fracdnn.estimators.recipe import (
    CLIP,
    LABEL_SMOOTHING,
    PATIENCE,
    TOLERANCE_GRAD,
    VALIDATION_FRACTION,
    Recipe,
    resolve_recipe,
)
from fracdnn.estimators.shaping import Shaping
from fracdnn.exceptions import InvalidArgumentError, NotFiniteError
from fracdnn.nn import FractionalNetwork
from fracdnn.optim import Status
from fracdnn.parameters import SharedParameters
from fracdnn.training import (
    AdamTraining,
    Checkpoints,
    EarlyStopping,
    FullBatchTraining,
    History,
    Objective,
    Regularization,
    Standardization,
    Task,
    Training,
    processes,
    shown_progress,
)
from fracdnn.training.adam import Adam, adam_epoch
from fracdnn.training.progress import logged
from fracdnn.training.records import record_of
from fracdnn.training.task import digest

# Parameters that a network has, too.
_NETWORK_OPTIONS = ("n_layers", "order", "width", "step_size", "activation", "learn_order")
# How a training ends from outside.
_CUT_SHORT = ("interrupted", "time limit")
# What BFGS may take for its matrix, in bytes.
MOST_FOR_MATRIX = 2 * 2**30
_interrupts_raised: ContextVar[bool] = ContextVar("_interrupts_raised", default=False)


@contextmanager
def raise_interrupts() -> Iterator[None]:
    """In here Ctrl-C ends whatever calls `fit`, such as a search; elsewhere it ends a fit, whose model is kept."""
    token = _interrupts_raised.set(True)
    try:
        yield
    finally:
        _interrupts_raised.reset(token)


class Fitting(SharedParameters, BaseEstimator):
    """From samples to trained networks, `members_`; the first of them is `network_`, whose training is `history_`."""

    members_: list[FractionalNetwork]
    standardization_: Standardization
    shaping_: Shaping
    classes_: np.ndarray
    target_scale_: Standardization
    temperature_: float | None
    calibration_: Calibration | None
    history_: History
    _loss: str

    @property
    def network_(self) -> FractionalNetwork:
        return self.members_[0]

    def _train(self, X: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        """Train all members anew."""
        seed = self._seed()
        task, recipe = self._task(X, target, weight, seed, new=True)
        tasks = [task]
        for number in range(1, recipe.n_members):
            generator = torch.Generator().manual_seed(seed + number)
            network = self._new_network(task.x.shape[1], generator).to(self._dtype())
            tasks.append(replace(task, network=network, generator=generator))
        for each, rows in zip(tasks, self._held_out(task, recipe, seed), strict=True):
            each.held_out = rows
        self._train_tasks(tasks, recipe)

    def _held_out(self, task: Task, recipe: Recipe, seed: int) -> list[torch.Tensor | None]:
        """The rows that each member is not trained on: a part of its own, or of a single one a share."""
        n_members = recipe.n_members
        if not recipe.holds_out:
            return [None] * n_members
        n_parts = n_members if n_members > 1 else max(2, round(1 / VALIDATION_FRACTION))
        found = random_parts(task, n_parts, torch.Generator().manual_seed(seed))
        if not len(found[n_members - 1]) or len(found[0]) == task.n:
            raise ValueError(
                f"early_stopping must leave samples to train on and some to hold out for each of {n_members} members, "
                f"got {task.n} different samples in all; pass more samples, fewer members or early_stopping=False"
            )
        return list(found[:n_members])

    def _shown(self, iterations: int) -> AbstractContextManager[Callable[..., None] | None]:
        """Return a context with a bar for so many iterations, if there is to be one."""
        if not processes.is_first():
            return nullcontext()
        return shown_progress(iterations) if self.verbose else logged(iterations)

    def _train_tasks(self, tasks: list[Task], recipe: Recipe) -> None:
        """Train the members; keep their networks, how sure they may be, and what there is to tell."""
        _check_matrix_fits(tasks[0].network, self.optimizer)
        with self._shown(recipe.max_iter) as watch:
            for task in tasks:
                task.watch = watch
            histories = self._training(recipe).fit_all(tasks)
        ended = next((history.status for history in histories if history.status in _CUT_SHORT), "")
        pairs = list(zip(tasks, histories, strict=True))
        # By Adam members train side by side, and all have come as far; else one after the other.
        cut = () if self.optimizer == "adam" else _CUT_SHORT
        kept = [task for task, history in pairs if history.records and history.status not in cut] or tasks[:1]
        self.members_, self.temperature_, self.calibration_ = [task.network for task in kept], None, None
        self.__dict__.pop("_adam", None)  # Its moments belong to other weights.
        held_out = [task.part(task.held_out.to(task.x.device)) for task in kept if task.held_out is not None]
        with torch.no_grad():
            outputs = [task.network(task.x).to("cpu", torch.float64) for task in held_out]
        rows = [(out, task.target.cpu(), weight_of(task)) for out, task in zip(outputs, held_out, strict=True)]
        # Every rank calibrates with the rows that all ranks held out.
        every = zip(*processes.from_each(rows), strict=True)
        known = [tuple(map(torch.cat, zip(*parts, strict=True))) for parts in every]
        if held_out and self._loss == "cross_entropy":
            self.temperature_ = temperature_of(known)
        if held_out:
            scores = [self._scores(output, target) for output, target, _ in known]
            features = [task.x.cpu() for task in held_out]
            has_scale = processes.count() == 1 and self._loss == "squared_error"
            weights = [weight for _, _, weight in known]
            self.calibration_ = Calibration.of(scores, weights, features if has_scale else None)
        self._warn([history for history in histories if history.records] or histories[:1], ended, len(tasks))
        self._tell(replace(histories[0], status=ended or histories[0].status), tasks[0])

    @abstractmethod
    def _scores(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """How far off outputs are, [n, n_outputs], or for classes [n, 1]."""

    def _warn(self, histories: list[History], ended: str, n_members: int) -> None:
        done = _how_far(histories, "epoch" if self.optimizer == "adam" else "iteration", n_members)
        if any(history.status == Status.NOT_FINITE for history in histories):
            text = "training stopped at a point that is not finite; scale the data, or use a smaller step_size or order"
        elif ended == "interrupted":
            text = f"training interrupted by the user after {done}; the model is usable"
        elif ended:
            reached = f"training reached max_time={self.max_time:g} s after {done}"
            text = f"{reached}; the model is usable, and more time may improve it"
        else:
            return
        warnings.warn(text, ConvergenceWarning, stacklevel=5)

    def _train_on(self, X: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        """One epoch of Adam on these samples; the first call fixes the scaling, as later samples are not known yet."""
        new = not hasattr(self, "members_")
        task, recipe = self._task(X, target, weight, self._seed(), new=new)
        self.members_, self.temperature_, self.calibration_ = [task.network], None, None  # others have not seen these
        if new or not hasattr(self, "_adam"):
            self._adam = Adam(list(self.network_.parameters()))
            self.history_ = History(status="partial")
        found = adam_epoch(task, self._adam, recipe.batch_size, float(self.learning_rate_init))
        self.history_.records.append(record_of(self.network_, len(self.history_.records) + 1, *found))
        self._tell(self.history_, task)

    def _tell(self, history: History, task: Task) -> None:
        self.history_, self.loss_ = history, math.inf
        with suppress(NotFiniteError):
            self.loss_ = history.records[-1].loss if history.records else float(task.loss().detach())
        # In float64 an answer does not depend on the rows beside it, as in float32 the last digits do.
        for network in self.members_:
            network.to(torch.float64)

    def _task(
        self, X: np.ndarray, target: np.ndarray, weight: np.ndarray, seed: int, *, new: bool
    ) -> tuple[Task, Recipe]:
        """The samples, merged and scaled, with the first network, a new one or that of before; and what "auto" means
        for them.
        """
        # Scaled numbers may depend, in their last digits, on the machine; those that were given do not.
        given = [as_tensor(each) for each in (X, target, weight)]
        identity = None if self.checkpoint_path is None else digest(given)
        X, target, weight = merge_repeated(X, self._scaled(target), weight)
        x, values, weights = as_tensor(X), as_tensor(target), as_tensor(weight)
        generator = torch.Generator().manual_seed(seed)
        recipe = resolve_recipe(self, sum(processes.from_each(len(X))), X.shape[1])
        if new:
            # Rank 0's rows scale the inputs of all ranks.
            found = Standardization.of(x, weights), Shaping.of(X, weight, recipe.n_bins, CLIP)
            self.standardization_, self.shaping_ = processes.from_first(found)
        n_features = X.shape[1] + self.shaping_.n_added
        network = self._new_network(n_features, generator) if new else self.network_
        task = Task(
            network.to(self._dtype()),
            self._objective(),
            self._standardised(x).to(self._dtype()),
            values.to(self._device(), self._dtype() if values.is_floating_point() else torch.int64),
            weights.to(self._device(), self._dtype()),
            generator,
            identity=identity,
        )
        return task, recipe

    def _objective(self) -> Objective:
        alpha, self._smoothing = float(self.alpha), LABEL_SMOOTHING if self._loss == "cross_entropy" else 0.0
        return Objective(self._loss, Regularization(decay_output=alpha, decay=alpha), self._smoothing)

    def _seed(self) -> int:
        """The first process's: where `random_state` is None, others draw other ones."""
        return processes.from_first(int(check_random_state(self.random_state).randint(2**31 - 1)))

    def _network_options(self) -> dict[str, Any]:
        given = parameters_document(self.get_params(deep=False))
        return {name: given[name] for name in _NETWORK_OPTIONS}

    def _new_network(self, n_features: int, generator: torch.Generator) -> FractionalNetwork:
        n_outputs = len(self.target_scale_.mean if self._loss == "squared_error" else self.classes_)
        options = {"activate_input": True, "generator": generator, **self._network_options()}
        return FractionalNetwork(n_features, n_outputs, **options).to(self._device())

    def _training(self, recipe: Recipe) -> Training:
        stopping, path = EarlyStopping(VALIDATION_FRACTION, PATIENCE), self.checkpoint_path
        options: Any = {
            "early_stopping": stopping if recipe.holds_out else None,
            "checkpoints": path and Checkpoints(os.fspath(path), recipe.checkpoint_every, self.resume),
            # Ranks cannot agree on where to go on from an interrupt.
            "keep_interrupted": processes.count() == 1 and not _interrupts_raised.get(),
            "max_time": None if self.max_time is None else float(self.max_time),
        }
        # Plain numbers: a search may pass NumPy's, which JSON does not know.
        if self.optimizer == "adam":
            return AdamTraining(float(self.learning_rate_init), recipe.batch_size, recipe.max_iter, **options)
        return FullBatchTraining(self.optimizer, recipe.max_iter, TOLERANCE_GRAD, **options)

    def _scaled(self, target: np.ndarray) -> np.ndarray:
        """Targets as the network learns them."""
        return target

    def _standardised(self, X: torch.Tensor) -> torch.Tensor:
        return self.shaping_(X, self.standardization_(X)).to(self._device())

    def _dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


def random_parts(task: Task, n_parts: int, generator: torch.Generator) -> list[torch.Tensor]:
    """The row numbers of random parts of nearly the same size, over which each class is spread evenly."""
    order = torch.randperm(task.n, generator=generator)
    if task.objective.loss == "cross_entropy":
        order = order[torch.sort(task.target.cpu()[order], stable=True).indices]
    return [order[k::n_parts] for k in range(n_parts)]


def _how_far(histories: Sequence[History], unit: str, n_members: int) -> str:
    """What each member did, of those that were begun, such as "3 to 5 epochs of each of 8 members"."""
    fewest, most = (pick(len(history.records) for history in histories) for pick in (min, max))
    counted = f"{'' if fewest == most else f'{fewest} to '}{most} {unit}{'' if most == 1 else 's'}"
    if n_members == 1:
        return counted
    begun = len(histories)
    which = "each of " if begun == n_members else "the first of " if begun == 1 else f"each of the first {begun} of "
    return f"{counted} of {which}{n_members} members"


def _check_matrix_fits(network: FractionalNetwork, optimizer: str) -> None:
    """Refuse BFGS for a network of so many parameters that its matrix would fill the memory."""
    n = sum(parameter.numel() for parameter in network.parameters())
    needed = n * n * network.W.element_size()
    if optimizer == "bfgs" and needed > MOST_FOR_MATRIX:
        raise InvalidArgumentError(
            f"optimizer={optimizer!r} must have at most {MOST_FOR_MATRIX / 2**30:.3g} GiB for its matrix of n × n "
            f"numbers, got {needed / 2**30:.3g} GiB for n = {n:,} parameters in "
            f"{str(network.W.dtype).removeprefix('torch.')}; "
            f"use optimizer='lbfgs' or 'adam', a smaller width or fewer n_layers"
        )


def as_tensor(values: np.ndarray) -> torch.Tensor:
    """Without a copy where the array may be written; some tables' columns may not."""
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def heaviest(weight: np.ndarray) -> float:
    """Return the largest weight, which must be above 0."""
    found = float(weight.max(initial=0.0))
    if not found > 0:
        raise ValueError(
            "sample_weight and class_weight must leave a sample with a weight above 0, got zero for all; raise one"
        )
    return found


def merge_repeated(X: np.ndarray, target: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return distinct samples in sorted order with their weights added up, without those of no weight.

    The objective is the same and costs less; and a weight is then worth a repetition to the last bit. Only the ratios
    of weights count: they are divided by a power of 2, so that in single precision none overflows and none is lost.
    """
    largest = max(processes.from_each(heaviest(weight)))
    kept = weight > 0
    X, target, weight = X[kept], target[kept], np.ldexp(weight[kept], -int(np.frexp(largest)[1]))
    both = np.column_stack([X, target.astype(np.float64)])
    # Sorting keys takes half the time that sorting rows does.
    _, first, which = np.unique(_sorting_keys(both), return_index=True, return_inverse=True)
    return X[first], target[first], np.bincount(which, weights=weight, minlength=len(first))


def _sorting_keys(rows: np.ndarray) -> np.ndarray:
    """Rows of finite numbers as bytes that sort as the rows do, number by number."""
    bits = (np.ascontiguousarray(rows) + 0.0).view(np.int64)  # with one zero in place of two
    bits ^= (bits >> 63) | np.iinfo(np.int64).min  # the sign of all, and the other bits of negative numbers
    return bits.astype(">i8").view(f"S{8 * rows.shape[1]}").reshape(-1)
