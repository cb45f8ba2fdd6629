"""A column that explains nearly everything by itself, which is more often a leak than a discovery."""

import numpy as np
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fracdnn.report.importance import Importances
from fracdnn.report.plots import label
from fracdnn.report.subject import Subject

# The share that a model must explain, and what of that the column alone must reach.
LEAST_EXPLAINED, NEARLY_ALL = 0.5, 0.95
LEAST_SAMPLES, LEAF = 50, 5


def dominant(subject: Subject, found: Importances) -> str | None:
    """The column that dominates a model of several, if there is one.

    Explained is the share of a constant answer's error that is gone: of wrong answers by the most frequent class, or of
    squared errors of the mean (R²). A column dominates where the model explains half or more, the importance of the
    column is larger than that of all others together, and a decision tree that sees this column alone explains 95 % of
    what the model does (on the same held-out samples, in five folds). Importances alone would not do: a network shares
    them among columns with the same information, and one of several good columns may have most of them. Nor would
    the tree alone: it may find a column that the model does without.
    """
    worth = found.mean.clip(min=0.0)
    if found.why_not or len(found.samples) < LEAST_SAMPLES or len(worth) < 2 or 2 * worth.max() <= worth.sum():
        return None
    name = list(subject.columns)[int(worth.argmax())]
    X, y = subject.X[found.samples], subject.y[found.samples]
    kind = DecisionTreeClassifier if subject.classifies else DecisionTreeRegressor
    tree = kind(min_samples_leaf=LEAF, random_state=0)
    alone = cross_val_predict(tree, X[:, subject.columns[name]], y, cv=KFold(5, shuffle=True, random_state=0))
    reached = _explained(subject, y, subject.predicted[found.samples])
    is_all = reached >= LEAST_EXPLAINED and _explained(subject, y, alone) >= NEARLY_ALL * reached
    return name if is_all else None


def warning(subject: Subject, found: Importances) -> str:
    """A sentence on such a column; empty where there is none."""
    name = dominant(subject, found)
    if name is None:
        return ""
    return (
        f"Column “{label(name)}” explains nearly everything by itself. Check that it is known before the target is, "
        f"and that it is no copy of the target, row number or id; if it is, leave it out and train again."
    )


def _explained(subject: Subject, y: np.ndarray, answers: np.ndarray) -> float:
    if subject.classifies:
        constant = 1.0 - np.unique(y, return_counts=True)[1].max() / len(y)
        return 1.0 - float((answers != y).mean()) / constant if constant else 0.0
    constant = float(((y - y.mean(0)) ** 2).sum())
    return 1.0 - float(((y - answers.reshape(y.shape)) ** 2).sum()) / constant if constant else 0.0
