"""FractionalClassifier: a network with memory as a scikit-learn classifier."""

import os
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils import compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets
from sklearn.utils.validation import validate_data

from fracdnn.estimators.base import FractionalEstimator, as_numpy


class FractionalClassifier(ClassifierMixin, FractionalEstimator):
    """Softmax cross-entropy of a `FractionalNetwork` on standardised features.

    `label_smoothing` is the share of each label that is given to all classes alike in training; `predict_proba` undoes
    it. `class_weight` as elsewhere in scikit-learn. Other parameters as in `FractionalEstimator`.
    """

    classes_: np.ndarray

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **FractionalEstimator._parameter_constraints,
        "label_smoothing": [Interval(Real, 0, 1, closed="left")],
        "class_weight": [None, dict, StrOptions({"balanced"})],
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
        alpha: float = 1e-3,
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
        label_smoothing: float = 0.1,
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
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            verbose=verbose,
            warm_start=warm_start,
            random_state=random_state,
            device=device,
            dtype=dtype,
        )
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "FractionalClassifier":
        X, y = validate_data(self, as_numpy(X), as_numpy(y), dtype=np.float64, reset=not self._goes_on())
        check_classification_targets(y)
        classes = np.unique(y)
        if self._goes_on() and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"y must hold the classes of the fit before, {self.classes_.tolist()}, with warm_start=True, "
                f"got {classes.tolist()}; set warm_start=False to start anew"
            )
        self.classes_ = classes
        labels, weight = self._labels(y), self._weights(sample_weight, X)
        if self.class_weight is not None:
            by_class = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
            weight = weight * by_class[labels]
        self._train(X, labels, len(self.classes_), "cross_entropy", weight)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "FractionalClassifier":
        """One epoch of Adam on these samples. `classes` must name all classes in the first call, whose samples also
        fix the scaling of the features; `class_weight` must be given by class.
        """
        first = _check_partial_fit_first_call(self, classes)
        X, y = validate_data(self, as_numpy(X), as_numpy(y), dtype=np.float64, reset=first)
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y must hold classes of the first call, got {unknown.tolist()}; pass them in classes")
        labels, weight = self._labels(y), self._weights(sample_weight, X)
        if isinstance(self.class_weight, str):
            raise ValueError("class_weight must be given by class for partial_fit, got 'balanced'; pass a dict")
        if self.class_weight is not None:
            weight = weight * np.array([self.class_weight.get(name, 1.0) for name in self.classes_])[labels]
        self._train_on(X, labels, len(self.classes_), "cross_entropy", weight)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class of `classes_`, [n_samples, n_classes]."""
        return self._answers(X)

    def decision_function(self, X: Any) -> np.ndarray:
        """The logits; for two classes their difference, positive for the second."""
        logits = self._run(X, self._fitted_network()).astype(np.float64)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]

    def _labels(self, y: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.classes_, y)

    def _answer(self, output: torch.Tensor) -> torch.Tensor:
        # A network trained on smoothed labels tells smoothed probabilities, (1 − ε) p + ε / n_classes. Where it told
        # less than the smoothing alone, a class is still not impossible.
        smoothing = self._smoothing
        told = torch.softmax(output, dim=1)
        probabilities = ((told - smoothing / len(self.classes_)) / (1.0 - smoothing)).clamp(min=1e-3 * smoothing)
        return probabilities / probabilities.sum(1, keepdim=True)
