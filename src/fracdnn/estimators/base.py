"""What classifier and regressor share: parameters, validation, training."""

import math
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fracdnn.container import checked, read_document, write_document
from fracdnn.estimators.curves import Curves
from fracdnn.estimators.export import Deployed, write_program
from fracdnn.estimators.model_file import parameters_document, parameters_of
from fracdnn.estimators.networks import network_document, network_of, order_of
from fracdnn.estimators.parameters import DTYPES, SharedParameters
from fracdnn.estimators.samples import as_numpy, as_tensor, check_one_label_each, dense, merge_repeated
from fracdnn.exceptions import FileContentError, NotFiniteError
from fracdnn.nn import FractionalNetwork
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
from fracdnn.training.digest import digest
from fracdnn.training.history import layer_gradient_norms
from fracdnn.training.loops import adam_epoch, new_adam
from fracdnn.training.together import Ranks
from fracdnn.version import versions

_interrupts_raised: ContextVar[bool] = ContextVar("_interrupts_raised", default=False)
# Predictions are made for this many rows at a time, so that memory stays bounded.
ROWS_AT_A_TIME = 16_384


@contextmanager
def raise_interrupts() -> Iterator[None]:
    """In here Ctrl-C ends whatever calls `fit`, such as a search; elsewhere it ends a fit, whose model is kept."""
    token = _interrupts_raised.set(True)
    try:
        yield
    finally:
        _interrupts_raised.reset(token)


class FractionalEstimator(Curves, SharedParameters):
    """A `FractionalNetwork` on standardised features, trained from a table; see the subclasses."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def trajectory(self, X: Any) -> np.ndarray:
        """The flow of the samples through the layers: Y_0 … Y_N, [n_layers + 1, n_samples, width]."""
        return self._run(X, self._fitted_network().trajectory, rows=1)

    def save(self, path: str | os.PathLike) -> Path:
        """Write the fitted model to one file, whole or not at all; `fracdnn.load` reads it. See `model_file`."""
        return write_document(path, "model", self._to_document())

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """A model that `save` wrote, ready to predict; its predictions are the same to the last bit."""
        document = read_document(path, "model")
        with checked(path, "model"):
            name = document["estimator"]
            if name == cls.__name__:
                return cls._from_document(document)
        raise FileContentError(f"{path} must hold a {cls.__name__}, got a {name!s:.40}; use fracdnn.load(path)")

    def export(self, path: str | os.PathLike) -> Path:
        """The fitted network with its scaling as ONNX (`.onnx`) or a torch.export program (`.pt2`), for other programs.

        It takes features [n, n_features] of the type `dtype`, computes in float64, and gives what `predict_proba` or a
        regressor's `predict` ([n, n_outputs]) gives.
        """
        return write_program(path, Deployed(self._fitted_network(), self.standardization_, self._answer), self._dtype())

    @abstractmethod
    def _answer(self, output: torch.Tensor) -> torch.Tensor:
        """Outputs of the network, float64, as the user wants them; must be traceable."""

    @abstractmethod
    def _answer_document(self) -> dict[str, Any]:
        """What `_answer` needs beside the network, for a model file."""

    @abstractmethod
    def _take_answer_document(self, document: dict[str, Any]) -> None:
        """Take it from a model file again; a ValueError where it does not fit the network."""

    def _to_document(self) -> dict[str, Any]:
        """All that a fitted estimator needs to predict, in plain values and tensors; see `model_file`."""
        network = self._fitted_network()
        names = getattr(self, "feature_names_in_", None)
        return {
            "estimator": type(self).__name__,
            "parameters": parameters_document(self.get_params(deep=False)),
            "network": network_document(network),
            "standardization": vars(self.standardization_),
            "features": {"n": self.n_features_in_, "names": None if names is None else [str(name) for name in names]},
            "history": self.history_.to_dict(),
            "loss": self.loss_,
            "smoothing": self._smoothing,
            "versions": versions(),
            **self._answer_document(),
        }

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Self:
        """The inverse of `_to_document`; an error of some kind where the document does not fit together."""
        estimator = cls(**parameters_of(document["parameters"]))
        estimator._validate_params()
        network = network_of(document["network"])
        estimator.network_ = network.to(estimator._device())
        estimator._take_features(document)
        estimator.history_ = History.from_dict(document["history"])
        estimator.n_iter_ = len(estimator.history_.records)
        estimator.loss_ = float(document["loss"])
        estimator._smoothing = Objective(label_smoothing=float(document["smoothing"])).label_smoothing
        estimator.order_ = order_of(network)
        estimator._take_answer_document(document)
        return estimator

    def _take_features(self, document: dict[str, Any]) -> None:
        n, names = document["features"]["n"], document["features"]["names"]
        self.standardization_ = Standardization.of_document(document["standardization"], n)
        if n != self.network_.architecture.n_features:
            raise ValueError("a scaling of other features than the network's")
        self.n_features_in_ = n
        if names is not None:
            if not isinstance(names, list) or len(names) != n or not all(isinstance(name, str) for name in names):
                raise ValueError("names of other features than the network's")
            self.feature_names_in_ = np.array(names, dtype=object)

    def _fitted_network(self) -> FractionalNetwork:
        check_is_fitted(self)
        return self.network_

    def _answers(self, X: Any) -> np.ndarray:
        network = self._fitted_network()
        return self._run(X, lambda x: self._answer(network(x).to("cpu", torch.float64)))

    @torch.no_grad()
    def _run(self, X: Any, function: Callable[[torch.Tensor], torch.Tensor], rows: int = 0) -> np.ndarray:
        """The function of standardised samples, a part of them at a time; `rows` is their axis in what it gives."""
        X = validate_data(self, as_numpy(X), reset=False, dtype=np.float64, accept_sparse="csr")
        pieces = (as_tensor(dense(X[i : i + ROWS_AT_A_TIME])) for i in range(0, X.shape[0], ROWS_AT_A_TIME))
        return torch.cat([function(self._standardised(piece)).cpu() for piece in pieces], dim=rows).numpy()

    def _standardised(self, X: torch.Tensor) -> torch.Tensor:
        return self.standardization_(X).to(self._device())

    def _validated(
        self, X: Any, y: Any, ranks: Ranks, check: Callable[[np.ndarray], None] | None = None, **options: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Samples as scikit-learn wants them. Of several processes, one may have none, and all must be set alike."""
        X, y = as_numpy(X), as_numpy(y)
        accepted: Any = {"dtype": np.float64, "accept_sparse": "csr"}
        with ranks.together("checking the samples"):
            if not ranks.is_alone and np.ndim(y) and not len(y):
                X = validate_data(self, X, ensure_min_samples=0, reset=options["reset"], **accepted)
                y = np.asarray(y)
            else:
                if not options.get("multi_output"):
                    check_one_label_each(y)
                X, y = validate_data(self, X, y, **accepted, **options)
                if check is not None:
                    check(y)
            X = dense(X)
        names = getattr(self, "feature_names_in_", None)
        ranks.check_same(
            parameters=self._parameters_text(),
            features_of_X=repr((X.shape[1], None if names is None else list(names))),
            fits_before=repr(self._goes_on()),
        )
        return X, y

    def _train(
        self, X: np.ndarray, target: np.ndarray, n_outputs: int, loss: str, weight: np.ndarray, ranks: Ranks
    ) -> None:
        task = self._task(X, target, n_outputs, loss, weight, ranks, new=not self._goes_on())
        self._train_task(task, self._training())

    def _train_task(self, task: Any, training: Training) -> None:
        """Train, show how far it is, warn where it ended badly, and keep what there is to tell."""
        self.__dict__.pop("_adam", None)  # its moments belong to other weights
        with shown_progress(self.max_iter) if self.verbose and task.ranks.is_first else nullcontext() as watch:
            task.watch = watch
            history = training.fit(task)
        if history.status == Status.NOT_FINITE:
            warnings.warn(
                "training stopped at a point that is not finite; scale the data, or use a smaller step_size or order",
                ConvergenceWarning,
                stacklevel=4,
            )
        if history.status == "interrupted":
            warnings.warn(
                f"training interrupted by the user after {len(history.records)} iterations; the model is usable",
                ConvergenceWarning,
                stacklevel=4,
            )
        if history.status == "time limit":
            warnings.warn(
                f"training reached max_time={self.max_time:g} s after {len(history.records)} of at most "
                f"{self.max_iter} iterations; the model is usable, and more time may improve it",
                ConvergenceWarning,
                stacklevel=4,
            )
        self._tell(history, task)

    def _train_on(
        self, X: np.ndarray, target: np.ndarray, n_outputs: int, loss: str, weight: np.ndarray, ranks: Ranks
    ) -> None:
        """One epoch of Adam on these samples; the first call fixes the scaling, as later samples are not known yet."""
        new = not hasattr(self, "network_")
        task = self._task(X, target, n_outputs, loss, weight, ranks, new=new)
        if new or not hasattr(self, "_adam"):
            self._adam = new_adam(self.network_, float(self.learning_rate_init))
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
        self,
        X: np.ndarray,
        target: np.ndarray,
        n_outputs: int,
        loss: str,
        weight: np.ndarray,
        ranks: Ranks,
        *,
        new: bool,
    ) -> Task:
        """The samples, merged and standardised, and the network, a new one or that of before."""
        generator = self._generator(ranks)
        # Scaled numbers depend, in their last digits, on the number of processes; those that were given do not.
        given = [as_tensor(each) for each in (X, target, weight)]
        identity = None if self.checkpoint is None else digest(ranks, given, places=None)
        X, target, weight, rows = merge_repeated(X, self._scaled(target), weight, ranks)
        x, weights = as_tensor(X), as_tensor(weight)
        self._smoothing = self._label_smoothing()
        if new:
            self.standardization_ = Standardization.of(x, weights, ranks)
            self.network_ = self._new_network(X.shape[1], n_outputs, generator)
        alpha = float(self.alpha)
        return Task(
            self.network_.to(self._dtype()),
            Objective(loss, Regularization(class_map=alpha, decay=alpha), self._smoothing),
            self._standardised(x).to(self._dtype()),
            self._target(target).to(self._device()),
            weights.to(self._device(), self._dtype()),
            generator,
            rows=rows,
            identity=identity,
            ranks=ranks,
        )

    def _parameters_text(self) -> str:
        """What several processes must be set to alike."""
        return repr((type(self).__name__, parameters_document(self.get_params(deep=False))))

    def _generator(self, ranks: Ranks) -> torch.Generator:
        """The seed is the first rank's: where `random_state` is None, others draw other ones."""
        seed = torch.tensor([check_random_state(self.random_state).randint(2**31 - 1)])
        return torch.Generator().manual_seed(int(ranks.from_rank(0, seed, "the seed")))

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
        }

    def _new_network(self, n_features: int, n_outputs: int, generator: torch.Generator) -> FractionalNetwork:
        options = self._network_options()
        return FractionalNetwork(n_features, n_outputs, activate_opening=True, generator=generator, **options).to(
            self._device()
        )

    def _label_smoothing(self) -> float:
        return float(getattr(self, "label_smoothing", 0.0))

    def _goes_on(self) -> bool:
        """Whether a fit starts from the network of the one before, which must be such as the parameters say."""
        if not self.warm_start or not hasattr(self, "network_"):
            return False
        for name, value in self._network_options().items():
            if self.network_.options[name] != value:
                raise ValueError(
                    f"{name} must be {self.network_.options[name]!r} as in the fit before with warm_start=True, "
                    f"got {value!r}; set warm_start=False to start anew"
                )
        return True

    def _training(self) -> Training:
        # Plain numbers: a search may hand in NumPy's, which JSON does not know.
        stopping = EarlyStopping(float(self.validation_fraction), int(self.n_iter_no_change))
        path = self.checkpoint
        checkpoints = None if path is None else Checkpoints(os.fspath(path), int(self.checkpoint_every), self.resume)
        options: Any = {
            "early_stopping": stopping if self.early_stopping else None,
            "checkpoints": checkpoints,
            "keep_interrupted": not _interrupts_raised.get(),
            "max_time": None if self.max_time is None else float(self.max_time),
        }
        if self.solver == "adam":
            return AdamTraining(float(self.learning_rate_init), int(self.batch_size), int(self.max_iter), **options)
        return FullBatchTraining(self.solver, int(self.max_iter), float(self.tol), **options)

    def _target(self, target: np.ndarray) -> torch.Tensor:
        """Class indices as they are, values in the network's dtype."""
        found = as_tensor(target)
        return found.to(self._dtype()) if found.is_floating_point() else found

    @abstractmethod
    def _scaled(self, target: np.ndarray) -> np.ndarray:
        """Targets as the network learns them."""

    def _weights(self, sample_weight: Any, X: np.ndarray, ranks: Ranks) -> np.ndarray:
        with ranks.together("checking sample_weight"):
            given = as_numpy(sample_weight)
            if not ranks.is_alone and (not len(X) or (given is not None and not np.any(given))):
                return np.zeros(len(X))  # other ranks may have samples, or some with a weight
            return _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)

    def _dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


def _loss_at_start(task: Task) -> float:
    try:
        return float(task.loss().detach())
    except NotFiniteError:
        return math.inf
