"""What the model answers as one column changes and all others stay as they are (Friedman 2001)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fracdnn.report.figures import BLUE
from fracdnn.report.importance import Importances
from fracdnn.report.plots import Plot, axis, class_key, class_style, label, numbers, padded
from fracdnn.report.ranking import rarer
from fracdnn.report.subject import Subject
from fracdnn.report.texts import number

# Columns, values of each, samples, and classes that are shown.
MOST_COLUMNS, MOST_VALUES, MOST_SAMPLES, MOST_CLASSES = 6, 12, 200, 5
# Bands are left out where they are so much higher than the means move.
FLATTEST = 0.3
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


def dependence(subject: Subject, column: str, samples: np.ndarray) -> Dependence:
    """The answers for the samples with each of the values in place of their own."""
    places, grid, names = _grid(subject, column)
    X = np.repeat(subject.X[samples][None], len(grid), axis=0)
    X[:, :, places] = grid[:, None]
    answers = subject.outputs(X.reshape(-1, X.shape[2])).reshape(len(grid), len(samples), -1)
    return Dependence(column, grid[:, 0] if names is None else np.arange(len(grid)), names, answers)


def dependence_plot(subject: Subject, importances: Importances) -> Plot:
    plot = Plot("dependence", "How the answer depends on the most important columns", "")
    best = [list(subject.columns)[k] for k in importances.best(MOST_COLUMNS)] if not importances.why_not else []
    samples = subject.shown(MOST_SAMPLES)
    found = [dependence(subject, column, samples) for column in best if _varies(subject, column)]
    if not found:
        plot.note = "No column is clearly important, so that there is none to vary."
        return plot
    outputs = _outputs(subject, found)
    has_bands = len(outputs) == 1 and _leave_room(found, outputs[0])
    ends = padded(np.concatenate([_heights(each, outputs, has_bands) for each in found]))
    for k, each in enumerate(found):
        plot.parts.append(_part(k, each, _traces(subject, each, outputs, has_bands), subject.classifies, ends))
    plot.key = [class_key(subject.labels)[k] for k in outputs] if len(outputs) > 1 else None
    plot.caption = _caption(subject, len(samples), outputs, has_bands)
    return plot


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


def _varies(subject: Subject, column: str) -> bool:
    return len(_grid(subject, column)[1]) > 1


def _outputs(subject: Subject, found: list[Dependence]) -> list[int]:
    """Which outputs are shown: of two classes the rarer, of more those that change most, of values the first."""
    if not subject.classifies:
        return [0]
    n_classes = found[0].answers.shape[2]
    if n_classes == 2:
        return [rarer(subject)] if len(subject.labels) == 2 else [1]
    moves = np.max([np.ptp(each.mean, axis=0) for each in found], axis=0)
    return sorted(np.argsort(-moves, kind="stable")[:MOST_CLASSES].tolist())


def _quartiles(each: Dependence, output: int) -> np.ndarray:
    """Of the samples, [2, values]."""
    return np.quantile(each.answers[:, :, output], [0.25, 0.75], axis=1)


def _leave_room(found: list[Dependence], output: int) -> bool:
    """Whether bands between quartiles would not flatten the means."""
    means = np.concatenate([each.mean[:, output] for each in found])
    bands = np.concatenate([_quartiles(each, output).ravel() for each in found])
    return bool(np.ptp(means) >= FLATTEST * np.ptp(bands))


def _heights(each: Dependence, outputs: list[int], has_bands: bool) -> np.ndarray:
    """What the axis has to reach."""
    means = each.mean[:, outputs].ravel()
    return np.append(means, _quartiles(each, outputs[0])) if has_bands else means


def _traces(subject: Subject, each: Dependence, outputs: list[int], has_bands: bool) -> list[dict[str, Any]]:
    """The mean for each output; of one output also the middle half of the samples."""
    x, alone = each.values.tolist(), len(outputs) == 1
    hover = "%{text}: %{y:.1%}" if subject.classifies else "%{text}: %{y:.4g}"
    texts = [label(name) for name in each.names] if each.names is not None else [number(value) for value in x]
    found = []
    quartiles = _quartiles(each, outputs[0])
    if has_bands and each.names is None:
        low, high = quartiles
        edge = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "x": numbers(x)}
        found = [
            {**edge, "y": numbers(low)},
            {**edge, "y": numbers(high), "fill": "tonexty", "fillcolor": "rgba(0,114,178,0.18)"},
        ]
    for k in outputs:
        colour = BLUE if alone else class_style(k)["colour"]
        mean = {"type": "scatter", "x": numbers(x), "y": numbers(each.mean[:, k]), "text": texts, "meta": k}
        style = {"mode": "lines+markers", "line": {"color": colour}, "marker": {"color": colour, "size": 6}}
        name = label(subject.labels[k]) if subject.classifies else "mean"
        found.append({**mean, **style, "name": name, "hovertemplate": f"{hover}<extra>%{{fullData.name}}</extra>"})
        if each.names is not None:
            found[-1]["line"] = {"color": colour, "width": 0.7, "dash": "dot"}
        if each.names is not None and has_bands:
            below, above = np.maximum(each.mean[:, k] - quartiles[0], 0), np.maximum(quartiles[1] - each.mean[:, k], 0)
            ends = {"array": numbers(above), "arrayminus": numbers(below), "symmetric": False, "type": "data"}
            found[-1]["error_y"] = {**ends, "color": "rgba(0,114,178,0.45)", "thickness": 4, "width": 0}
    return found


def _part(k: int, each: Dependence, traces: list[dict[str, Any]], classifies: bool, ends: tuple[float, float]) -> Plot:
    across = axis(label(each.column))
    if each.names is not None:
        across |= {"tickvals": each.values.tolist(), "ticktext": [label(name, 12) for name in each.names]}
        across["range"] = [-0.5, len(each.names) - 0.5]
    up = axis("", range=ends, **({"tickformat": ".0%"} if classifies else {}))
    return Plot(f"dependence-{k}", each.column, "", traces, {"xaxis": across, "yaxis": up, "showlegend": False})


def _caption(subject: Subject, n_samples: int, outputs: list[int], has_bands: bool) -> str:
    drawn = "" if n_samples == subject.n else f" of {subject.n:,}"
    if not subject.classifies:
        what = "predicted value" if subject.y.shape[1] == 1 else "predicted value of the first output"
    elif len(outputs) == 1:
        what = f"probability of “{subject.labels[outputs[0]]}”"
    else:
        what = "probability of each class"
        n_classes = len(subject.estimator.classes_)
        what += f" ({len(outputs)} of {n_classes}, which change most)" if len(outputs) < n_classes else ""
    band = "; in the band (for categories, the bar) lies the middle half of them" if has_bands else ""
    return (
        f"The mean {what} when {n_samples:,}{drawn} held-out samples have this value in one column and keep their own "
        f"in all others{band}. It is what the model does, not what causes what; values that do not go together in the "
        f"data may be among them."
    )
