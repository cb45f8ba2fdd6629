"""Subject of a report: a fitted estimator, held-out samples, and its predictions for them."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.utils.validation import check_is_fitted

from fracdnn.estimators import FractionalClassifier, FractionalRegressor
from fracdnn.estimators.estimator import as_numpy, checked_table, inputs_of
from fracdnn.estimators.reliability import Reliability
from fracdnn.exceptions import InvalidArgumentError, InvalidTypeError
from fracdnn.tables.column import Numbers
from fracdnn.tables.encoder import Encoder

# Scatter plots show at most this many samples, always the same ones.
SHOWN = 1000
_SEED = 0


@dataclass(frozen=True, eq=False)
class Subject:
    """X [n, n_features] and y: labels [n] for a classifier, values [n, n_outputs] for a regressor.

    Features are the network's inputs: missing cells are filled in, categories are inputs of their own. `estimator`
    takes these, and has no feature names, so that it takes the arrays which a report makes; they are in `features`.
    `columns` says which features were made of a column of the user's table; `ids` names the rows, None where nothing
    but their places does.
    """

    estimator: Any
    X: np.ndarray
    y: np.ndarray
    features: list[str]
    columns: dict[str, list[int]]
    ids: list[str] | None = None

    @property
    def n(self) -> int:
        return len(self.X)

    def row_name(self, i: int) -> str:
        return self.ids[i] if self.ids else str(i + 1)

    @property
    def classifies(self) -> bool:
        return isinstance(self.estimator, FractionalClassifier)

    @property
    def shape(self) -> Any:
        return self.estimator.network_.architecture

    @property
    def first_member(self) -> str:
        n_members = len(self.estimator.members_)
        return f" This is the first of {n_members} members." if n_members > 1 else ""

    @cached_property
    def predicted(self) -> np.ndarray:
        """Labels [n], or values [n, n_outputs]."""
        return self.estimator.classes_[self.probabilities.argmax(1)] if self.classifies else self.outputs(self.X)

    @cached_property
    def probabilities(self) -> np.ndarray:
        return self.estimator.predict_proba(self.X)

    @cached_property
    def residuals(self) -> np.ndarray:
        """Observed minus predicted values, [n, n_outputs]."""
        return self.y - self.predicted

    @property
    def varies(self) -> bool:
        """Whether the samples have several classes, or several values of each output."""
        return bool(np.ptp(self.codes if self.classifies else self.y, axis=0).all())

    @property
    def balanced(self) -> bool:
        """Return True if the training weighted classes, so that it aimed at balanced accuracy."""
        return self.classifies and self.estimator.class_weight is not None

    @property
    def loss_word(self) -> str:
        return "increase of the log-loss" if self.classifies else "decrease of R²"

    def output_name(self, k: int) -> str:
        return str(self.labels[k]) if self.classifies else f"output {k + 1}"

    def shown_note(self, shown: np.ndarray) -> str:
        return "" if len(shown) == self.n else f" These are {len(shown):,} of {self.n:,} rows, drawn at random."

    @cached_property
    def confusions(self) -> np.ndarray:
        """Counts of true classes (rows) and predicted ones, in the order of `labels`."""
        counts = np.zeros((len(self.labels),) * 2, dtype=int)
        np.add.at(counts, (self.codes, self.places(self.predicted)), 1)
        return counts

    @cached_property
    def labels(self) -> list[Any]:
        """The classes of the training, then those that only the held-out samples have."""
        known = self.estimator.classes_.tolist()
        return known + [label for label in np.unique(self.y).tolist() if label not in known]

    @cached_property
    def codes(self) -> np.ndarray:
        """Each sample's place in `labels`."""
        return self.places(self.y)

    def places(self, labels: np.ndarray) -> np.ndarray:
        place = {label: k for k, label in enumerate(self.labels)}
        return np.array([place[label] for label in labels.tolist()], dtype=int)

    def outputs(self, X: np.ndarray) -> np.ndarray:
        """Return probabilities of the classes of the training, or values of the outputs, [n, n_outputs]."""
        return self.estimator.predict_proba(X) if self.classifies else self.estimator.predict(X).reshape(len(X), -1)

    def shown(self, limit: int = SHOWN) -> np.ndarray:
        """Return the samples that a scatter plot shows: a fixed random subset in their order, or all."""
        if self.n <= limit:
            return np.arange(self.n)
        return np.sort(np.random.default_rng(_SEED).choice(self.n, limit, replace=False))

    @cached_property
    def reliability(self) -> Reliability:
        return Reliability.of(self.probabilities, self.predicted == self.y)


def subject_of(estimator: Any, X: Any, y: Any, ids: Sequence[object] | None = None) -> Subject:
    if not isinstance(estimator, FractionalClassifier | FractionalRegressor):
        raise InvalidTypeError(
            f"estimator must be a FractionalClassifier or a FractionalRegressor, got {type(estimator).__name__}; "
            f"of a pipeline, pass the last step and the features that reach it"
        )
    check_is_fitted(estimator)
    if ids is None and hasattr(getattr(X, "index", None), "tolist"):  # of pandas
        ids = X.index.tolist()
    nameless, encoding = copy.copy(estimator), estimator.encoding_
    names = nameless.__dict__.pop("feature_names_in_", None)
    # A table's columns must be those of the training; an array has no names to compare.
    table, _ = checked_table(estimator if hasattr(X, "columns") else nameless, as_numpy(X), reset=False)
    X = inputs_of(encoding, table)
    nameless.n_features_in_ = X.shape[1]
    means = estimator.standardization_.mean.tolist()
    nameless.encoding_ = Encoder(tuple(Numbers(f"x{k}", mean) for k, mean in enumerate(means)))
    features, columns = encoding.feature_names, encoding.places
    if encoding.is_plain:
        features = [f"feature {k + 1}" for k in range(X.shape[1])] if names is None else list(map(str, names))
        columns = {name: [k] for k, name in enumerate(features)}
    if ids is not None and len(ids) != len(X):
        raise InvalidArgumentError(f"ids must name each of the {len(X)} rows of X, got {len(ids)}; pass one per row")
    y, classifies = np.asarray(as_numpy(y)), isinstance(estimator, FractionalClassifier)
    if y.shape[:1] != (len(X),) or (classifies and y.size != len(X)):
        raise InvalidArgumentError(
            f"y must hold a {'label' if classifies else 'value'} for each of the {len(X)} samples of X, "
            f"got shape {y.shape}; pass the y that belongs to X"
        )
    n = estimator.network_.architecture.n_outputs
    if not classifies and y.size != len(X) * n:
        raise InvalidArgumentError(f"y must have {n} columns as in fit, got shape {y.shape}; pass all outputs")
    y = y.reshape(-1) if classifies else y.astype(np.float64).reshape(-1, n)
    return Subject(nameless, X, y, features, columns, None if ids is None else list(map(str, ids)))


def r2(y: np.ndarray, predicted: np.ndarray, **options: Any) -> float:
    """Return R² of values whose squares may be too large for a number."""
    scale = np.abs(y).max() or 1.0
    return float(r2_score(y / scale, predicted / scale, **options))


def areas_under_roc(subject: Subject) -> dict[int, float]:
    """Return the area of each class that training and held-out samples have; of two classes, of the rarer alone."""
    known = range(len(subject.estimator.classes_))
    present = [k for k in known if 0 < (subject.codes == k).sum() < subject.n]
    if len(known) == len(subject.labels) == 2 and present:
        first, second = np.bincount(subject.codes, minlength=2)
        present = [0 if first < second else 1]
    return {k: float(roc_auc_score(subject.codes == k, subject.probabilities[:, k])) for k in present}
