"""FractionalClassifier: a network with memory as a scikit-learn classifier."""

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted

from fracdnn.estimators.documentation import documented
from fracdnn.estimators.estimator import FractionalEstimator
from fracdnn.estimators.model_file import labels_document, labels_of
from fracdnn.parameters import ClassifierParameters
from fracdnn.training import processes


@documented(classes_=("ndarray of shape (n_classes,)", "The classes, in the order of probabilities."))
class FractionalClassifier(ClassifierMixin, ClassifierParameters, FractionalEstimator):
    """Softmax cross-entropy of a `FractionalNetwork` on scaled features; the mean of several, calibrated.

    X may be an array or a frame of pandas or Polars, with missing cells, text and dates; docs/estimators.md says what
    becomes of each column.
    """

    _loss = "cross_entropy"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "FractionalClassifier":
        self._check_parameters()
        self._train(*self._samples(X, y, sample_weight, new=True))
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "FractionalClassifier":
        """One epoch of Adam on these samples. `classes` must name all classes in the first call, whose samples also
        fix the scaling of the features, their categories and what fills in missing cells; `class_weight` must be given
        by class.
        """
        self._check_parameters()
        first = getattr(self, "classes_", None) is None
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit, got None; name all of them")
        given = self.classes_ if classes is None else unique_labels(classes)
        if not first and not np.array_equal(given, self.classes_):
            raise ValueError(
                f"classes must be those of the first call, {self.classes_.tolist()}, got {given.tolist()}; leave it out"
            )
        self.classes_ = given
        if isinstance(self.class_weight, str):
            raise ValueError("class_weight must be given by class for partial_fit, got 'balanced'; pass a dict")
        self._train_on(*self._samples(X, y, sample_weight, new=first, are_known=True))
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
        check_is_fitted(self)
        if len(self.members_) > 1:
            logits = self.predict_log_proba(X)
        else:
            logits = self._run(X, self.network_).astype(np.float64) / (self.temperature_ or 1.0)
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        most_probable = self.predict_proba(X).argmax(axis=1)
        return self.classes_[most_probable]

    def predict_sets(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Which classes of `classes_` are plausible, [n_samples, n_classes]: the true one is for such a share of new
        samples, and the most probable one always. `calibration` says what that promises.
        """
        calibration = self._held_out_scores(coverage, "coverage")
        return self._run(
            X, lambda x: calibration.plausible(torch.stack([*map(self._answer, self._outputs(x))]), coverage)
        )

    def _samples(
        self, X: Any, y: Any, sample_weight: Any, *, new: bool, are_known: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs, labels and weights; the classes are those of these samples unless they `are_known`."""
        check = self._check_known if are_known else check_classification_targets
        X, y, weight = self._checked(X, y, sample_weight, check, new=new)
        if not are_known:
            classes = classes_of_all(y)
            self.classes_ = classes
        labels = np.searchsorted(self.classes_, y) if len(y) else np.zeros(0, dtype=np.int64)
        if self.class_weight is not None:
            counts = sum(processes.from_each(np.bincount(labels, minlength=len(self.classes_))))
            weight = weight * class_weights(self.class_weight, self.classes_, counts)[labels]
        return X, labels, weight

    def _check_known(self, y: np.ndarray) -> None:
        unknown = np.setdiff1d(y, self.classes_)
        if len(unknown):
            raise ValueError(f"y must hold classes of the first call, got {unknown.tolist()}; pass them in classes")

    def _scores(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return 1.0 - self._answer(output).gather(1, target[:, None])

    def _answer(self, output: torch.Tensor) -> torch.Tensor:
        if self.temperature_ is not None:
            return torch.softmax(output / self.temperature_, dim=1)
        # A network trained on smoothed labels tells smoothed probabilities, (1 − ε) p + ε / n_classes. Where it told
        # less than the smoothing alone, a class is still not impossible.
        smoothing = self._smoothing
        smoothed = torch.softmax(output, dim=1)
        probabilities = ((smoothed - smoothing / len(self.classes_)) / (1.0 - smoothing)).clamp(min=1e-3 * smoothing)
        return probabilities / probabilities.sum(1, keepdim=True)

    def _to_document(self) -> dict[str, Any]:
        return {**super()._to_document(), "classes": labels_document(self.classes_)}

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> Self:
        estimator = super()._from_document(document)
        estimator.classes_ = labels_of(document["classes"])
        if len(estimator.classes_) != estimator.network_.architecture.n_outputs:
            raise ValueError("other classes than the network's")
        return estimator


def classes_of_all(y: np.ndarray) -> np.ndarray:
    """The classes in the labels of all processes, in order."""
    return np.unique(np.concatenate(processes.from_each(np.unique(y))))


def class_weights(given: dict | str | None, classes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """A weight for each class, 1 where none is given; "balanced" divides by `counts`, how many samples a class has."""
    if given == "balanced":
        return counts.sum() / (len(classes) * counts)
    for name, weight in given.items() if isinstance(given, dict) else ():
        if not (np.isfinite(weight) and weight >= 0):
            raise ValueError(
                f"class_weight must hold finite numbers not below 0, got {weight} for class {name!r}; "
                f"0 leaves a class out"
            )
    return compute_class_weight(given, classes=classes, y=classes)
