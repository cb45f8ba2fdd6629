"""How far predicted values lie from observed ones, and the samples that lie farthest."""

from typing import Any

import numpy as np

from fracdnn.columns.words import count
from fracdnn.report import plots
from fracdnn.report.figures import VERMILION
from fracdnn.report.plots import OUTLINE, Plot, axis, class_style, label, padded, scatter, shown_note
from fracdnn.report.subject import SHOWN, Subject
from fracdnn.report.texts import number, share

# A residual is an outlier this many robust deviations from the median (Iglewicz and Hoaglin 1993), and so many are
# listed. For a normal distribution the median distance from the median is 1/1.4826 deviations.
FAR, MOST_LISTED, _NORMAL = 3.5, 6, 1.4826


def prediction_plot(subject: Subject) -> Plot:
    """Observed against predicted values, one color an output, and the diagonal."""
    ends = _ends(subject.y, subject.predicted)
    hover, diagonal = "observed %{x:.4g}<br>predicted %{y:.4g}", plots.dashed(padded(ends), padded(ends), name="equal")
    dots, seen = _dots(subject, subject.y, subject.predicted, (ends, ends), hover)
    caption = f"Each dot is a held-out sample; on the dashed line a prediction is exact. {seen}"
    axes = {"xaxis": axis("observed", range=padded(ends)), "yaxis": axis("predicted", range=padded(ends))}
    return Plot(
        "prediction", "Observed and predicted", caption, [diagonal, *dots], {**axes, "showlegend": len(dots) > 1}
    )


def residual_plot(subject: Subject) -> Plot:
    """Residuals (observed − predicted) over the predicted values; outliers stand out and are listed."""
    left, far = subject.residuals, outliers(subject)
    across, ends = _ends(subject.predicted), _ends(left)
    hover = "predicted %{x:.4g}<br>residual %{y:.4g}<extra>row %{text}</extra>"
    dots, seen = _dots(subject, subject.predicted, left, (across, ends), hover, far)
    half, most = np.quantile(np.abs(left), [0.5, 0.9])
    told, n = f"No residual is more than {FAR} robust deviations from the median.", int(far.sum())
    if n:
        it, make = ("it", "makes") if n == 1 else ("them", "make")
        told = (
            f"{count(n, 'outlier')} ({share(n / far.size)}), more than {FAR} robust deviations from the median, {make} "
            f"up {share(outlier_weight(subject))} of the squared error; without {it} the root mean square error is "
            f"{number(float(np.sqrt((left[~far] ** 2).mean())), 3)}."
        )
    caption = (
        f"Half of the predictions are off by less than {number(half, 3)}, nine in ten by less than {number(most, 3)}. "
        f"{told} {seen}"
    )
    axes = {
        "xaxis": axis("predicted", range=padded(across)),
        "yaxis": axis("residual (observed − predicted)", range=padded(ends)),
        "showlegend": len(dots) > 1,
    }
    data = [plots.dashed(padded(across), [0, 0], name="exact", showlegend=False), *dots]
    return Plot("residuals", "Residuals and outliers", caption, data, axes, table=_listed(subject, far))


def deviations(left: np.ndarray) -> np.ndarray:
    """How many robust deviations each residual [n, n_outputs] lies from the median of its output; 0 without spread."""
    middle = np.median(left, axis=0)
    scale = _NORMAL * np.median(np.abs(left - middle), axis=0)
    scale = np.where(scale > 0, scale, left.std(axis=0))
    return np.abs(left - middle) / np.where(scale > 0, scale, np.inf)


def outliers(subject: Subject) -> np.ndarray:
    """Which residuals [n, n_outputs] are far from the others."""
    return deviations(subject.residuals) > FAR


def outlier_weight(subject: Subject) -> float:
    squares = subject.residuals**2
    return float(squares[outliers(subject)].sum() / (squares.sum() or 1.0))


def _dots(
    subject: Subject, x: np.ndarray, y: np.ndarray, ends: tuple[Any, Any], hover: str, far: np.ndarray | None = None
) -> tuple[list[dict[str, Any]], str]:
    """A trace for each output, where some are `far` each in its color; and how many dots are not seen."""
    shown, found = subject.shown(SHOWN // y.shape[1]), []
    for k in range(y.shape[1]):
        style = class_style(k)
        colors = style["color"]
        if far is not None and far[shown].any():
            colors = np.where(far[shown, k], VERMILION, colors).tolist()
        marker = {"color": colors, "symbol": style["symbol"], "size": 6, "opacity": 0.75, "line": OUTLINE}
        name = f"output {k + 1}" if y.shape[1] > 1 else "sample"
        dots = scatter("markers", x[shown, k], y[shown, k], name=name, marker=marker, hovertemplate=hover)
        found.append(dots if far is None else dots | {"text": [label(subject.row_name(i)) for i in shown]})
    n = plots.n_beyond((x, ends[0]), (y, ends[1]))
    hidden = f"{count(n, 'dot')} far from the others {'is' if n == 1 else 'are'} outside the plot. " if n else ""
    return found, hidden + shown_note(subject, shown)


def _ends(*values: np.ndarray) -> np.ndarray:
    ends = [plots.usual_ends(each.ravel()) for each in values]
    return np.array([min(low for low, _ in ends), max(high for _, high in ends)])


def _listed(subject: Subject, far: np.ndarray) -> list[list[str]] | None:
    """The farthest rows, by their ids, else by their numbers from 1 in the order given."""
    if not far.any():
        return None
    left, rows = subject.residuals, []
    distance, several = np.where(far, deviations(left), 0.0), left.shape[1] > 1
    for place in np.argsort(-distance, axis=None, kind="stable")[: min(MOST_LISTED, int(far.sum()))]:
        i, k = np.unravel_index(place, left.shape)
        cells = [number(float(each[i, k])) for each in (subject.y, subject.predicted, left)]
        names = [subject.row_name(i), f"output {k + 1}"][: 1 + several]
        rows.append([*names, *cells, number(float(distance[i, k]), 3)])
    headings = ["row id" if subject.ids else "row", "output"][: 1 + several]
    return [[*headings, "observed", "predicted", "residual", "robust deviations"], *rows]
