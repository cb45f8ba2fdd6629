"""How good predictions are, and of several models and tables who is better than whom."""

import numpy as np
from scipy.stats import rankdata, studentized_range
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, roc_auc_score, root_mean_squared_error

from fracdnn.estimators.reliability import Reliability
from reproduction.statistics import LEVEL

# Below it a probability counts as this much: what is 0 in float32 would cost some models all.
LEAST_PROBABILITY = float(np.finfo(np.float32).eps)


def measures_of_classes(y: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """AUC of each class against the rest, mean over classes."""
    clipped = clipped_probabilities(probabilities)
    labels = np.arange(probabilities.shape[1])
    scores = probabilities[:, 1] if len(labels) == 2 else clipped
    return {
        "log_loss": log_loss(y, clipped, labels=labels),
        "auc": roc_auc_score(y, scores, multi_class="ovr", labels=labels),
        "accuracy": (probabilities.argmax(1) == y).mean(),
        "ece": Reliability.of(clipped, clipped.argmax(1) == y).error,
    }


def measures_of_numbers(y: np.ndarray, found: np.ndarray) -> dict[str, float]:
    found = found.reshape(y.shape)
    return {"rmse": root_mean_squared_error(y, found), "mae": mean_absolute_error(y, found), "r2": r2_score(y, found)}


def clipped_probabilities(probabilities: np.ndarray) -> np.ndarray:
    if not np.isfinite(probabilities).all():
        raise ValueError("predicted probabilities that are not finite")
    clipped = np.clip(probabilities, LEAST_PROBABILITY, 1)
    return clipped / clipped.sum(1, keepdims=True)


# Below, `errors` are [tables, models], less is better and what failed is infinite.


def ranks(errors: np.ndarray) -> np.ndarray:
    """The rank of each model on each table, 1 the best; equal ones share the mean of their places."""
    return np.array([rankdata(row) for row in errors])


def critical_difference(n_models: int, n_tables: int) -> float:
    """Nemenyi's: mean ranks closer than this do not differ at the level of 5 %."""
    quantile = studentized_range.ppf(1 - LEVEL, n_models, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_models * (n_models + 1) / (6 * n_tables)))


def improvability(errors: np.ndarray) -> np.ndarray:
    """1 - best error / error, mean over tables: the share of its error that a model could lose. As TabArena has it."""
    best = errors.min(1, keepdims=True)
    shares = np.divide(best, errors, out=np.ones_like(errors), where=np.isfinite(errors) & (errors > 0))
    return np.where(np.isfinite(errors), 1 - shares, 1.0).mean(0)


def win_rate(ours: np.ndarray, theirs: np.ndarray) -> float:
    """The share of tables on which ours is better; equal ones count half."""
    return float(((ours < theirs) + 0.5 * (ours == theirs)).mean())


def bootstrap_interval(values: np.ndarray, draws: int = 10_000) -> tuple[float, float]:
    """95 % of the means of as many values drawn again."""
    rng = np.random.default_rng(0)
    means = rng.choice(values, (draws, len(values))).mean(1)
    return float(np.quantile(means, 0.025)), float(np.quantile(means, 0.975))
