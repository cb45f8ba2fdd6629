"""FractionalRegressor: a network with memory as a scikit-learn regressor."""

from typing import Any

import numpy as np
import torch
from sklearn.base import MultiOutputMixin, RegressorMixin, _fit_context
from sklearn.utils.validation import validate_data

from fracdnn.estimators.base import FractionalEstimator, merge_repeated
from fracdnn.training import Standardization


class FractionalRegressor(MultiOutputMixin, RegressorMixin, FractionalEstimator):
    """Squared error of a `FractionalNetwork` on standardised features and targets, one or several outputs."""

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "FractionalRegressor":
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        weight = self._weights(sample_weight, X)
        self._flat = y.ndim == 1
        values = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        if not (self.warm_start and hasattr(self, "target_scale_")):
            merged = merge_repeated(X, values, weight)
            self.target_scale_ = Standardization.of(torch.from_numpy(merged[1]), torch.from_numpy(merged[2]))
        target = self.target_scale_(torch.from_numpy(values)).numpy()
        self._train(X, target, values.shape[1], "squared_error", weight)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The predicted values, [n_samples] or [n_samples, n_outputs] as they were given."""
        network = self._network_of()
        values = self._run(X, lambda x: self.target_scale_.undo(network(x).to(torch.float64).cpu()))
        return values[:, 0] if self._flat else values
