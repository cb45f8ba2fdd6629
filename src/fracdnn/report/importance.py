"""Which columns a model relies on: how much worse its answers become when the cells of one are shuffled.

A column that explains nearly everything by itself is more often a leak than a discovery: see `dominant`.
"""

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fracdnn.report.figures import BLUE, GREY
from fracdnn.report.plots import Plot, axis, label, numbers
from fracdnn.report.subject import SHOWN, Subject

REPEATS, MOST_BARS = 5, 20
# Answers that a report waits for at most, and samples below which an importance says little.
MOST_ANSWERS, LEAST_SAMPLES = 80_000, 40
# Of a column that dominates: the share that a model must explain, and what of that the column alone must reach.
LEAST_EXPLAINED, NEARLY_ALL, LEAST_DOMINATED, LEAF = 0.5, 0.95, 50, 5


@dataclass(frozen=True)
class Importances:
    """What each column of a subject is worth, with the deviation over shuffles, and the samples it is measured on.

    `why_not` says why nothing was measured, where it was not.
    """

    mean: np.ndarray
    deviation: np.ndarray
    samples: np.ndarray
    why_not: str = ""

    def best(self, most: int) -> list[int]:
        """The columns that are worth more than their deviation, the first of them first."""
        clear = np.flatnonzero(self.mean > self.deviation)
        return clear[np.argsort(-self.mean[clear], kind="stable")][:most].tolist()


def measured(subject: Subject) -> Importances:
    # Samples whose class the training knows, so many that the report stays quick.
    n_columns = len(subject.columns)
    samples = subject.shown(min(SHOWN, MOST_ANSWERS // (REPEATS * n_columns)))
    if subject.classifies:
        samples = samples[np.isin(subject.y[samples], subject.estimator.classes_)]
    why_not = ""
    if n_columns * REPEATS * LEAST_SAMPLES > MOST_ANSWERS:
        why_not = f"With {n_columns:,} columns, shuffling each of them would take too long."
    elif not subject.classifies and not np.ptp(subject.y[samples], axis=0).all():
        why_not = "The target has only one value, so there is no R² to lower."
    elif not len(samples):
        why_not = "No row has a class of the training data."
    if why_not:
        return Importances(np.empty(0), np.empty(0), samples, why_not)
    return Importances(*importances(subject, samples), samples)


def importance_plot(subject: Subject, found: Importances) -> Plot:
    """The most important columns as bars, the first at the top, with the deviation over shuffles."""
    if found.why_not:
        return Plot("importance", "Importance of columns", note=found.why_not)
    order = np.argsort(-found.mean, kind="stable")[:MOST_BARS]
    names, places = [label(list(subject.columns)[k]) for k in order], list(range(len(order)))
    spread = {"type": "data", "array": numbers(found.deviation[order]), "color": GREY, "thickness": 1.5}
    bars = {"type": "bar", "orientation": "h", "x": numbers(found.mean[order]), "y": places, "error_x": spread}
    bars |= {"text": names, "textposition": "none", "marker": {"color": BLUE, "opacity": 0.75}}
    bars["hovertemplate"] = "%{text}<br>%{x:.4g} ± %{error_x.array:.2g}<extra></extra>"
    word, n_columns = "increase of the log-loss" if subject.classifies else "decrease of R²", len(found.mean)
    drawn = "" if len(found.samples) == subject.n else f" of {subject.n:,}"
    some = f" These are the {len(order)} most important of {n_columns:,} columns." if n_columns > len(order) else ""
    caption = (
        f"The {word} when the cells of one column are shuffled among {len(found.samples):,}{drawn} held-out samples: "
        f"mean and standard deviation of {REPEATS} shuffles. Near 0, the model does not need the column; columns "
        f"with the same information split their importance.{some}"
    )
    axes = {
        "xaxis": axis(word) | {"zeroline": True, "zerolinecolor": GREY},
        "yaxis": axis("", tickvals=places, ticktext=names, showgrid=False, range=[len(order) - 0.4, -0.6]),
        "showlegend": False,
    }
    return Plot("importance", "Importance of columns", caption, [bars], axes, tall=len(order) > 12)


def importances(subject: Subject, samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of the permutation importance of each column: loss in minus log-loss, or in R².

    All features of a column are shuffled together, in the same orders for each column, as scikit-learn draws them.
    """
    X, y = subject.X[samples], (subject.codes if subject.classifies else subject.y)[samples]

    def score(X: np.ndarray) -> float:
        if subject.classifies:
            return float(np.log(subject.outputs(X)[np.arange(len(y)), y].clip(min=np.finfo(np.float64).eps)).mean())
        return float(r2_score(y, subject.outputs(X)))

    generator = np.random.RandomState(np.random.RandomState(0).randint(2**31))
    whole, found = score(X), np.empty((len(subject.columns), REPEATS))
    rows, order = np.arange(len(X)), np.arange(len(X))
    for repeat in range(REPEATS):
        generator.shuffle(order)
        rows = rows[order]
        for column, features in enumerate(subject.columns.values()):
            shuffled = X.copy()
            shuffled[:, features] = X[rows][:, features]
            found[column, repeat] = whole - score(shuffled)
    return found.mean(axis=1), found.std(axis=1)


def dominant(subject: Subject, found: Importances) -> str | None:
    """The column that dominates a model of several, if there is one.

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
    constant = float(((y - y.mean(0)) ** 2).sum())
    return 1.0 - float(((y - answers.reshape(y.shape)) ** 2).sum()) / constant if constant else 0.0
