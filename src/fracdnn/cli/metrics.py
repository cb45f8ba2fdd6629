"""How good predictions are, in numbers that JSON can hold, and whether the training has seen the rows."""

from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from fracdnn.estimators.reliability import Reliability
from fracdnn.estimators.table_model import TableModel
from fracdnn.tables.ids import row_hashes

# Hashes of rows learned from that a model's file holds: the smallest ones, which are as good as drawn at random.
_MOST_HASHES = 4096


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Accuracy, the mean of it over classes ("balanced"), the log-loss where all true classes are known ones, the
    expected calibration error ("ECE"); from `counts` [true, predicted] and the `loss` of all rows together.
    """

    counts: np.ndarray
    loss: float | None
    reliability: Reliability

    @classmethod
    def of(cls, estimator: Any, X: Any, y: np.ndarray) -> "ClassScores":
        from sklearn.metrics import log_loss

        probabilities, classes = estimator.predict_proba(X), estimator.classes_
        predicted, is_known = classes[probabilities.argmax(1)], np.isin(y, classes)
        loss = log_loss(y, probabilities, labels=classes, normalize=False) if is_known.all() else None
        places = (np.searchsorted(classes, labels[is_known]) for labels in (y, predicted))
        counts = np.zeros((len(classes),) * 2, dtype=np.int64)
        np.add.at(counts, tuple(places), 1)
        return cls(counts, loss, Reliability.of(probabilities, predicted == y))

    def merged(self, other: "ClassScores") -> "ClassScores":
        """Return the scores of two parts of a table together."""
        loss = None if self.loss is None or other.loss is None else self.loss + other.loss
        return ClassScores(self.counts + other.counts, loss, self.reliability.merged(other.reliability))

    @property
    def rows(self) -> int:
        return int(self.reliability.counts.sum())

    def results(self) -> dict[str, float | None]:
        columns = by_class(self.counts)
        known = columns["rows"] > 0
        return {
            "accuracy": int(self.counts.trace()) / self.rows,
            "balanced_accuracy": float(columns["recall"][known].mean()) if known.any() else None,
            **({} if self.loss is None else {"log_loss": float(self.loss) / self.rows}),
            "ECE": self.reliability.error,
        }

    def baseline(self, estimator: Any) -> dict[str, Any]:
        """The scores of the most frequent class and of the class frequencies: no constant answer is better."""
        counts = self.counts.sum(1)
        shares = counts[counts > 0] / max(counts.sum(), 1)
        most, loss = int(counts.argmax()), float(-(shares * np.log(shares)).sum())
        return {"class": estimator.classes_.tolist()[most], "accuracy": int(counts[most]) / self.rows, "log_loss": loss}


@dataclass(frozen=True, eq=False)
class ValueScores:
    """R², None where all true values are the same, root mean square and mean absolute error; from the true `values` and
    the `errors` of their predictions.
    """

    values: np.ndarray
    errors: np.ndarray

    @classmethod
    def of(cls, estimator: Any, X: Any, y: np.ndarray) -> "ValueScores":
        return cls(y, estimator.predict(X) - y)

    def merged(self, other: "ValueScores") -> "ValueScores":
        """Return the scores of two parts of a table together."""
        values, errors = zip((self.values, self.errors), (other.values, other.errors), strict=True)
        return ValueScores(np.concatenate(values), np.concatenate(errors))

    @property
    def rows(self) -> int:
        return len(self.values)

    def results(self) -> dict[str, float | None]:
        rmse, size = _root_mean_square(self.errors), float(np.abs(self.errors).mean())
        ratio = rmse / self._deviation if self._deviation else 0.0
        return {"R2": 1.0 - ratio * ratio if self._deviation else None, "RMSE": rmse, "MAE": size}

    def baseline(self, estimator: Any) -> dict[str, Any]:
        """What always the mean reaches: no constant is better."""
        return {"mean": float(self.values.mean()), "RMSE": self._deviation}

    @property
    def _deviation(self) -> float:
        """Of the true values; 0 where nothing but rounding makes them differ."""
        mean = float(self.values.mean())
        deviation = _root_mean_square(self.values - mean)
        return deviation if deviation > 1e-14 * abs(mean) else 0.0


Scores = ClassScores | ValueScores


def _root_mean_square(values: np.ndarray) -> float:
    """Return the root of the mean square of values whose squares may be too large for a number."""
    largest = np.abs(values).max(initial=np.finfo(np.float64).tiny)
    return float(largest * np.sqrt(((values / largest) ** 2).mean()))


def scores_of(model: TableModel, parts: Iterable[tuple[Any, np.ndarray]] = ()) -> Any:
    """Of all rows of these parts, none or more."""
    found: Any = ValueScores(np.empty(0), np.empty(0))
    if model.is_classifier:
        counts = np.zeros((len(model.estimator.classes_),) * 2, dtype=np.int64)
        found = ClassScores(counts, 0.0, Reliability.of(np.empty((0, 1)), np.empty(0)))
    return reduce(lambda mine, other: mine.merged(other), (found.of(model.estimator, *part) for part in parts), found)


def by_class(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Precision, recall and F1 of each class; 0 where there is nothing to divide by."""
    hits, true, predicted = counts.diagonal(), counts.sum(1), counts.sum(0)
    precision, recall = (np.divide(hits, n, out=np.zeros(len(hits)), where=n > 0) for n in (predicted, true))
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros(len(hits)), where=total > 0)
    return {"precision": precision, "recall": recall, "F1": f1, "rows": true}


def hashes_text(inputs: np.ndarray) -> str:
    """Hashes of the rows learned from, for a model's file."""
    return b64encode(np.unique(row_hashes(inputs))[:_MOST_HASHES].astype("<u8").tobytes()).decode()


def rows_seen(text: str, inputs: np.ndarray) -> np.ndarray:
    """How many of these rows were learned from, and of how many that is known."""
    known, hashes = np.frombuffer(b64decode(text), dtype="<u8"), row_hashes(inputs)
    looked = hashes <= known[-1] if len(known) == _MOST_HASHES else np.ones(len(hashes), dtype=bool)
    return np.array([np.isin(hashes[looked], known).sum(), looked.sum()])
