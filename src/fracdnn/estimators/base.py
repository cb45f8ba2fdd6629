"""What classifier and regressor share: parameters, validation, training."""

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fracdnn.nn import FractionalNetwork
from fracdnn.nn.operators import ACTIVATIONS, BIASES
from fracdnn.optim import Status
from fracdnn.training import AdamTraining, FullBatchTraining, Objective, Regularization, Standardization, Task, Training

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class FractionalEstimator(BaseEstimator):
    """A `FractionalNetwork` on standardised features, trained from a table; see the subclasses."""

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
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "device": [str, torch.device],
        "dtype": [StrOptions(set(DTYPES))],
    }

    def __init__(
        self,
        *,
        n_layers: int = 4,
        order: float = 0.5,
        width: int | None = 64,
        step_size: float = 0.5,
        activation: str = "tanh",
        bias: str = "vector",
        learn_order: bool = False,
        alpha: float = 1e-2,
        solver: str = "lbfgs",
        max_iter: int = 200,
        tolerance: float = 1e-5,
        learning_rate: float = 1e-3,
        batch_size: int = 64,
        warm_start: bool = False,
        random_state: Any = None,
        device: str | torch.device = "auto",
        dtype: str = "float64",
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
        self.warm_start = warm_start
        self.random_state = random_state
        self.device = device
        self.dtype = dtype

    def trajectory(self, X: Any) -> np.ndarray:
        """The flow of the samples through the layers: Y_0 … Y_N, [n_layers + 1, n_samples, width]."""
        return self._run(X, self._network_of().trajectory)

    def _network_of(self) -> FractionalNetwork:
        check_is_fitted(self)
        return self.network_

    @torch.no_grad()
    def _run(self, X: Any, function: Any) -> np.ndarray:
        X = validate_data(self, X, reset=False, dtype=np.float64)
        x = self.standardization_(torch.from_numpy(X)).to(self._dtype()).to(self._device())
        return function(x).cpu().numpy()

    def _train(self, X: np.ndarray, target: np.ndarray, n_outputs: int, loss: str, weight: np.ndarray) -> None:
        random = check_random_state(self.random_state)
        generator = torch.Generator().manual_seed(int(random.randint(2**31 - 1)))
        X, target, weight = merge_repeated(X, target, weight)
        x, weights = torch.from_numpy(X), torch.from_numpy(weight)
        if not (self.warm_start and hasattr(self, "network_")):
            self.standardization_ = Standardization.of(x, weights)
            self.network_ = self._new_network(X.shape[1], n_outputs, generator)
        regularization = Regularization(class_map=self.alpha, decay=self.alpha)
        task = Task(
            self.network_,
            Objective(loss, regularization),
            self.standardization_(x).to(self._dtype()).to(self._device()),
            self._target(target).to(self._device()),
            weights.to(self._dtype()).to(self._device()),
            generator,
        )
        self.history_ = self._training().fit(task)
        if self.history_.status == Status.NOT_FINITE:
            warnings.warn(
                "training stopped at a point that is not finite; scale the data, or use a smaller step_size or order",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.n_iter_ = len(self.history_.records)
        self.loss_ = self.history_.records[-1].loss if self.history_.records else float(task.loss().detach())
        self.order_ = float(self.network_.stack.order.detach()) if self.network_.stack is not None else 1.0

    def _new_network(self, n_features: int, n_outputs: int, generator: torch.Generator) -> FractionalNetwork:
        network = FractionalNetwork(
            n_features,
            n_outputs,
            n_layers=self.n_layers,
            order=self.order,
            width=self.width,
            step_size=self.step_size,
            activation=self.activation,
            bias=self.bias,
            learn_order=self.learn_order,
            generator=generator,
        )
        return network.to(self._dtype()).to(self._device())

    def _training(self) -> Training:
        if self.solver == "adam":
            return AdamTraining(self.learning_rate, self.batch_size, self.max_iter)
        return FullBatchTraining(self.solver, self.max_iter, self.tolerance)

    def _target(self, target: np.ndarray) -> torch.Tensor:
        """Class indices as they are, values in the network's dtype."""
        found = torch.from_numpy(target)
        return found.to(self._dtype()) if found.is_floating_point() else found

    def _weights(self, sample_weight: Any, X: np.ndarray) -> np.ndarray:
        return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)

    def _dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    def _device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


def merge_repeated(X: np.ndarray, target: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct samples in sorted order with their weights added up, those without weight left out.

    The objective is the same and costs less; and a weight is then worth a repetition to the last bit.
    """
    kept = weight > 0
    X, target, weight = X[kept], target[kept], weight[kept]
    both = np.column_stack([X, target.reshape(len(target), -1).astype(np.float64)])
    _, first, which = np.unique(both, axis=0, return_index=True, return_inverse=True)
    return X[first], target[first], np.bincount(which.reshape(-1), weights=weight)
