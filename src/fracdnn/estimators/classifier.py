"""FractionalClassifier: a network with memory as a scikit-learn classifier."""

from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, _fit_context
from sklearn.utils import compute_class_weight
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import _check_partial_fit_first_call, check_classification_targets

from fracdnn.estimators.base import FractionalEstimator
from fracdnn.estimators.documentation import documented
from fracdnn.estimators.model_file import labels_document, labels_of
from fracdnn.estimators.networks import n_outputs_of
from fracdnn.estimators.parameters import parameter, with_parameters
from fracdnn.estimators.samples import classes_of_all
from fracdnn.training.together import Ranks, ranks_here


@documented(classes_=("ndarray of shape (n_classes,)", "The classes, in the order of probabilities."))
@with_parameters
class FractionalClassifier(ClassifierMixin, FractionalEstimator):
    """Softmax cross-entropy of a `FractionalNetwork` on scaled features; the mean of several, calibrated.

    X may be an array or a frame of pandas or Polars, with missing cells, text and dates; docs/estimators.md says what
    becomes of each column.
    """

    label_smoothing: float = parameter(
        default=0.05,
        allowed=[Interval(Real, 0, 1, closed="left")],
        meaning="Share of a label that training gives to all classes alike; `predict_proba` undoes it.",
    )
    class_weight: dict | str | None = parameter(
        default=None,
        allowed=[None, dict, StrOptions({"balanced"})],
        meaning='Weights by class (1 where one is missing); "balanced" divides by how frequent a class is.',
    )

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "FractionalClassifier":
        ranks = ranks_here()
        new = not self._goes_on()
        table, y = self._validated(X, y, ranks, check_classification_targets, reset=new)
        classes = classes_of_all(y, ranks)
        if not new and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"y must hold the classes of the fit before, {self.classes_.tolist()}, with warm_start=True, "
                f"got {classes.tolist()}; set warm_start=False to start anew"
            )
        self.classes_: np.ndarray = classes
        labels, weight = self._labels(y), self._weights(sample_weight, table, ranks)
        X = self._encoded(table, weight, ranks, new=new)
        if self.class_weight is not None:
            weight = weight * self._weights_of_classes(labels, ranks)[labels]
        self._train(X, labels, len(self.classes_), "cross_entropy", weight, ranks)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "FractionalClassifier":
        """One epoch of Adam on these samples. `classes` must name all classes in the first call, whose samples also
        fix the scaling of the features, their categories and what fills in missing cells; `class_weight` must be given
        by class.
        """
        ranks, first = ranks_here(), _check_partial_fit_first_call(self, classes)
        table, y = self._validated(X, y, ranks, self._check_known, reset=first)
        labels, weight = self._labels(y), self._weights(sample_weight, table, ranks)
        if isinstance(self.class_weight, str):
            raise ValueError("class_weight must be given by class for partial_fit, got 'balanced'; pass a dict")
        X = self._encoded(table, weight, ranks, new=first)
        if self.class_weight is not None:
            given = self._checked_class_weight()
            weight = weight * np.array([given.get(name, 1.0) for name in self.classes_])[labels]
        self._train_on(X, labels, len(self.classes_), "cross_entropy", weight, ranks)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class of `classes_`, [n_samples, n_classes]."""
        return self._answers(X)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithm of `predict_proba`; −∞ where a probability is 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """The logits; for two classes their difference, positive for the second. Of several members, the logarithms
        of the probabilities.
        """
        network = self._fitted_network()
        if len(self.members_) > 1:
            logits = self.predict_log_proba(X)
        else:
            logits = self._run(X, network).astype(np.float64) / (self.temperature_ or 1.0)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]

    def _checked_class_weight(self) -> Any:
        if isinstance(self.class_weight, dict):
            for name, weight in self.class_weight.items():
                if not (np.isfinite(weight) and weight >= 0):
                    raise ValueError(
                        f"class_weight must hold finite numbers not below 0, got {weight} for class {name!r}; "
                        f"0 leaves a class out"
                    )
        return self.class_weight

    def _weights_of_classes(self, labels: np.ndarray, ranks: Ranks) -> np.ndarray:
        """A weight for each class, of the samples of all ranks."""
        given = self._checked_class_weight()
        if isinstance(given, dict):
            return compute_class_weight(given, classes=self.classes_, y=self.classes_)
        counts = ranks.sum(torch.from_numpy(np.bincount(labels, minlength=len(self.classes_))), "the class counts")
        return int(counts.sum()) / (len(self.classes_) * counts.numpy())

    def _check_known(self, y: np.ndarray) -> None:
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y must hold classes of the first call, got {unknown.tolist()}; pass them in classes")

    def _labels(self, y: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.classes_, y) if len(y) else np.zeros(0, dtype=np.int64)

    def _scaled(self, target: np.ndarray) -> np.ndarray:
        return target

    def _answer(self, output: torch.Tensor) -> torch.Tensor:
        if self.temperature_ is not None:
            return torch.softmax(output / self.temperature_, dim=1)
        # A network trained on smoothed labels tells smoothed probabilities, (1 − ε) p + ε / n_classes. Where it told
        # less than the smoothing alone, a class is still not impossible.
        smoothing = self._smoothing
        told = torch.softmax(output, dim=1)
        probabilities = ((told - smoothing / len(self.classes_)) / (1.0 - smoothing)).clamp(min=1e-3 * smoothing)
        return probabilities / probabilities.sum(1, keepdim=True)

    def _answer_document(self) -> dict[str, Any]:
        return {"classes": labels_document(self.classes_)}

    def _take_answer_document(self, document: dict[str, Any]) -> None:
        self.classes_ = labels_of(document["classes"])
        if len(self.classes_) != n_outputs_of(self.network_):
            raise ValueError("other classes than the network's")
