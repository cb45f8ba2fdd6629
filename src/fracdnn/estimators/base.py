"""What classifier and regressor share: parameters, validation, training."""

import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fracdnn.exceptions import FileContentError, NotFiniteError
from fracdnn.nn import FractionalNetwork
from fracdnn.nn.operators import ACTIVATIONS, BIASES
from fracdnn.optim import Status
from fracdnn.training import (
    AdamTraining,
    Checkpoints,
    EarlyStopping,
    FullBatchTraining,
    History,
    Objective,
    Record,
    Regularization,
    Standardization,
    Task,
    Training,
    shown_progress,
)
from fracdnn.training.history import layer_gradient_norms
from fracdnn.training.loops import adam_epoch, new_adam

# Within a search, Ctrl-C should end the search; else it ends a fit, whose model is kept.
interrupts_raised: ContextVar[bool] = ContextVar("interrupts_raised", default=False)
# Predictions are made for this many rows at a time, so that memory stays bounded.
ROWS_AT_A_TIME = 16_384
# Parameters that say where and how to run, not what was learned.
LOCAL_PARAMETERS = ("device", "checkpoint", "resume", "verbose")
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class FractionalEstimator(BaseEstimator):
    """A `FractionalNetwork` on standardised features, trained from a table; see the subclasses.

    The network: `n_layers` layers of the given `width` (None: the number of features) behind an opening map, `order`
    (learned with `learn_order`), `step_size`, `activation` and `bias` as in `FractionalNetwork`.

    The training: `solver="adam"` runs `max_iter` epochs of mini-batches of `batch_size`, the `learning_rate` falling
    linearly to 0; "lbfgs" and "bfgs" run up to `max_iter` iterations on all samples, until the norm of the gradient is
    below `tolerance`. `alpha` is the decay of all matrices. `early_stopping` holds out `validation_fraction` of the
    samples and stops when their loss has not improved for `n_iter_no_change` epochs or iterations. `max_iter` is a
    budget, not a failure: `history_.status` says why a training ended, and only one that ended badly warns.
    `checkpoint` is a file to write every `checkpoint_every` epochs or iterations; with `resume`, a fit goes on from it
    and ends at the same bits. `verbose` shows a bar on standard error. `dtype` is what training computes in; fitted
    networks are float64. `device="auto"` is a GPU where there is one. How the defaults were found: docs/estimators.md.

    Fitted: `network_`, `order_`, `history_`, `loss_`, `n_iter_`, `standardization_`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "order": [Interval(Real, 0, 1, closed="right")],
        "width": [None, Interval(Integral, 1, None, closed="left")],
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "activation": [StrOptions(set(ACTIVATIONS))],
        "bias": [StrOptions(set(BIASES))],
        "learn_order": ["boolean"],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "solver": [StrOptions({"lbfgs", "bfgs", "adam"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tolerance": [Interval(Real, 0, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "checkpoint": [None, str, os.PathLike],
        "checkpoint_every": [Interval(Integral, 1, None, closed="left")],
        "resume": ["boolean"],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "dtype": [StrOptions(set(DTYPES))],
    }

    def __init__(
        self,
        *,
        n_layers: int = 3,
        order: float = 0.5,
        width: int | None = 64,
        step_size: float = 0.5,
        activation: str = "gelu",
        bias: str = "vector",
        learn_order: bool = False,
        alpha: float = 3e-3,
        solver: str = "adam",
        max_iter: int = 60,
        tolerance: float = 1e-5,
        learning_rate: float = 1e-2,
        batch_size: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        checkpoint: str | os.PathLike | None = None,
        checkpoint_every: int = 50,
        resume: bool = False,
        verbose: bool = False,
        warm_start: bool = False,
        random_state: Any = None,
        device: str | torch.device = "auto",
        dtype: str = "float32",
    ) -> None:
        self.n_layers = n_layers
        self.order = order
        self.width = width
        self.step_size = step_size
        self.activation = activation
        self.bias = bias
        self.learn_order = learn_order
        self.alpha = alpha
        self.solver = solver
        self.max_iter = max_iter
        self.tolerance = tolerance
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.resume = resume
        self.verbose = verbose
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.dtype = dtype

    def trajectory(self, X: Any) -> np.ndarray:
        """The flow of the samples through the layers: Y_0 … Y_N, [n_layers + 1, n_samples, width]."""
        return self._run(X, self._fitted_network().trajectory, rows=1)

    def save(self, path: str | os.PathLike) -> Path:
        """Write the fitted model to one file, whole or not at all; `fracdnn.load` reads it. See `model_file`."""
        from fracdnn.estimators.model_file import save

        return save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """A model that `save` wrote, ready to predict; its predictions are the same to the last bit."""
        from fracdnn.estimators.model_file import load

        found = load(path)
        if not isinstance(found, cls):
            raise FileContentError(
                f"{path} must hold a {cls.__name__}, got a {type(found).__name__}; use fracdnn.load(path)"
            )
        return found

    def export(self, path: str | os.PathLike) -> Path:
        """The fitted network with its scaling as ONNX (`.onnx`) or a torch.export program (`.pt2`), for other programs.

        It takes features [n, n_features] of the type `dtype`, computes in float64, and gives what `predict_proba` or a
        regressor's `predict` ([n, n_outputs]) gives.
        """
        from fracdnn.estimators.export import export

        return export(self, path)

    @abstractmethod
    def _answer(self, output: torch.Tensor) -> torch.Tensor:
        """Outputs of the network, float64, as the user wants them; must be traceable."""

    def _fitted_network(self) -> FractionalNetwork:
        check_is_fitted(self)
        return self.network_

    def _answers(self, X: Any) -> np.ndarray:
        network = self._fitted_network()
        return self._run(X, lambda x: self._answer(network(x).to("cpu", torch.float64)))

    @torch.no_grad()
    def _run(self, X: Any, function: Callable[[torch.Tensor], torch.Tensor], rows: int = 0) -> np.ndarray:
        """The function of standardised samples, a part of them at a time; `rows` is their axis in what it gives."""
        X = validate_data(self, as_numpy(X), reset=False, dtype=np.float64)
        parts = [function(self._standardised(part)).cpu() for part in as_tensor(X).split(ROWS_AT_A_TIME)]
        return torch.cat(parts, dim=rows).numpy()

    def _standardised(self, X: torch.Tensor) -> torch.Tensor:
        return self.standardization_(X).to(self._device())

    def _train(self, X: np.ndarray, target: np.ndarray, n_outputs: int, loss: str, weight: np.ndarray) -> None:
        task = self._task(X, target, n_outputs, loss, weight, new=not self._goes_on())
        self.__dict__.pop("_adam", None)  # its moments belong to other weights
        training = self._training()
        with shown_progress(self.max_iter) if self.verbose else nullcontext() as watch:
            task.watch = watch
            history = training.fit(task)
        if history.status == Status.NOT_FINITE:
            warnings.warn(
                "training stopped at a point that is not finite; scale the data, or use a smaller step_size or order",
                ConvergenceWarning,
                stacklevel=3,
            )
        if history.status == "interrupted":
            warnings.warn(
                f"training interrupted by the user after {len(history.records)} iterations; the model is usable",
                ConvergenceWarning,
                stacklevel=3,
            )
        self._tell(history, task)

    def _train_on(self, X: np.ndarray, target: np.ndarray, n_outputs: int, loss: str, weight: np.ndarray) -> None:
        """One epoch of Adam on these samples; the first call fixes the scaling, as later samples are not known yet."""
        new = not hasattr(self, "network_")
        task = self._task(X, target, n_outputs, loss, weight, new=new)
        if new or not hasattr(self, "_adam"):
            self._adam = new_adam(self.network_, float(self.learning_rate))
            self.history_ = History(status="partial")
        mean_loss, accuracy = adam_epoch(task, self._adam, int(self.batch_size))
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
        self.network_.to(torch.float64)
        self.order_ = order_of(self.network_)

    def _task(
        self, X: np.ndarray, target: np.ndarray, n_outputs: int, loss: str, weight: np.ndarray, *, new: bool
    ) -> Task:
        """The samples, merged and standardised, and the network, a new one or that of before."""
        random = check_random_state(self.random_state)
        generator = torch.Generator().manual_seed(int(random.randint(2**31 - 1)))
        X, target, weight = merge_repeated(X, target, weight)
        x, weights = as_tensor(X), as_tensor(weight)
        self._smoothing = self._label_smoothing()
        if new:
            self.standardization_ = Standardization.of(x, weights)
            self.network_ = self._new_network(X.shape[1], n_outputs, generator)
        alpha = float(self.alpha)
        return Task(
            self.network_.to(self._dtype()),
            Objective(loss, Regularization(class_map=alpha, decay=alpha), self._smoothing),
            self._standardised(x).to(self._dtype()),
            self._target(target).to(self._device()),
            weights.to(self._device(), self._dtype()),
            generator,
        )

    def _new_network(self, n_features: int, n_outputs: int, generator: torch.Generator) -> FractionalNetwork:
        network = FractionalNetwork(
            n_features,
            n_outputs,
            n_layers=int(self.n_layers),
            order=float(self.order),
            width=None if self.width is None else int(self.width),
            activate_opening=True,
            step_size=float(self.step_size),
            activation=self.activation,
            bias=self.bias,
            learn_order=bool(self.learn_order),
            generator=generator,
        )
        return network.to(self._device())

    def _label_smoothing(self) -> float:
        return float(getattr(self, "label_smoothing", 0.0))

    def _goes_on(self) -> bool:
        """Whether a fit starts from the network of the one before."""
        return self.warm_start and hasattr(self, "network_")

    def _training(self) -> Training:
        # Plain numbers: a search may hand in NumPy's, which JSON does not know.
        stopping = EarlyStopping(float(self.validation_fraction), int(self.n_iter_no_change))
        path = self.checkpoint
        checkpoints = None if path is None else Checkpoints(os.fspath(path), int(self.checkpoint_every), self.resume)
        options: Any = {
            "early_stopping": stopping if self.early_stopping else None,
            "checkpoints": checkpoints,
            "keep_interrupted": not interrupts_raised.get(),
        }
        if self.solver == "adam":
            return AdamTraining(float(self.learning_rate), int(self.batch_size), int(self.max_iter), **options)
        return FullBatchTraining(self.solver, int(self.max_iter), float(self.tolerance), **options)

    def _target(self, target: np.ndarray) -> torch.Tensor:
        """Class indices as they are, values in the network's dtype."""
        found = as_tensor(target)
        return found.to(self._dtype()) if found.is_floating_point() else found

    def _weights(self, sample_weight: Any, X: np.ndarray) -> np.ndarray:
        return _check_sample_weight(as_numpy(sample_weight), X, dtype=np.float64, ensure_non_negative=True)

    def _dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


def order_of(network: FractionalNetwork) -> float:
    """The order as it stands: an estimator's network has one for all layers."""
    assert network.stack is not None
    return float(network.stack.order.detach())


def _loss_at_start(task: Task) -> float:
    try:
        return float(task.loss().detach())
    except NotFiniteError:
        return math.inf


def as_numpy(values: Any) -> Any:
    """A tensor of any device as an array; anything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else values


def as_tensor(values: np.ndarray) -> torch.Tensor:
    """Without a copy where the array may be written; some tables' columns may not."""
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def merge_repeated(X: np.ndarray, target: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct samples in sorted order with their weights added up, those without weight left out.

    The objective is the same and costs less; and a weight is then worth a repetition to the last bit.
    """
    kept = weight > 0
    X, target, weight = X[kept], target[kept], weight[kept]
    both = np.column_stack([X, target.reshape(len(target), -1).astype(np.float64)])
    _, first, which = np.unique(both, axis=0, return_index=True, return_inverse=True)
    return X[first], target[first], np.bincount(which.reshape(-1), weights=weight)
