"""How good predictions are, in numbers that JSON can hold and tables for the terminal."""

import math
from functools import reduce
from typing import Any

import numpy as np
import torch

from fracdnn.columns.summaries import Moments
from fracdnn.estimators.reliability import Reliability
from fracdnn.tabular.model import TableModel
from fracdnn.training import together

_WHAT = "the scores"


def new_scores(model: TableModel) -> "Scores":
    """What is told of rows that come in parts."""
    return ClassScores(model.estimator) if model.is_classifier else ValueScores(model.estimator)


class ClassScores:
    """Accuracy, the mean of it over classes ("balanced"), the log-loss where all true classes are known ones, the
    expected calibration error ("ECE"), and `counts` [true, predicted].
    """

    def __init__(self, estimator: Any) -> None:
        self._estimator, self._classes = estimator, estimator.classes_
        self.rows, self.counts = 0, np.zeros((len(self._classes),) * 2, dtype=np.int64)
        self._summed: float | None = 0.0
        self._reliability = Reliability.of(np.empty((0, 1)), np.empty(0))

    def add(self, X: Any, y: np.ndarray) -> "ClassScores":
        from sklearn.metrics import confusion_matrix, log_loss

        probabilities = self._estimator.predict_proba(X)
        is_known = np.isin(y, self._classes)
        if self._summed is not None and is_known.all():
            self._summed += float(log_loss(y, probabilities, labels=self._classes, normalize=False))
        else:
            self._summed = None
        predicted = self._classes[probabilities.argmax(1)]
        self.rows += len(y)
        self._reliability = self._reliability.merged(Reliability.of(probabilities, predicted == y))
        if is_known.any():
            self.counts += confusion_matrix(y[is_known], predicted[is_known], labels=self._classes)
        return self

    def add_up(self) -> None:
        """Make these the scores of the rows of all ranks."""
        summed = math.nan if self._summed is None else self._summed
        sums = together.total(torch.tensor([self.rows, summed], dtype=torch.float64), _WHAT)
        self.rows, self._summed = int(sums[0]), None if sums[1].isnan() else float(sums[1])
        self.counts = together.total(torch.from_numpy(self.counts), _WHAT).numpy()
        self._reliability = self._reliability.over(_WHAT)

    def found(self) -> dict[str, float | None]:
        found: dict[str, float | None] = {"accuracy": int(self.counts.trace()) / self.rows}
        columns = by_class(self.counts)
        known = columns["rows"] > 0
        found["balanced_accuracy"] = float(columns["recall"][known].mean()) if known.any() else None
        if self._summed is not None:
            found["log_loss"] = self._summed / self.rows
        return found | {"ECE": self._reliability.error}

    def baseline(self, tested: "ClassScores") -> dict[str, Any]:
        """What always the most frequent class of these rows, or always their shares, reach on those that are tested.

        All classes are among these rows.
        """
        here, there = self.counts.sum(1), tested.counts.sum(1)
        most = int(here.argmax())
        return {
            "class": plain(self._classes[most]),
            "accuracy": int(there[most]) / tested.rows,
            "log_loss": -float((there * np.log(here / here.sum())).sum()) / tested.rows,
        }


class ValueScores:
    """R², None where all true values are the same, root mean square and mean absolute error."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        self.rows, self._squares, self._sizes = 0, 0.0, 0.0
        self._values = Moments.of(np.empty((0, 1)))

    def add(self, X: Any, y: np.ndarray) -> "ValueScores":
        errors = self._estimator.predict(X) - y
        self.rows += len(y)
        self._squares += float((errors**2).sum())
        self._sizes += float(np.abs(errors).sum())
        self._values = self._values.merged(Moments.of(y[:, None]))
        return self

    def add_up(self) -> None:
        """Make these the scores of the rows of all ranks."""
        here = torch.tensor([self.rows, self._squares, self._sizes], dtype=torch.float64)
        sums = together.total(here, _WHAT).tolist()
        self.rows, self._squares, self._sizes = int(sums[0]), *sums[1:]
        here = torch.from_numpy(np.stack([self._values.count, self._values.mean, self._values.deviation]))
        parts = [Moments(*each.numpy()) for each in together.from_each(here, _WHAT)]
        self._values = reduce(Moments.merged, parts)

    def found(self) -> dict[str, float | None]:
        square, variance = self._squares / self.rows, float(self._values.deviation[0]) ** 2
        return {
            "R2": 1.0 - square / variance if variance else None,
            "RMSE": float(np.sqrt(square)),
            "MAE": self._sizes / self.rows,
        }

    def baseline(self, tested: "ValueScores") -> dict[str, Any]:
        """What always the mean of these rows reaches on those that are tested."""
        mean, there = float(self._values.mean[0]), tested._values
        return {"mean": mean, "RMSE": math.hypot(float(there.deviation[0]), float(there.mean[0]) - mean)}


Scores = ClassScores | ValueScores


def shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def by_class(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Precision, recall and F1 of each class; 0 where there is nothing to divide by."""
    hits, true, told = counts.diagonal(), counts.sum(1), counts.sum(0)
    precision, recall = (np.divide(hits, n, out=np.zeros(len(hits)), where=n > 0) for n in (told, true))
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros(len(hits)), where=total > 0)
    return {"precision": precision, "recall": recall, "F1": f1, "rows": true}


def plain(value: Any) -> Any:
    """Arrays and NumPy numbers as JSON has them."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
