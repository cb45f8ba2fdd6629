"""What the model answers as one column changes and all others stay as they are (Friedman 2001)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fracdnn.report.classes import rarer
from fracdnn.report.figures import BLUE
from fracdnn.report.importance import Importances
from fracdnn.report.plots import Plot, axis, bars, class_key, class_style, label, padded, scatter
from fracdnn.report.subject import Subject
from fracdnn.report.texts import number

# Columns, values of each, samples, and classes that are shown.
MOST_COLUMNS, MOST_VALUES, MOST_SAMPLES, MOST_CLASSES = 6, 12, 200, 5
# Bars are left out where they are so much higher than the means move.
FLATTEST, BARS = 0.3, "rgba(0,114,178,0.45)"
# What a column of numbers is varied over: its usual values.
_USUAL = (0.02, 0.98)


@dataclass(frozen=True)
class Dependence:
    """Answers [values, samples, outputs] at some values of a column: numbers, or `names` of categories."""

    column: str
    values: np.ndarray
    names: list[str] | None
    answers: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return self.answers.mean(axis=1)

    def quartiles(self, output: int) -> np.ndarray:
        """Of the samples, [2, values]."""
        return np.quantile(self.answers[:, :, output], [0.25, 0.75], axis=1)


def dependence(subject: Subject, column: str, samples: np.ndarray) -> Dependence:
    """The answers for the samples with each of the values in place of their own."""
    places, grid, names = _grid(subject, column)
    X = np.repeat(subject.X[samples][None], len(grid), axis=0)
    X[:, :, places] = grid[:, None]
    answers = subject.outputs(X.reshape(-1, X.shape[2])).reshape(len(grid), len(samples), -1)
    return Dependence(column, grid[:, 0] if names is None else np.arange(len(grid)), names, answers)


def _grid(subject: Subject, column: str) -> tuple[list[int], np.ndarray, list[str] | None]:
    """The features that change, their values [values, features], and the names of these for categories."""
    places = subject.columns[column]
    names = [subject.features[place] for place in places]
    if all(name.startswith(f"{column}=") for name in names):
        counts = (subject.X[:, places] == 1).sum(axis=0)
        kept = np.argsort(-counts, kind="stable")[: min(MOST_VALUES, max(int((counts > 0).sum()), 1))]
        return places, np.eye(len(places))[kept], [names[k].removeprefix(f"{column}=") for k in kept]
    missing = [place for place in places[1:] if subject.features[place] == f"{names[0]} is missing"]
    known = subject.X[(subject.X[:, missing] == 0).all(axis=1), places[0]]
    values = np.unique(known)
    if len(values) > MOST_VALUES:
        values = np.unique(np.quantile(known, np.linspace(*_USUAL, MOST_VALUES)))
    return [places[0], *missing], np.column_stack([values, np.zeros((len(values), len(missing)))]), None


def dependence_plot(subject: Subject, importances: Importances) -> Plot:
    plot = Plot("dependence", "How the prediction depends on the most important columns")
    samples, columns = subject.shown(MOST_SAMPLES), list(subject.columns)
    found = [dependence(subject, columns[k], samples) for k in importances.best(MOST_COLUMNS)]
    found = [each for each in found if len(each.values) > 1]
    if not found:
        plot.note = "No column is clearly important, so there is nothing to show."
        return plot
    outputs, answer = _outputs(subject, found)
    means = np.concatenate([each.mean[:, outputs].ravel() for each in found])
    ends = np.concatenate([each.quartiles(outputs[0]).ravel() for each in found])
    has_bars = len(outputs) == 1 and bool(np.ptp(means) >= FLATTEST * np.ptp(ends))
    up = axis("", range=padded(np.append(means, ends) if has_bars else means))
    up |= {"tickformat": ".0%"} if subject.classifies else {}
    for k, each in enumerate(found):
        across = axis(label(each.column))
        if each.names is not None:
            across |= {"tickvals": each.values.tolist(), "ticktext": [label(name, 12) for name in each.names]}
            across["range"] = [-0.5, len(each.names) - 0.5]
        axes = {"xaxis": across, "yaxis": up, "showlegend": False}
        plot.parts.append(Plot(f"dependence-{k}", each.column, "", _traces(subject, each, outputs, has_bars), axes))
    plot.key = [class_key(subject.labels)[k] for k in outputs] if len(outputs) > 1 else None
    drawn = "" if len(samples) == subject.n else f" of {subject.n:,}"
    plot.caption = (
        f"The mean {answer} when {len(samples):,}{drawn} held-out samples have this value in one "
        f"column and keep their own in all others{'; bars show the middle half of them' if has_bars else ''}. It shows "
        f"what the model does, not cause and effect, and includes combinations of values that the data may not have."
    )
    return plot


def _outputs(subject: Subject, found: list[Dependence]) -> tuple[list[int], str]:
    """What is shown, and its name: of two classes the rarer, of more those that change most, of values the first."""
    if not subject.classifies:
        return [0], "predicted value" if subject.y.shape[1] == 1 else "predicted value of the first output"
    n_classes = found[0].answers.shape[2]
    moves = np.max([np.ptp(each.mean, axis=0) for each in found], axis=0)
    outputs = sorted(np.argsort(-moves, kind="stable")[:MOST_CLASSES].tolist())
    if n_classes <= 2:
        k = rarer(subject) if len(subject.labels) == 2 else n_classes - 1
        return [k], f"probability of “{subject.labels[k]}”"
    some = f" ({len(outputs)} of {n_classes}, which change most)" if len(outputs) < n_classes else ""
    return outputs, f"probability of each class{some}"


def _traces(subject: Subject, each: Dependence, outputs: list[int], has_bars: bool) -> list[dict[str, Any]]:
    """The mean for each output; of one output also the middle half of the samples."""
    hover = f"%{{text}}: %{{y:{'.1%' if subject.classifies else '.4g'}}}<extra>%{{fullData.name}}</extra>"
    texts = [number(value) for value in each.values] if each.names is None else [label(name) for name in each.names]
    found = []
    for k in outputs:
        color, mean = BLUE if len(outputs) == 1 else class_style(k)["color"], each.mean[:, k]
        name = label(subject.labels[k]) if subject.classifies else "mean"
        trace = scatter("lines+markers", each.values, mean, text=texts, meta=k, name=name, hovertemplate=hover)
        trace |= {"line": {"color": color, "dash": "dot" if each.names else "solid"}, "marker": {"size": 6}}
        if has_bars:
            trace["error_y"] = bars(mean, *each.quartiles(k)) | {"color": BARS, "thickness": 4, "width": 0}
        found.append(trace)
    return found
