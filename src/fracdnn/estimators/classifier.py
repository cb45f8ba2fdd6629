"""FractionalClassifier: a network with memory as a scikit-learn classifier."""

from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils import compute_class_weight
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from fracdnn.estimators.base import FractionalEstimator


class FractionalClassifier(ClassifierMixin, FractionalEstimator):
    """Softmax cross-entropy of a `FractionalNetwork` on standardised features.

    `alpha` is the decay of all matrices; `class_weight` as elsewhere in scikit-learn.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **FractionalEstimator._parameter_constraints,
        "class_weight": [None, dict, StrOptions({"balanced"})],
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
        class_weight: dict | str | None = None,
    ) -> None:
        super().__init__(
            n_layers=n_layers,
            order=order,
            width=width,
            step_size=step_size,
            activation=activation,
            bias=bias,
            learn_order=learn_order,
            alpha=alpha,
            solver=solver,
            max_iter=max_iter,
            tolerance=tolerance,
            learning_rate=learning_rate,
            batch_size=batch_size,
            warm_start=warm_start,
            random_state=random_state,
            device=device,
            dtype=dtype,
        )
        self.class_weight = class_weight

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "FractionalClassifier":
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        weight = self._weights(sample_weight, X)
        if self.class_weight is not None:
            by_class = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
            weight = weight * by_class[labels]
        self._train(X, labels, len(self.classes_), "cross_entropy", weight)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class of `classes_`, [n_samples, n_classes]."""
        network = self._network_of()
        return self._run(X, lambda x: torch.softmax(network(x).to(torch.float64), dim=1))

    def decision_function(self, X: Any) -> np.ndarray:
        """The logits; for two classes their difference, positive for the second."""
        logits = self._run(X, self._network_of()).astype(np.float64)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]
