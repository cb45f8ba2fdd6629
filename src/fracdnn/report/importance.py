"""Which columns a model relies on: how much worse its answers become when the cells of one are shuffled, and what it
answers as one column changes and all others stay as they are (Friedman 2001).

A column that explains nearly everything by itself is more often a leak than a discovery: see `dominant`.
"""

from typing import Any, NamedTuple

import numpy as np
from sklearn.inspection import permutation_importance
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fracdnn.report.answers import rarer
from fracdnn.report.figures import BLUE, GREY
from fracdnn.report.plots import Plot, axis, class_key, class_style, label, numbers, padded, scatter
from fracdnn.report.subject import SHOWN, Subject
from fracdnn.report.texts import number

REPEATS, MOST_BARS = 5, 20
# Answers that a report waits for at most, and samples below which an importance says little.
MOST_ANSWERS, LEAST_SAMPLES = 80_000, 40
# Of a column that dominates: the share that a model must explain, and what of that the column alone must reach.
LEAST_EXPLAINED, NEARLY_ALL, LEAST_DOMINATED, LEAF = 0.5, 0.95, 50, 5
# Columns, values of each, samples, and classes that are shown.
MOST_COLUMNS, MOST_VALUES, MOST_SAMPLES, MOST_CLASSES = 6, 12, 200, 5
# What a column of numbers is varied over: its usual values.
_USUAL = (0.02, 0.98)


class Importances(NamedTuple):
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
    """The permutation importance of each column: loss in minus log-loss, or in R².

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
        return float(r2_score(y, outputs))

    rows = np.repeat(np.arange(len(X))[:, None], n_columns, axis=1)
    found = permutation_importance(subject.estimator, rows, y, scoring=score, n_repeats=REPEATS, random_state=0)
    return Importances(found.importances_mean, found.importances_std, samples)


def importance_plot(subject: Subject, found: Importances) -> Plot:
    if found.why_not:
        return Plot("importance", "Importance of columns", note=found.why_not)
    order = np.argsort(-found.mean, kind="stable")[:MOST_BARS]
    names, places = [label(list(subject.columns)[k]) for k in order], list(range(len(order)))
    spread = {"type": "data", "array": numbers(found.deviation[order]), "color": GREY, "thickness": 1.5}
    bars = {"type": "bar", "orientation": "h", "x": numbers(found.mean[order]), "y": places, "error_x": spread}
    bars |= {"text": names, "textposition": "none", "marker": {"color": BLUE, "opacity": 0.75}}
    bars["hovertemplate"] = "%{text}<br>%{x:.4g} ± %{error_x.array:.2g}<extra></extra>"
    word, n_columns = "increase of the log-loss" if subject.classifies else "decrease of R²", len(found.mean)
    some = f" These are the {len(order)} most important of {n_columns:,} columns." if n_columns > len(order) else ""
    caption = (
        f"The {word} when the cells of one column are shuffled among {_of_all(subject, found.samples)} held-out "
        f"samples: mean and standard deviation of {REPEATS} shuffles. Near 0, the model does not need the column; "
        f"columns with the same information split their importance.{some}"
    )
    axes = {
        "xaxis": axis(word) | {"zeroline": True, "zerolinecolor": GREY},
        "yaxis": axis("", tickvals=places, ticktext=names, showgrid=False, range=[len(order) - 0.4, -0.6]),
        "showlegend": False,
    }
    return Plot("importance", "Importance of columns", caption, [bars], axes, tall=len(order) > 12)


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
    return float(r2_score(y, answers, multioutput="variance_weighted"))


class Dependence(NamedTuple):
    """Mean answers [values, outputs] at some values of a column: numbers, or `names` of categories."""

    column: str
    values: np.ndarray
    names: list[str] | None
    mean: np.ndarray


def dependence(subject: Subject, column: str, samples: np.ndarray) -> Dependence:
    """The answers for the samples with each of the values in place of their own."""
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


def dependence_plot(subject: Subject, importances: Importances) -> Plot:
    plot = Plot("dependence", "How the prediction depends on the most important columns")
    samples, columns = subject.shown(MOST_SAMPLES), list(subject.columns)
    found = [dependence(subject, columns[k], samples) for k in importances.best(MOST_COLUMNS)]
    found = [each for each in found if len(each.values) > 1]
    if not found:
        plot.note = "No column is clearly important, so there is nothing to show."
        return plot
    outputs, answer = _outputs(subject, found)
    up = axis("", range=padded(np.concatenate([each.mean[:, outputs].ravel() for each in found])))
    up |= {"tickformat": ".0%"} if subject.classifies else {}
    hover = f"%{{text}}: %{{y:{'.1%' if subject.classifies else '.4g'}}}<extra>%{{fullData.name}}</extra>"
    for place, each in enumerate(found):
        across, dash = axis(label(each.column)), "solid"
        texts = [number(value) for value in each.values] if each.names is None else list(map(label, each.names))
        if each.names is not None:
            across |= {"tickvals": each.values.tolist(), "ticktext": [label(name, 12) for name in each.names]}
            across["range"], dash = [-0.5, len(each.names) - 0.5], "dot"
        part = Plot(f"dependence-{place}", each.column)
        part.layout = {"xaxis": across, "yaxis": up, "showlegend": False}
        for k in outputs:
            name = label(subject.labels[k]) if subject.classifies else "mean"
            line = {"color": BLUE if len(outputs) == 1 else class_style(k)["color"], "dash": dash}
            options: dict[str, Any] = {"text": texts, "meta": k, "name": name, "line": line, "hovertemplate": hover}
            part.data.append(scatter("lines+markers", each.values, each.mean[:, k], **options))
        plot.parts.append(part)
    plot.key = [class_key(subject.labels)[k] for k in outputs] if len(outputs) > 1 else None
    plot.caption = (
        f"The mean {answer} when {_of_all(subject, samples)} held-out samples have this value in one column and keep "
        f"their own in all others. It shows what the model does, not cause and effect, and includes combinations of "
        f"values that the data may not have."
    )
    return plot


def _outputs(subject: Subject, found: list[Dependence]) -> tuple[list[int], str]:
    """What is shown, and its name: of two classes the rarer, of more those that change most, of values the first."""
    if not subject.classifies:
        return [0], "predicted value" if subject.y.shape[1] == 1 else "predicted value of the first output"
    moves = np.max([np.ptp(each.mean, axis=0) for each in found], axis=0)
    if len(moves) <= 2:
        k = rarer(subject) if len(subject.labels) == 2 else len(moves) - 1
        return [k], f"probability of “{subject.labels[k]}”"
    outputs = sorted(np.argsort(-moves, kind="stable")[:MOST_CLASSES].tolist())
    some = f" ({len(outputs)} of {len(moves)}, which change most)" if len(outputs) < len(moves) else ""
    return outputs, f"probability of each class{some}"


def _of_all(subject: Subject, samples: np.ndarray) -> str:
    return f"{len(samples):,}" + ("" if len(samples) == subject.n else f" of {subject.n:,}")
