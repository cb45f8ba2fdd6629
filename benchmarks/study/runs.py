"""One run: a model fitted on seven tenths of a table's rows and measured on the others."""

import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, roc_auc_score, root_mean_squared_error
from sklearn.model_selection import train_test_split

from benchmarks.study.models import MODELS
from benchmarks.study.tables import Data, load

TEST_SHARE = 0.3
# Below it a probability counts as this much: what is 0 in float32 would cost some models all.
LEAST_PROBABILITY = float(np.finfo(np.float32).eps)
Record = dict[str, Any]


@dataclass(frozen=True, order=True)
class Run:
    """A seed is a split and the model's own random numbers."""

    seed: int
    table: str
    model: str


def measured(run: Run) -> Record:
    """The record of a run; one that fails says why."""
    data, model = load(run.table), MODELS[run.model]
    record = {"table": run.table, "model": run.model, "seed": run.seed, "made_with": model.made_with()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator = model.build(data.of_classes, run.seed, data.categories)
            return {**record, "status": "done", **fitted_and_measured(estimator, data, run.seed)}
    except Exception as error:  # whatever a rival raises is its result
        return failed(record, f"{type(error).__name__}: {error}")


def failed(record: Record, why: str) -> Record:
    return {**record, "status": "failed", "error": " ".join(why.split())[:300]}


def fitted_and_measured(estimator: Any, data: Data, seed: int) -> dict[str, float]:
    train, test = split(data, seed)
    begun = time.process_time()
    estimator.fit(data.X.iloc[train].reset_index(drop=True), data.y[train])
    fitted = time.process_time()
    X, y = data.X.iloc[test].reset_index(drop=True), data.y[test]
    found = estimator.predict_proba(X) if data.of_classes else estimator.predict(X)
    seconds = {"fit_seconds": fitted - begun, "predict_seconds": time.process_time() - fitted}
    measure = measures_of_classes if data.of_classes else measures_of_numbers
    measures = measure(y, np.asarray(found, dtype=np.float64))
    return {name: float(f"{value:.6g}") for name, value in {**measures, **seconds}.items()}


def split(data: Data, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places of the rows to fit and to test with; classes have their share in both."""
    classes = data.y if data.of_classes else None
    return train_test_split(np.arange(len(data.y)), test_size=TEST_SHARE, random_state=seed, stratify=classes)


def measures_of_classes(y: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """AUC of each class against the rest, mean over classes."""
    if not np.isfinite(probabilities).all():
        raise ValueError("predicted probabilities that are not finite")
    clipped = np.clip(probabilities, LEAST_PROBABILITY, 1)
    clipped /= clipped.sum(1, keepdims=True)
    labels = np.arange(probabilities.shape[1])
    scores = probabilities[:, 1] if len(labels) == 2 else clipped
    return {
        "log_loss": log_loss(y, clipped, labels=labels),
        "auc": roc_auc_score(y, scores, multi_class="ovr", labels=labels),
        "accuracy": (probabilities.argmax(1) == y).mean(),
        "ece": calibration_error(y, clipped),
    }


def measures_of_numbers(y: np.ndarray, found: np.ndarray) -> dict[str, float]:
    found = found.reshape(y.shape)
    return {"rmse": root_mean_squared_error(y, found), "mae": mean_absolute_error(y, found), "r2": r2_score(y, found)}


def calibration_error(y: np.ndarray, probabilities: np.ndarray) -> float:
    """Confidence against accuracy, in ten bins of confidence, weighted by their size."""
    confidence, hits = probabilities.max(1), probabilities.argmax(1) == y
    bins = np.minimum((confidence * 10).astype(int), 9)
    gaps = [abs(hits[bins == b].mean() - confidence[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    return float(sum(gaps))
