"""How good predictions are, in numbers that JSON can hold, and whether the training has seen the rows."""

import math
from base64 import b64decode, b64encode
from functools import reduce
from typing import Any

import numpy as np
import torch

from fracdnn.columns.summaries import Moments
from fracdnn.estimators.reliability import Reliability
from fracdnn.tabular.ids import row_hashes
from fracdnn.tabular.model import TableModel
from fracdnn.training import together

_WHAT = "the scores"
# Hashes of rows learned from that a model's file holds: the smallest ones, which are as good as drawn at random.
_MOST_HASHES = 4096


def new_scores(model: TableModel) -> "Scores":
    return ClassScores(model.estimator) if model.is_classifier else ValueScores(model.estimator)


class ClassScores:
    """Accuracy, the mean of it over classes ("balanced"), the log-loss where all true classes are known ones, the
    expected calibration error ("ECE"), and `counts` [true, predicted].
    """

    def __init__(self, estimator: Any) -> None:
        self._estimator, self._classes = estimator, estimator.classes_
        self.counts = np.zeros((len(self._classes),) * 2, dtype=np.int64)
        self._loss = 0.0  # of all rows together; NaN where a class is unknown
        self._reliability = Reliability.of(np.empty((0, 1)), np.empty(0))

    @property
    def rows(self) -> int:
        return int(self._reliability.counts.sum())

    def add(self, X: Any, y: np.ndarray) -> "ClassScores":
        from sklearn.metrics import confusion_matrix, log_loss

        probabilities = self._estimator.predict_proba(X)
        predicted, is_known = self._classes[probabilities.argmax(1)], np.isin(y, self._classes)
        all_known = bool(is_known.all())
        self._loss += log_loss(y, probabilities, labels=self._classes, normalize=False) if all_known else math.nan
        self._reliability = self._reliability.merged(Reliability.of(probabilities, predicted == y))
        if is_known.any():
            self.counts += confusion_matrix(y[is_known], predicted[is_known], labels=self._classes)
        return self

    def add_up(self) -> None:
        """Make these the scores of the rows of all processes."""
        self._loss = float(together.total(torch.tensor(self._loss, dtype=torch.float64), _WHAT))
        self.counts = together.total(torch.from_numpy(self.counts), _WHAT).numpy()
        self._reliability = self._reliability.over(_WHAT)

    def results(self) -> dict[str, float | None]:
        columns = by_class(self.counts)
        known = columns["rows"] > 0
        return {
            "accuracy": int(self.counts.trace()) / self.rows,
            "balanced_accuracy": float(columns["recall"][known].mean()) if known.any() else None,
            **({} if math.isnan(self._loss) else {"log_loss": float(self._loss) / self.rows}),
            "ECE": self._reliability.error,
        }

    def baseline(self) -> dict[str, Any]:
        """The scores of the most frequent class and of the class frequencies: no constant answer is better."""
        counts = self.counts.sum(1)
        most, shares = int(counts.argmax()), counts[counts > 0] / self.rows
        loss = -float((shares * np.log(shares)).sum())
        return {"class": self._classes.tolist()[most], "accuracy": int(counts[most]) / self.rows, "log_loss": loss}


class ValueScores:
    """R², None where all true values are the same, root mean square and mean absolute error."""

    def __init__(self, estimator: Any) -> None:
        self._estimator, self._values = estimator, Moments.of(np.empty((0, 1)))
        self._errors = np.zeros(2)  # the sums of their squares and of their sizes

    @property
    def rows(self) -> int:
        return int(self._values.count[0])

    def add(self, X: Any, y: np.ndarray) -> "ValueScores":
        errors = self._estimator.predict(X) - y
        self._errors += (errors**2).sum(), np.abs(errors).sum()
        self._values = self._values.merged(Moments.of(y[:, None]))
        return self

    def add_up(self) -> None:
        """Make these the scores of the rows of all processes."""
        self._errors = together.total(torch.from_numpy(self._errors), _WHAT).numpy()
        here = torch.from_numpy(np.stack([self._values.count, self._values.mean, self._values.deviation]))
        parts = [Moments(*each.numpy()) for each in together.from_each(here, _WHAT)]
        self._values = reduce(Moments.merged, parts)

    def results(self) -> dict[str, float | None]:
        (square, size), variance = (self._errors / self.rows).tolist(), self._deviation**2
        return {"R2": 1.0 - square / variance if variance else None, "RMSE": math.sqrt(square), "MAE": size}

    def baseline(self) -> dict[str, Any]:
        """What always the mean reaches: no constant is better."""
        return {"mean": float(self._values.mean[0]), "RMSE": self._deviation}

    @property
    def _deviation(self) -> float:
        """Of the true values; 0 where nothing but rounding makes them differ."""
        deviation, mean = float(self._values.deviation[0]), float(self._values.mean[0])
        return deviation if deviation > 1e-14 * abs(mean) else 0.0


Scores = ClassScores | ValueScores


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
