"""Importance of columns: how much worse predictions become when the cells of one are shuffled, and how they depend on
one column when all others stay as they are (Friedman 2001).

A column that explains nearly everything by itself is more often a leak than a discovery: see `dominant`.
"""

from typing import Any, NamedTuple

import numpy as np
from sklearn.inspection import permutation_importance
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fracdnn.report.subject import SHOWN, Subject, r2

REPEATS = 5
# Predictions that a report waits for at most, and samples below which an importance says little.
MOST_ANSWERS, LEAST_SAMPLES = 80_000, 40
# A column dominates if the model explains at least half, and the column alone nearly all of that.
LEAST_EXPLAINED, NEARLY_ALL, LEAST_DOMINATED, LEAF = 0.5, 0.95, 50, 5
# Number of values of a column whose dependence is shown, and the quantiles of numbers between which they lie.
MOST_VALUES, _USUAL = 12, (0.02, 0.98)


class Importances(NamedTuple):
    """Permutation importance of each column, its deviation over shuffles and the samples that it is measured on.

    `why_not` is the reason why nothing was measured.
    """

    mean: np.ndarray
    deviation: np.ndarray
    samples: np.ndarray
    why_not: str = ""

    def best(self, most: int) -> list[int]:
        """Return the columns whose importance exceeds its deviation, the most important first."""
        clear = np.flatnonzero(self.mean > self.deviation)
        return clear[np.argsort(-self.mean[clear], kind="stable")][:most].tolist()


def measured(subject: Subject) -> Importances:
    """Return the permutation importance of each column: increase of the log-loss, or decrease of R².

    All features of a column are shuffled together: what scikit-learn shuffles are the rows that each column is from.
    """
    # Samples whose class the training knows, so many that the report stays quick.
    n_columns = len(subject.columns)
    samples = subject.shown(min(SHOWN, MOST_ANSWERS // (REPEATS * n_columns)))
    if subject.classifies:
        samples = samples[np.isin(subject.y[samples], subject.estimator.classes_)]
    X, y = subject.X[samples], (subject.codes if subject.classifies else subject.y)[samples]
    why_not = ""
    if n_columns * REPEATS * LEAST_SAMPLES > MOST_ANSWERS:
        why_not = f"With {n_columns:,} columns, shuffling each of them would take too long."
    elif not len(samples):
        why_not = "No row has a class of the training data."
    elif not subject.classifies and not np.ptp(y, axis=0).all():
        why_not = "The target has only one value, so there is no R² to lower."
    if why_not:
        return Importances(np.empty(0), np.empty(0), samples, why_not)
    features, column_of = np.arange(X.shape[1]), np.zeros(X.shape[1], dtype=int)
    for column, places in enumerate(subject.columns.values()):
        column_of[places] = column

    def score(_: Any, rows: np.ndarray, y: np.ndarray) -> float:
        outputs = subject.outputs(X[rows[:, column_of], features])
        if subject.classifies:
            return float(np.log(outputs[np.arange(len(y)), y].clip(min=np.finfo(np.float64).eps)).mean())
        return r2(y, outputs)

    rows = np.repeat(np.arange(len(X))[:, None], n_columns, axis=1)
    found = permutation_importance(subject.estimator, rows, y, scoring=score, n_repeats=REPEATS, random_state=0)
    return Importances(found.importances_mean, found.importances_std, samples)


def dominant(subject: Subject, found: Importances) -> str | None:
    """Return the column that dominates a model of several, or None.

    A column dominates where the model explains half or more of a constant answer's error, the importance of the column
    is larger than that of all others together, and a decision tree that sees this column alone explains 95 % of what
    the model does (on the same held-out samples, in five folds).
    """
    worth = found.mean.clip(min=0.0)
    if found.why_not or len(found.samples) < LEAST_DOMINATED or len(worth) < 2 or 2 * worth.max() <= worth.sum():
        return None
    name = list(subject.columns)[int(worth.argmax())]
    X, y = subject.X[found.samples], subject.y[found.samples]
    kind = DecisionTreeClassifier if subject.classifies else DecisionTreeRegressor
    tree = kind(min_samples_leaf=LEAF, random_state=0)
    alone = cross_val_predict(tree, X[:, subject.columns[name]], y, cv=KFold(5, shuffle=True, random_state=0))
    reached = _explained(subject, y, subject.predicted[found.samples])
    is_all = reached >= LEAST_EXPLAINED and _explained(subject, y, alone) >= NEARLY_ALL * reached
    return name if is_all else None


def _explained(subject: Subject, y: np.ndarray, answers: np.ndarray) -> float:
    if subject.classifies:
        constant = 1.0 - np.unique(y, return_counts=True)[1].max() / len(y)
        return 1.0 - float((answers != y).mean()) / constant if constant else 0.0
    return r2(y, answers, multioutput="variance_weighted")


class Dependence(NamedTuple):
    """Mean predictions [values, outputs] at some values of a column: numbers, or `names` of categories."""

    column: str
    values: np.ndarray
    names: list[str] | None
    mean: np.ndarray


def dependence(subject: Subject, column: str, samples: np.ndarray) -> Dependence:
    """Return mean predictions for the samples with each value of the column in place of their own."""
    places, found = subject.columns[column], None
    names = [subject.features[place] for place in places]
    if all(name.startswith(f"{column}=") for name in names):
        counts = (subject.X[:, places] == 1).sum(axis=0)
        kept = np.argsort(-counts, kind="stable")[: min(MOST_VALUES, max(int((counts > 0).sum()), 1))]
        values, grid = np.arange(len(kept)), np.eye(len(places))[kept]
        found = [names[k].removeprefix(f"{column}=") for k in kept]
    else:
        missing = [place for place in places[1:] if subject.features[place] == f"{names[0]} is missing"]
        known, places = subject.X[(subject.X[:, missing] == 0).all(axis=1), places[0]], [places[0], *missing]
        values = np.unique(known)
        if len(values) > MOST_VALUES:
            values = np.unique(np.quantile(known, np.linspace(*_USUAL, MOST_VALUES)))
        grid = np.column_stack([values, np.zeros((len(values), len(missing)))])
    X = np.repeat(subject.X[samples][None], len(grid), axis=0)
    X[:, :, places] = grid[:, None]
    answers = subject.outputs(X.reshape(-1, X.shape[2])).reshape(len(grid), len(samples), -1)
    return Dependence(column, values, found, answers.mean(axis=1))
