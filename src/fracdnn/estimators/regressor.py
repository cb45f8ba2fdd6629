"""FractionalRegressor: a network with memory as a scikit-learn regressor."""

import warnings
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin

from fracdnn.estimators.documentation import documented
from fracdnn.estimators.estimator import FractionalEstimator
from fracdnn.estimators.fitting import as_tensor, merge_repeated
from fracdnn.estimators.shaping import quantiles
from fracdnn.parameters import RegressorParameters
from fracdnn.tables.targets import check_no_text
from fracdnn.training import Standardization, processes

# The interquartile range of a normal distribution, in standard deviations.
_QUARTILES = 1.349
# The deviation of a constant target, in its size: far above rounding, far below what anybody looks at.
_CONSTANT = 1e-9


@documented(
    target_scale_=("Standardization", "Mean and scale of each output."),
    target_limits_=("ndarray of shape (2, n_outputs)", "What targets were taken to lie between."),
)
class FractionalRegressor(MultiOutputMixin, RegressorMixin, RegressorParameters, FractionalEstimator):
    """Squared error of a `FractionalNetwork` on scaled features and targets, one or several outputs.

    It predicts the mean, as the squared error does, but of targets within `outlier_limit`. X may be an array or a frame
    of pandas or Polars, with missing cells, text and dates; docs/estimators.md says what becomes of each column.
    """

    _loss = "squared_error"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "FractionalRegressor":
        self._check_parameters()
        self._train(*self._samples(X, y, sample_weight, new=True))
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "FractionalRegressor":
        """One epoch of Adam on these samples; those of the first call fix the scaling of features and targets, the
        categories and what fills in missing cells.
        """
        self._check_parameters()
        self._train_on(*self._samples(X, y, sample_weight, new=not hasattr(self, "target_scale_")))
        return self

    def predict(self, X: Any, *, interval: float | None = None) -> Any:
        """The predicted values, [n_samples] or [n_samples, n_outputs] as they were given.

        With `interval=0.9`, these and the ends of intervals that hold nine in ten new values, [n_samples, 2] or
        [n_samples, n_outputs, 2]; `calibration` says by which theorem, and what it promises.
        """
        values = self._answers(X)
        values = values[:, 0] if self._flat else values
        if interval is None:
            return values
        calibration = self._held_out_scores(interval, "interval")
        if shortage := calibration.shortage(interval):
            warnings.warn(shortage, stacklevel=2)
        with warnings.catch_warnings(action="ignore"):  # those of X are told
            return values, self.predict_quantiles(X, [0.5 - interval / 2, 0.5 + interval / 2])

    def predict_quantiles(self, X: Any, quantiles: Any) -> np.ndarray:
        """Values below which such shares of new ones lie, [n_samples, n_quantiles], of several outputs [n_samples,
        n_outputs, n_quantiles]; infinite where too few samples were held out to tell.
        """
        shares = np.atleast_1d(np.asarray(quantiles))
        for share in shares.tolist() or [None]:
            calibration = self._held_out_scores(share, "quantiles")
        scale = self.target_scale_

        def answer(x: torch.Tensor) -> torch.Tensor:
            found = calibration.quantiles(x.cpu(), torch.stack(self._outputs(x)), shares.tolist())
            return found * scale.deviation[:, None] + scale.mean[:, None]

        found = self._run(X, answer)
        return found[:, 0] if self._flat else found

    def _samples(self, X: Any, y: Any, sample_weight: Any, *, new: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if not isinstance(y, torch.Tensor):  # a tensor holds no text, and one on a GPU is no array
            check_no_text(y)
        X, y, weight = self._checked(X, y, sample_weight, new=new, multi_output=True, y_numeric=True)
        values = np.asarray(y, dtype=np.float64)
        values = values[:, None] if values.ndim == 1 else values
        if not new and values.shape[1] != self.network_.architecture.n_outputs:
            raise ValueError(
                f"y must have {self.network_.architecture.n_outputs} outputs as before, got {values.shape[1]}; "
                f"use a new estimator for other outputs"
            )
        self._flat = y.ndim == 1
        if new:
            self._set_target_scale(X, values, weight)
            # Rank 0's rows scale the targets of all ranks.
            self.target_scale_ = processes.from_first(self.target_scale_)
            self.target_limits_: np.ndarray = processes.from_first(self.target_limits_)
        return X, values, weight

    def _set_target_scale(self, X: np.ndarray, values: np.ndarray, weight: np.ndarray) -> None:
        _, merged, weights = merge_repeated(X, values, weight)
        quartiles = [quantiles(column, weights, np.array([0.25, 0.5, 0.75])) for column in merged.T]
        low, middle, high = np.stack(quartiles, axis=1)
        with np.errstate(over="ignore"):
            reach = np.inf if self.outlier_limit is None else float(self.outlier_limit) * (high - low) / _QUARTILES
            reach = np.where(np.isfinite(reach) & (reach > 0), reach, np.inf)  # all are taken where half of them agree
            self.target_limits_ = np.stack([middle - reach, middle + reach])
        scale = Standardization.of(as_tensor(merged.clip(*self.target_limits_)), as_tensor(weights))
        # What never differs is told as it was, whatever the network says.
        constant = torch.from_numpy((merged == merged[:1]).all(0))
        least = _CONSTANT * torch.where(scale.mean == 0, 1.0, scale.mean.abs())
        self.target_scale_ = Standardization(scale.mean, torch.where(constant, least, scale.deviation))

    def _scaled(self, target: np.ndarray) -> np.ndarray:
        return self.target_scale_(as_tensor(target.clip(*self.target_limits_))).numpy()

    def _scores(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return target.to(torch.float64).reshape(output.shape) - output

    def _answer(self, output: torch.Tensor) -> torch.Tensor:
        return self.target_scale_.undo(output)

    def _to_document(self) -> dict[str, Any]:
        target = {"scale": vars(self.target_scale_), "limits": torch.from_numpy(self.target_limits_.copy())}
        return {**super()._to_document(), "target": {"flat": self._flat, **target}}

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Self:
        estimator, target = super()._from_document(document), document["target"]
        n_outputs, limits = estimator.network_.architecture.n_outputs, target["limits"].numpy().copy()
        estimator._flat, estimator.target_limits_ = bool(target["flat"]), limits
        estimator.target_scale_ = Standardization.of_document(target["scale"], n_outputs)
        if limits.shape != (2, n_outputs) or not (limits[0] < limits[1]).all() or (estimator._flat and n_outputs > 1):
            raise ValueError("other targets than the network's")
        return estimator
