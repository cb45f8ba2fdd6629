"""How good the answers are. Of classes: the confusion matrix, confidence against accuracy, ROC and precision–recall; of
values: how far predicted ones lie from observed ones, and the samples that lie farthest.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest
from sklearn import metrics

from fracdnn.columns.words import count
from fracdnn.report import plots
from fracdnn.report.figures import BLUE, GREY, VERMILION
from fracdnn.report.plots import OUTLINE, Plot, axis, class_style, label, numbers, padded, scatter, shown_note
from fracdnn.report.subject import SHOWN, Subject
from fracdnn.report.texts import number, share

# A matrix of more classes than this has no room for its counts; they are shown on hovering.
MOST_COUNTED = 30
# So many classes are listed, and so many that one of them is taken for.
MOST_LISTED, MOST_OTHERS = 20, 3
# Of fewer samples, each bin of confidences would hold a handful.
LEAST_SAMPLES = 50
MOST_CURVES, MOST_PLACES = 8, 300
# Curves of this area hug the frame: there is nothing to see.
PERFECT = 0.995
# Colors of a matrix's cells, and ink that has contrast to them below and from a share on.
_THEMES: dict[str, tuple[list[list[Any]], float, tuple[str, str]]] = {
    "light": ([[0, "#f3f6fa"], [0.5, "#7fb3d9"], [1, "#0a4a7c"]], 0.77, ("#000000", "#ffffff")),
    "dark": ([[0, "#1b2330"], [0.5, "#1f6aa5"], [1, "#a9d6f5"]], 0.575, ("#ffffff", "#000000")),
}
_SHARES = {"range": [0, 1.02], "tickformat": ".0%"}
# A residual is an outlier this many robust deviations from the median (Iglewicz and Hoaglin 1993), and so many are
# listed. For a normal distribution the median distance from the median is 1/1.4826 deviations.
FAR, MOST_OUTLIERS, _NORMAL = 3.5, 6, 1.4826


def confusion_plot(subject: Subject) -> Plot:
    """Counts of true against predicted class; the color is the share of the row."""
    names = [label(name, 18) for name in subject.labels]
    size, counts = len(names), confusions(subject)
    shares, is_counted = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), size <= MOST_COUNTED
    hover = "true %{y}<br>predicted %{x}<br>%{customdata} samples, %{z:.1%}<extra></extra>"
    heat = {"type": "heatmap", "z": numbers(shares, 4), "customdata": counts.tolist(), "hovertemplate": hover}
    heat |= {"colorscale": _THEMES["light"][0], "colorbar": {**plots.bar("share of true class"), "tickformat": ".0%"}}
    heat |= {"zmin": 0, "zmax": 1, "xgap": 1, "ygap": 1}
    down, across = np.indices(counts.shape).reshape(2, -1).tolist()
    inside = ["" if size > 8 and not count else f"{count:,}" for count in counts.ravel()]
    font = {"size": 14 if size <= 8 else 10}
    # The counts are a trace of their own, so that each has the ink that its cell needs.
    texts = scatter("text", across, down, text=inside, textfont=font, hoverinfo="skip", visible=is_counted)
    ticks = {"tickvals": list(range(size)), "ticktext": names, "showgrid": False, "range": [-0.5, size - 0.5]}
    ticks |= {"tickfont": {"size": 12 if size <= 12 else 10}} if is_counted else {"nticks": 20}
    axes = {"xaxis": axis("predicted class", **ticks), "showlegend": False}
    axes["yaxis"] = axis("true class", **ticks) | {"range": [size - 0.5, -0.5]}
    themes: dict[str, list[dict[str, Any]]] = {
        theme: [{"colorscale": [scale]}, {"textfont.color": [np.where(shares.ravel() < turn, *inks).tolist()]}]
        for theme, (scale, turn, inks) in _THEMES.items()
    }
    table, listed = _class_table(subject, counts)
    caption = (
        f"Rows are true classes and columns predicted ones: {int(np.trace(counts)):,} of {subject.n:,} samples lie on "
        f"the diagonal.{'' if is_counted else ' Point at a cell for its count.'}{listed}"
    )
    narrow: list[dict[str, Any]] = [{"showscale": False}, {"textfont": {"size": 12 if size <= 8 else 8}}]
    data, tall = [heat, texts], size > 8
    return Plot("confusion", "Confusion matrix", caption, data, axes, themes, narrow=narrow, tall=tall, table=table)


def confusions(subject: Subject) -> np.ndarray:
    counts = np.zeros((len(subject.labels),) * 2, dtype=int)
    np.add.at(counts, (subject.codes, subject.places(subject.predicted)), 1)
    return counts


def _class_table(subject: Subject, counts: np.ndarray) -> tuple[list[list[str]] | None, str]:
    """Each class with a mistake and what it is taken for most, and a sentence on it; of many those of most misses."""
    hits, true, predicted = counts.diagonal(), counts.sum(1), counts.sum(0)
    mistaken = np.flatnonzero(true + predicted - 2 * hits)
    if not len(mistaken):
        return None, " No class is confused with another."
    rows = []
    for k in np.sort(mistaken[np.argsort((hits - true)[mistaken], kind="stable")[:MOST_LISTED]]):
        others = [j for j in np.argsort(-counts[k], kind="stable") if j != k and counts[k, j]]
        taken = [f"{subject.labels[j]} ({counts[k, j]:,})" for j in others[:MOST_OTHERS]]
        taken += [f"{len(others) - MOST_OTHERS} more"] if len(others) > MOST_OTHERS else []
        shares = [number(hits[k] / n[k], 3) if n[k] else "–" for n in (predicted, true)]
        rows.append([str(subject.labels[k]), f"{true[k]:,}", *shares, ", ".join(taken) or "–"])
    words = (
        " Recall is the share of a class that is predicted correctly, precision the share of its predictions that are "
        "correct."
    )
    n_right = len(counts) - len(mistaken)
    if len(mistaken) > MOST_LISTED:
        words += f" Listed are the {MOST_LISTED} classes with the most missed samples."
    elif n_right:
        words += f" {count(n_right, 'class')} without a mistake {'is' if n_right == 1 else 'are'} not listed."
    return [["class", "rows", "precision", "recall", "confused with"], *rows], words


def reliability_plot(subject: Subject) -> Plot:
    """How often predictions of some confidence are right, a dot for each bin that holds any, by size."""
    found = subject.reliability
    plot = Plot("reliability", "Confidence and accuracy", layout=_layout("confidence", "accuracy", showlegend=False))
    if subject.n < LEAST_SAMPLES:
        sure, hits = found.confidence.sum() / subject.n, found.hits.sum() / subject.n
        plot.note = (
            f"{count(subject.n, 'sample')} are too few for a curve. On average the predicted class has a probability "
            f"of {share(sure)}, and {share(hits)} of the predictions are right."
        )
        return plot
    kept = found.counts > 0
    counts, right = found.counts[kept].astype(int), found.hits[kept].astype(int)
    shares = right / counts
    intervals = [binomtest(*each).proportion_ci(method="wilson") for each in zip(right, counts, strict=True)]
    low, high = np.transpose(intervals)
    size = 10 + 34 * np.sqrt(counts / counts.sum())
    dots = scatter(
        "markers",
        found.confidence[kept] / counts,
        shares,
        customdata=counts.tolist(),
        error_y=plots.bars(shares, low, high) | {"color": GREY, "thickness": 1.5, "width": 4},
        marker={"color": BLUE, "size": numbers(size), "opacity": 0.8, "line": OUTLINE},
        cliponaxis=False,
        hovertemplate="confidence %{x:.1%}<br>accuracy %{y:.1%}<br>%{customdata} samples<extra></extra>",
    )
    plot.caption = (
        "Predictions are grouped into ten bins by the probability of the predicted class; larger dots hold more. On "
        "the dashed line, the model is right as often as it says; below the line it is overconfident, above it "
        "underconfident. Bars are 95% intervals."
    )
    plot.data = [plots.dashed([0, 1], [0, 1]), dots]
    return plot


def _layout(across: str, up: str, *, showlegend: bool) -> dict[str, Any]:
    return {"xaxis": axis(across, **_SHARES), "yaxis": axis(up, **_SHARES), "showlegend": showlegend}


@dataclass(frozen=True)
class Ranked:
    """Class `k` of the labels: its samples `hits` [n], its probability [n], area under ROC and average precision."""

    k: int
    hits: np.ndarray
    probability: np.ndarray
    area: float
    precision: float


def ranked(subject: Subject) -> list[Ranked]:
    """Each class that the training knows and that some but not all held-out samples have; of two the rarer alone."""
    known = range(len(subject.estimator.classes_))
    present = [k for k in known if 0 < (subject.codes == k).sum() < subject.n]
    if len(known) == len(subject.labels) == 2 and present:
        present = [rarer(subject)]
    found = []
    for k in present:
        hits, probability = subject.codes == k, subject.probabilities[:, k]
        areas = metrics.roc_auc_score(hits, probability), metrics.average_precision_score(hits, probability)
        found.append(Ranked(k, hits, probability, *map(float, areas)))
    return found


def rarer(subject: Subject) -> int:
    """Of two classes the one of which fewer held-out samples are, the second where they are as many."""
    first, second = np.bincount(subject.codes, minlength=2)
    return 0 if first < second else 1


def ranking_plots(subject: Subject) -> list[Plot]:
    """ROC and precision–recall curves of each class, or a note where there is nothing to see."""
    found, note = sorted(ranked(subject), key=lambda each: each.area), ""
    if not found:
        note = "There is nothing to rank: the held-out samples have fewer than two classes of the training."
    elif found[0].area >= PERFECT:
        least = "" if found[0].area == 1 else "at least "
        note = f"The curves would follow the frame: every area under ROC is {least}{number(found[0].area)}."
    if note:
        return [Plot("roc", "ROC curve", note=note)]
    shown, which = sorted(found[:MOST_CURVES], key=lambda each: each.k), "of each class against all others"
    chance, rate = "", float(shown[0].hits.mean())
    if len(shown) == 1:
        which, chance = f"of class “{subject.labels[shown[0].k]}”", f" Chance gives {rate:.1%}, the dashed line."
    elif len(shown) < len(found):
        which = f"of the {len(shown)} classes of least area among {len(found)}, each against all others"
    over = f"{which}, for every threshold of its probability. The number after a name is"
    roc = Plot("roc", "ROC curve", layout=_layout("false positive rate", "recall", showlegend=True))
    roc.caption = (
        f"Recall against false positive rate {over} the area under its curve: 1 is perfect, the dashed line is chance."
    )
    precision = Plot("precision", "Precision–recall curve", layout=_layout("recall", "precision", showlegend=True))
    precision.caption = f"Precision against recall {over} its average precision.{chance}"
    roc.data = [plots.dashed([0, 1], [0, 1], showlegend=False)]
    precision.data = [plots.dashed([0, 1], [rate, rate], showlegend=False)] if chance else []
    for each in shown:
        along, up, _ = metrics.roc_curve(each.hits, each.probability)
        right, found, _ = metrics.precision_recall_curve(each.hits, each.probability)
        roc.data.append(_curve(subject, each, each.area, along, up, "false positive rate %{x:.1%}<br>recall %{y:.1%}"))
        precision.data.append(
            _curve(subject, each, each.precision, found, right, "recall %{x:.1%}<br>precision %{y:.1%}")
        )
    return [roc, precision]


def _curve(subject: Subject, each: Ranked, area: float, x: Any, y: Any, hover: str) -> dict[str, Any]:
    kept, line = plots.picked(len(x), MOST_PLACES), {"color": class_style(each.k)["color"], "width": 2}
    name, hover = f"{label(subject.labels[each.k], 16)} {number(area, 3)}", f"{hover}<extra>%{{fullData.name}}</extra>"
    return scatter("lines", x[kept], y[kept], 4, name=name, meta=each.k, line=line, hovertemplate=hover)


def prediction_plot(subject: Subject) -> Plot:
    """Observed against predicted values, one color an output, and the diagonal."""
    ends = _ends(subject.y, subject.predicted)
    hover, diagonal = "observed %{x:.4g}<br>predicted %{y:.4g}", plots.dashed(padded(ends), padded(ends), name="equal")
    dots, seen = _dots(subject, subject.y, subject.predicted, (ends, ends), hover)
    caption = f"Each dot is a held-out sample; on the dashed line a prediction is exact. {seen}"
    across, up = (axis(title, range=padded(ends)) for title in ("observed", "predicted"))
    axes = {"xaxis": across, "yaxis": up, "showlegend": len(dots) > 1}
    return Plot("prediction", "Observed and predicted", caption, [diagonal, *dots], axes)


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
        marker: dict[str, Any] = {**class_style(k), "size": 6, "opacity": 0.75, "line": OUTLINE}
        if far is not None and far[shown].any():
            marker["color"] = np.where(far[shown, k], VERMILION, marker["color"]).tolist()
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
    for place in np.argsort(-distance, axis=None, kind="stable")[: min(MOST_OUTLIERS, int(far.sum()))]:
        i, k = np.unravel_index(place, left.shape)
        cells = [number(float(each[i, k])) for each in (subject.y, subject.predicted, left)]
        names = [subject.row_name(i), f"output {k + 1}"][: 1 + several]
        rows.append([*names, *cells, number(float(distance[i, k]), 3)])
    headings = ["row id" if subject.ids else "row", "output"][: 1 + several]
    return [[*headings, "observed", "predicted", "residual", "robust deviations"], *rows]
