"""How an estimator is trained: its members one after the other, each without another part of the samples."""

import math
import os
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from fracdnn.estimators.inputs import Inputs
from fracdnn.estimators.members import how_far, parts, temperature_of
from fracdnn.estimators.networks import check_matrix_fits, operator_of, order_of, plain_grid
from fracdnn.estimators.parameters import DTYPES, SharedParameters
from fracdnn.estimators.recipe import Recipe, settled
from fracdnn.estimators.samples import as_tensor, merge_repeated, rows_of_all
from fracdnn.estimators.shaping import Shaping
from fracdnn.exceptions import NotFiniteError
from fracdnn.nn import FractionalNetwork
from fracdnn.optim import Status
from fracdnn.training import (
    AdamTraining,
    Checkpoints,
    EarlyStopping,
    FullBatchTraining,
    History,
    MiniBatchTraining,
    Objective,
    Record,
    Regularization,
    Standardization,
    Task,
    Training,
    shown_progress,
)
from fracdnn.training.adam import adam_epoch, can_go_side_by_side, fit_side_by_side, new_adam
from fracdnn.training.digest import digest
from fracdnn.training.history import layer_gradient_norms
from fracdnn.training.together import Ranks

# How a training ends from outside.
_CUT_SHORT = ("interrupted", "time limit")
_interrupts_raised: ContextVar[bool] = ContextVar("_interrupts_raised", default=False)


@contextmanager
def raise_interrupts() -> Iterator[None]:
    """In here Ctrl-C ends whatever calls `fit`, such as a search; elsewhere it ends a fit, whose model is kept."""
    token = _interrupts_raised.set(True)
    try:
        yield
    finally:
        _interrupts_raised.reset(token)


class Fitting(Inputs, SharedParameters):
    """From samples to trained networks, `members_`; the first of them is `network_`, whose training is `history_`."""

    members_: list[FractionalNetwork]
    temperature_: float | None
    history_: History

    @property
    def network_(self) -> FractionalNetwork:
        return self.members_[0]

    @network_.setter
    def network_(self, network: FractionalNetwork) -> None:
        self.members_, self.temperature_ = [network], None

    def _train(
        self, X: np.ndarray, target: np.ndarray, n_outputs: int, loss: str, weight: np.ndarray, ranks: Ranks
    ) -> None:
        seed, before = self._seed(ranks), list(self.members_) if self._goes_on() else []
        task, recipe = self._task(X, target, n_outputs, loss, weight, ranks, seed, new=not before)
        n_members = len(before) if before and self.n_members == "auto" else recipe.n_members
        recipe = replace(recipe, n_members=n_members)
        held_out = self._held_out(task, recipe, n_members, seed)
        tasks = [task]
        for number in range(1, n_members):
            generator = torch.Generator().manual_seed(seed + number)
            is_new = number >= len(before)
            network = self._new_network(task.x.shape[1], n_outputs, generator) if is_new else before[number]
            tasks.append(replace(task, network=network.to(self._dtype()), generator=generator))
        for each, rows in zip(tasks, held_out, strict=True):
            each.held_out = rows
        together = self._training(recipe, max_time=None if self.max_time is None else float(self.max_time))
        if can_go_side_by_side(tasks, together):
            self._train_side_by_side(tasks, together, recipe.iterations)
        else:
            self._train_tasks(tasks, partial(self._of_member, recipe), recipe.iterations)

    def _held_out(self, task: Task, recipe: Recipe, n_members: int, seed: int) -> list[torch.Tensor | None]:
        """The rows that each member is not trained on: a part of its own, or of a single one a share."""
        if not recipe.holds_out:
            return [None] * n_members
        n_parts = n_members if n_members > 1 else max(2, round(1 / float(self.validation_fraction)))
        found = parts(task, n_parts, torch.Generator().manual_seed(seed))
        if not len(found[n_members - 1]) or len(found[0]) == task.n:
            raise ValueError(
                f"early_stopping must leave samples to train on and some to hold out for each of {n_members} members, "
                f"got {task.n} different samples in all; pass more samples, fewer members or early_stopping=False"
            )
        return list(found[:n_members])

    def _train_side_by_side(self, tasks: list[Task], training: Any, max_iter: int) -> None:
        """Train all members at once; the bar shows the first of those that are still trained."""
        with shown_progress(max_iter) if self.verbose else nullcontext() as watch:
            news = watch and _News(watch)
            for task in tasks:
                task.watch = news
            histories = fit_side_by_side(training, tasks)
        ended = next((h.status for h in histories if h.status in _CUT_SHORT), "")
        self._keep(tasks, histories, ended, len(tasks))

    def _keep(self, tasks: list[Any], histories: list[History], ended: str, n_members: int) -> None:
        """The networks, how sure they may be, and what there is to tell; `ended` is what cut their training short.

        There are histories of those of the `n_members` that were begun.
        """
        self.members_ = [task.network for task in tasks]
        self.__dict__.pop("_adam", None)  # its moments belong to other weights
        self.temperature_ = self._temperature(tasks)
        self._warn(histories, ended, n_members)
        self._tell(replace(histories[0], status=ended or histories[0].status), tasks[0])

    def _train_tasks(self, tasks: list[Any], training: Callable[[int, float | None], Training], max_iter: int) -> None:
        """Train the members while there is time, show how far they are, and keep what there is to tell.

        The first is kept wherever it ends; of the others, those that came to an end of their own.
        """
        first, histories, began, ended = tasks[0], [], time.monotonic(), ""
        check_matrix_fits(first.network, self.solver)
        shown = self.verbose and first.ranks.is_first
        with shown_progress(len(tasks) * max_iter) if shown else nullcontext() as watch:
            for number, task in enumerate(tasks):
                left = self._time_left(began, task.ranks) if number else self.max_time
                if left is not None and left <= 0:
                    ended = "time limit"
                    break
                task.watch = watch and partial(watch, before=number * max_iter)
                histories.append(training(number, left).fit(task))
                if histories[-1].status in _CUT_SHORT:
                    ended = histories[-1].status
                    break
        kept = [task for task, history in zip(tasks, histories, strict=False) if history.status not in _CUT_SHORT]
        self._keep(kept or [first], histories, ended, len(tasks))

    def _temperature(self, tasks: list[Any]) -> float | None:
        """How sure the members may be, where they classify and held samples out."""
        held_out = [task.part(task.held_out.to(task.x.device)) for task in tasks if task.held_out is not None]
        if not self.calibrate or tasks[0].objective.loss != "cross_entropy" or not held_out:
            return None
        return temperature_of(held_out, tasks[0].ranks)

    def _time_left(self, began: float, ranks: Ranks) -> float | None:
        """Of `max_time`; the least of all ranks, as all must end together."""
        if self.max_time is None:
            return None
        spent = torch.tensor([time.monotonic() - began], dtype=torch.float64)
        return float(self.max_time) - float(ranks.largest(spent, "the time spent"))

    def _warn(self, histories: list[History], ended: str, n_members: int) -> None:
        done = how_far(histories, "epoch" if self.solver == "adam" else "iteration", n_members)
        if any(history.status == Status.NOT_FINITE for history in histories):
            text = "training stopped at a point that is not finite; scale the data, or use a smaller step_size or order"
        elif ended == "interrupted":
            text = f"training interrupted by the user after {done}; the model is usable"
        elif ended == "time limit":
            text = (
                f"training reached max_time={self.max_time:g} s after {done}; the model is usable, and more time "
                f"may improve it"
            )
        else:
            return
        warnings.warn(text, ConvergenceWarning, stacklevel=7)

    def _train_on(
        self, X: np.ndarray, target: np.ndarray, n_outputs: int, loss: str, weight: np.ndarray, ranks: Ranks
    ) -> None:
        """One epoch of Adam on these samples; the first call fixes the scaling, as later samples are not known yet."""
        new = not hasattr(self, "members_")
        task, recipe = self._task(X, target, n_outputs, loss, weight, ranks, self._seed(ranks), new=new)
        self.network_ = task.network  # without other members: these samples are new to it alone
        if new or not hasattr(self, "_adam"):
            self._adam = new_adam(self.network_)
            self.history_ = History(status="partial")
        mean_loss, accuracy = adam_epoch(task, self._adam, recipe.batch_size, float(self.learning_rate_init))
        gradients = layer_gradient_norms(self.network_)
        number = len(self.history_.records) + 1
        norm = float(np.linalg.norm(gradients))
        self.history_.records.append(Record(number, mean_loss, norm, gradients, accuracy=accuracy))
        self._tell(self.history_, task)

    def _tell(self, history: History, task: Task) -> None:
        self.history_ = history
        self.n_iter_ = len(history.records)
        self.loss_ = history.records[-1].loss if history.records else _loss_at_start(task)
        # In float64 an answer does not depend on the rows beside it, as in float32 the last digits do.
        for network in self.members_:
            network.to(torch.float64)
        self.order_ = float(np.mean([order_of(network) for network in self.members_]))

    def _task(
        self,
        X: np.ndarray,
        target: np.ndarray,
        n_outputs: int,
        loss: str,
        weight: np.ndarray,
        ranks: Ranks,
        seed: int,
        *,
        new: bool,
    ) -> tuple[Task, Recipe]:
        """The samples, merged and scaled, with the first network, a new one or that of before; and what "auto" means
        for them.
        """
        # Scaled numbers depend, in their last digits, on the number of processes; those that were given do not.
        given = [as_tensor(each) for each in (X, target, weight)]
        identity = None if self.checkpoint is None else digest(ranks, given, places=None)
        X, target, weight, rows = merge_repeated(X, self._scaled(target), weight, ranks)
        x, weights, generator = as_tensor(X), as_tensor(weight), torch.Generator().manual_seed(seed)
        recipe = settled(self, rows.n, X.shape[1])
        self._smoothing = self._label_smoothing()
        if new:
            self.standardization_ = Standardization.of(x, weights, ranks)
            clip = None if self.clip is None else float(self.clip)
            self.shaping_ = Shaping.of(rows_of_all(X, ranks), rows_of_all(weight, ranks), recipe.n_bins, clip)
            self.network_ = self._new_network(X.shape[1] + self.shaping_.n_added, n_outputs, generator)
        task = Task(
            self.network_.to(self._dtype()),
            self._objective(loss),
            self._standardised(x).to(self._dtype()),
            self._target(target).to(self._device()),
            weights.to(self._device(), self._dtype()),
            generator,
            rows=rows,
            identity=identity,
            ranks=ranks,
        )
        return task, recipe

    def _objective(self, loss: str) -> Objective:
        alpha = float(self.alpha)
        terms = Regularization(
            class_map=alpha if self.alpha_output is None else float(self.alpha_output),
            operator=float(self.alpha_smooth),
            bias=float(self.alpha_bias),
            decay=alpha,
            laplacian=self.laplacian,
        )
        return Objective(loss, terms, self._smoothing)

    def _seed(self, ranks: Ranks) -> int:
        """The first rank's: where `random_state` is None, others draw other ones."""
        seed = torch.tensor([check_random_state(self.random_state).randint(2**31 - 1)])
        return int(ranks.from_rank(0, seed, "the seed"))

    def _network_options(self) -> dict[str, Any]:
        """What of a network the parameters say."""
        return {
            "n_layers": int(self.n_layers),
            "order": float(self.order),
            "width": None if self.width is None else int(self.width),
            "step_size": float(self.step_size),
            "activation": self.activation,
            "bias": self.bias,
            "learn_order": bool(self.learn_order),
            **self._operator_options(),
        }

    def _operator_options(self) -> dict[str, Any]:
        if self.operator == "dense":
            if self.grid_shape is not None:
                raise ValueError(
                    f"grid_shape must be None with operator='dense', got {self.grid_shape}; a dense K knows no grid; "
                    f"leave it out, or use operator='five-point' or 'nine-point'"
                )
            return {"operator": "dense"}
        grid = None if self.grid_shape is None else plain_grid(self.grid_shape)
        return {"operator": "stencil", "stencil": self.operator, "grid_shape": grid}

    def _new_network(self, n_features: int, n_outputs: int, generator: torch.Generator) -> FractionalNetwork:
        options = self._network_options()
        return FractionalNetwork(n_features, n_outputs, activate_opening=True, generator=generator, **options).to(
            self._device()
        )

    def _label_smoothing(self) -> float:
        return float(getattr(self, "label_smoothing", 0.0))

    def _goes_on(self) -> bool:
        """Whether a fit starts from the networks of the one before, which must be such as the parameters say."""
        if not self.warm_start or not hasattr(self, "members_"):
            return False
        before, now = (
            {**options, "operator": operator_of(options)}
            for options in (self.network_.options, self._network_options())
        )
        for name, value in now.items():
            if before[name] != value:
                raise ValueError(
                    f"{name} must be {before[name]!r} as in the fit before with warm_start=True, "
                    f"got {value!r}; set warm_start=False to start anew"
                )
        if self.n_members != "auto" and int(self.n_members) < len(self.members_):
            raise ValueError(
                f"n_members must be at least {len(self.members_)}, as many as there are, with warm_start=True, "
                f"got {self.n_members}; set warm_start=False to start anew"
            )
        return True

    def _training(self, recipe: Recipe, max_time: float | None = None) -> Training:
        # Plain numbers: a search may hand in NumPy's, which JSON does not know.
        stopping = EarlyStopping(float(self.validation_fraction), int(self.n_iter_no_change))
        checkpoints = None
        if self.checkpoint is not None:
            checkpoints = Checkpoints(os.fspath(self.checkpoint), int(self.checkpoint_every), self.resume)
        options: Any = {
            "early_stopping": stopping if recipe.holds_out else None,
            "checkpoints": checkpoints,
            "keep_interrupted": not _interrupts_raised.get(),
            "max_time": max_time,
        }
        if self.solver == "adam":
            return AdamTraining(float(self.learning_rate_init), recipe.batch_size, recipe.max_iter, **options)
        if self.solver == "paper":
            return MiniBatchTraining(recipe.n_batches, recipe.max_iter, tolerance=float(self.tol), **options)
        return FullBatchTraining(self.solver, recipe.max_iter, float(self.tol), **options)

    def _of_member(self, recipe: Recipe, member: int, max_time: float | None) -> Training:
        """The training of one of several that are trained one after the other."""
        whole = self._training(recipe, max_time)
        if recipe.n_members == 1 or whole.checkpoints is None:
            return whole
        return replace(whole, checkpoints=whole.checkpoints.of_member(member))

    def _target(self, target: np.ndarray) -> torch.Tensor:
        """Class indices as they are, values in the network's dtype."""
        found = as_tensor(target)
        return found.to(self._dtype()) if found.is_floating_point() else found

    @abstractmethod
    def _scaled(self, target: np.ndarray) -> np.ndarray:
        """Targets as the network learns them."""

    def _standardised(self, X: torch.Tensor) -> torch.Tensor:
        return self.shaping_(X, self.standardization_(X)).to(self._device())

    def _dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


class _News:
    """Shows a record only where it is later than all before: those of several members come one after the other."""

    def __init__(self, show: Callable[[Record], None]) -> None:
        self._show, self._latest = show, 0

    def __call__(self, record: Record) -> None:
        if record.iteration > self._latest:
            self._latest = record.iteration
            self._show(record)


def _loss_at_start(task: Task) -> float:
    try:
        return float(task.loss().detach())
    except NotFiniteError:
        return math.inf
