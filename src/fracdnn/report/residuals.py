"""How far predicted values lie from observed ones, and the samples that lie farthest."""

from typing import Any

import numpy as np

from fracdnn.report.figures import GREY, VERMILION
from fracdnn.report.plots import (
    OUTLINE,
    Plot,
    Table,
    axis,
    beyond,
    class_style,
    numbers,
    padded,
    shown_note,
    usual_ends,
)
from fracdnn.report.subject import Subject
from fracdnn.report.texts import count, number, share

# A residual is an outlier this many robust deviations from the median (Iglewicz and Hoaglin 1993), and so many are
# listed. For a normal distribution the median distance from the median is 1/1.4826 deviations.
FAR, MOST_LISTED, _NORMAL = 3.5, 6, 1.4826


def prediction_plot(subject: Subject) -> Plot:
    """Observed against predicted values, one colour an output, and the diagonal."""
    shown = subject.shown()
    y, predicted = subject.y[shown], subject.predicted[shown]
    ends = _ends(subject.y, subject.predicted)
    both = padded(np.array(ends))
    line = {"color": GREY, "dash": "dash", "width": 1.5}
    diagonal = {"type": "scatter", "mode": "lines", "x": both, "y": both, "line": line, "hoverinfo": "skip"}
    hover = "observed %{x:.4g}<br>predicted %{y:.4g}"
    data = [{**diagonal, "name": "equal"}, *_dots(y, predicted, hover, np.zeros_like(y, dtype=bool))]
    axes = {"xaxis": axis("observed", range=both), "yaxis": axis("predicted", range=both)}
    hidden = beyond(np.where(_inside(subject.predicted, ends), subject.y, np.inf), ends)
    caption = (
        f"Each dot is a held-out sample; on the dashed line a prediction is exact. {_out_of_sight(hidden)}"
        f"{shown_note(subject, shown)}"
    )
    return Plot("prediction", "Observed and predicted", caption, data, {**axes, "showlegend": y.shape[1] > 1})


def residual_plot(subject: Subject) -> Plot:
    """Observed less predicted values over the predicted ones; outliers stand out and are listed."""
    shown = subject.shown()
    left, far = subject.y - subject.predicted, outliers(subject)
    ends, across = _ends(left), _ends(subject.predicted)
    line = {"color": GREY, "dash": "dash", "width": 1.5}
    zero: dict[str, Any] = {"type": "scatter", "mode": "lines", "x": padded(np.array(across)), "y": [0, 0]}
    zero |= {"line": line, "hoverinfo": "skip", "name": "exact", "showlegend": False}
    hover = "predicted %{x:.4g}<br>observed less predicted %{y:.4g}"
    data = [zero, *_dots(subject.predicted[shown], left[shown], hover, far[shown])]
    axes = {
        "xaxis": axis("predicted", range=padded(np.array(across))),
        "yaxis": axis("observed less predicted", range=padded(np.array(ends))),
        "showlegend": left.shape[1] > 1,
    }
    hidden = beyond(np.where(_inside(subject.predicted, across), left, np.inf), ends)
    caption = f"{_spread(left)} {_outliers_told(left, far)} {_out_of_sight(hidden)}{shown_note(subject, shown)}"
    return Plot("residuals", "Residuals and outliers", caption, data, axes, table=_listed(subject, far))


def deviations(left: np.ndarray) -> np.ndarray:
    """How many robust deviations each residual [n, n_outputs] lies from the median of its output; 0 without spread."""
    middle = np.median(left, axis=0)
    scale = _NORMAL * np.median(np.abs(left - middle), axis=0)
    scale = np.where(scale > 0, scale, left.std(axis=0))
    return np.abs(left - middle) / np.where(scale > 0, scale, np.inf)


def outliers(subject: Subject) -> np.ndarray:
    """Which residuals [n, n_outputs] are far from the others."""
    return deviations(subject.y - subject.predicted) > FAR


def _dots(x: np.ndarray, y: np.ndarray, hover: str, far: np.ndarray) -> list[dict[str, Any]]:
    """A trace for each output; where some are `far`, each in its colour."""
    found = []
    for k in range(y.shape[1]):
        style = class_style(k)
        colours = np.where(far[:, k], VERMILION, style["colour"]).tolist() if far.any() else style["colour"]
        marker = {"color": colours, "symbol": style["symbol"], "size": 6, "opacity": 0.75, "line": OUTLINE}
        places = {"x": numbers(x[:, k]), "y": numbers(y[:, k])}
        name = f"output {k + 1}" if y.shape[1] > 1 else "sample"
        found.append(
            {"type": "scatter", "mode": "markers", "name": name, "marker": marker, "hovertemplate": hover, **places}
        )
    return found


def _ends(*values: np.ndarray) -> tuple[float, float]:
    ends = [usual_ends(each.ravel()) for each in values]
    return min(low for low, _ in ends), max(high for _, high in ends)


def _inside(values: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
    return (values >= ends[0]) & (values <= ends[1])


def _out_of_sight(n: int) -> str:
    return f"{count(n, 'dot')} far from the others {'lies' if n == 1 else 'lie'} outside the picture. " if n else ""


def _spread(left: np.ndarray) -> str:
    half, most = np.quantile(np.abs(left), [0.5, 0.9])
    return (
        f"Half of the predictions are off by less than {number(half, 3)}, nine in ten by less than {number(most, 3)}."
    )


def _outliers_told(left: np.ndarray, far: np.ndarray) -> str:
    n = int(far.sum())
    if not n:
        return f"None lies more than {FAR} robust deviations from the median."
    it = "it" if n == 1 else "them"
    weight = float((left[far] ** 2).sum() / (left**2).sum())
    without = float(np.sqrt((left[~far] ** 2).mean()))
    return (
        f"{count(n, 'outlier')} ({share(n / far.size)}), more than {FAR} robust deviations from the median, "
        f"{'makes' if n == 1 else 'make'} up {share(weight)} of the squared error; without {it} the root "
        f"mean square error is {number(without, 3)}."
    )


def _listed(subject: Subject, far: np.ndarray) -> Table | None:
    """The farthest samples, by their number from 1 on in the order given."""
    if not far.any():
        return None
    left = subject.y - subject.predicted
    distance = np.where(far, deviations(left), 0.0)
    several = left.shape[1] > 1
    rows = []
    for place in np.argsort(-distance, axis=None, kind="stable")[: min(MOST_LISTED, int(far.sum()))]:
        i, k = np.unravel_index(place, left.shape)
        cells = [number(float(each[i, k])) for each in (subject.y, subject.predicted, left)]
        rows.append([f"{i + 1}", *([f"output {k + 1}"] if several else []), *cells, number(float(distance[i, k]), 3)])
    headings = ["sample", *(["output"] if several else []), "observed", "predicted", "difference", "deviations"]
    return Table(headings, rows)
