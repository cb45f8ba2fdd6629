"""How good the answers are. Of classes: the confusion matrix, confidence against accuracy, and ROC curves; of values:
how far predicted ones lie from observed ones, and the samples that lie farthest.
"""

from typing import Any

import numpy as np
from scipy.stats import binomtest, median_abs_deviation
from sklearn import metrics

from fracdnn.report import plots
from fracdnn.report.figures import BLUE, GREY, VERMILION
from fracdnn.report.plots import OUTLINE, Plot, axis, class_style, label, numbers, padded, scatter
from fracdnn.report.subject import SHOWN, Subject
from fracdnn.report.texts import number, share
from fracdnn.tables.words import count

# A matrix of more classes than this has no room for its counts; they are shown on hovering.
MOST_COUNTED = 30
# Classes that are listed, and classes that one of them is confused with.
MOST_LISTED, MOST_OTHERS = 20, 3
MOST_CURVES, MOST_PLACES = 8, 300
# Colors of a matrix's cells, which let the page through: counts have contrast to them in light and dark.
CELLS = [[0, "rgba(31,106,165,0.06)"], [1, "rgba(31,106,165,0.7)"]]
_SHARES = {"range": [0, 1.02], "tickformat": ".0%"}
# A residual is an outlier this many robust deviations from the median (Iglewicz and Hoaglin 1993); the number listed.
FAR, MOST_OUTLIERS = 3.5, 6


def confusion_plot(subject: Subject) -> Plot:
    """Counts of true against predicted class; the color is the share of the row."""
    names = [label(name, 18) for name in subject.labels]
    size, counts = len(names), confusions(subject)
    shares, is_counted = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), size <= MOST_COUNTED
    hover = "true %{y}<br>predicted %{x}<br>%{customdata} samples, %{z:.1%}<extra></extra>"
    heat = {"type": "heatmap", "z": numbers(shares, 4), "customdata": counts.tolist(), "hovertemplate": hover}
    heat |= {"colorscale": CELLS, "showscale": False, "zmin": 0, "zmax": 1, "xgap": 1, "ygap": 1}
    down, across = np.indices(counts.shape).reshape(2, -1).tolist()
    inside = ["" if size > 8 and not count else f"{count:,}" for count in counts.ravel()]
    font = {"size": 14 if size <= 8 else 9}
    # The counts are a trace of their own, which has the color of the page's text.
    texts = scatter("text", across, down, text=inside, textfont=font, hoverinfo="skip", visible=is_counted)
    ticks = {"tickvals": list(range(size)), "ticktext": names, "showgrid": False, "range": [-0.5, size - 0.5]}
    ticks |= {"tickfont": {"size": 12 if size <= 12 else 10}} if is_counted else {"nticks": 20}
    axes = {"xaxis": axis("predicted class", **ticks), "showlegend": False}
    axes["yaxis"] = axis("true class", **ticks) | {"range": [size - 0.5, -0.5]}
    caption = (
        f"Rows are true classes and columns predicted ones; the stronger the color, the larger its share of the row. "
        f"{int(np.trace(counts)):,} of {subject.n:,} samples lie on the diagonal."
        f"{'' if is_counted else ' Point at a cell for its count.'} Recall is the share of a class that is predicted "
        f"correctly, precision the share of its predictions that are correct."
    )
    if size > MOST_LISTED:
        caption += f" Listed are the {MOST_LISTED} classes with the most missed samples."
    table = _class_table(subject, counts)
    return Plot("confusion", "Confusion matrix", caption, [heat, texts], axes, tall=size > 8, table=table)


def confusions(subject: Subject) -> np.ndarray:
    counts = np.zeros((len(subject.labels),) * 2, dtype=int)
    np.add.at(counts, (subject.codes, subject.places(subject.predicted)), 1)
    return counts


def _class_table(subject: Subject, counts: np.ndarray) -> list[list[str]]:
    """Each class and what it is confused with most; of many classes those with the most misses."""
    hits, true, predicted = counts.diagonal(), counts.sum(1), counts.sum(0)
    rows = [["class", "rows", "precision", "recall", "confused with"]]
    for k in np.sort(np.argsort(hits - true, kind="stable")[:MOST_LISTED]):
        others = [j for j in np.argsort(-counts[k], kind="stable") if j != k and counts[k, j]]
        taken = [f"{subject.labels[j]} ({counts[k, j]:,})" for j in others[:MOST_OTHERS]]
        taken += [f"{len(others) - MOST_OTHERS} more"] if len(others) > MOST_OTHERS else []
        shares = [number(hits[k] / n[k], 3) if n[k] else "–" for n in (predicted, true)]
        rows.append([str(subject.labels[k]), f"{true[k]:,}", *shares, ", ".join(taken) or "–"])
    return rows


def reliability_plot(subject: Subject) -> Plot:
    """How often predictions of some confidence are right, a dot for each bin that holds any, by size."""
    found, kept = subject.reliability, subject.reliability.counts > 0
    counts, right = found.counts[kept].astype(int), found.hits[kept].astype(int)
    shares = right / counts
    intervals = [binomtest(*each).proportion_ci(method="wilson") for each in zip(right, counts, strict=True)]
    low, high = np.transpose(intervals)
    bars = {"type": "data", "symmetric": False, "color": GREY, "thickness": 1.5, "width": 4}
    bars |= {"array": numbers(high - shares), "arrayminus": numbers(shares - low)}
    size = 10 + 34 * np.sqrt(counts / counts.sum())
    dots = scatter(
        "markers",
        found.confidence[kept] / counts,
        shares,
        customdata=counts.tolist(),
        error_y=bars,
        marker={"color": BLUE, "size": numbers(size), "opacity": 0.8, "line": OUTLINE},
        cliponaxis=False,
        hovertemplate="confidence %{x:.1%}<br>accuracy %{y:.1%}<br>%{customdata} samples<extra></extra>",
    )
    caption = (
        "Predictions are grouped into ten bins by the probability of the predicted class; larger dots hold more. On "
        "the dashed line, the model is right as often as it says; below the line it is overconfident, above it "
        "underconfident. Bars are 95% intervals."
    )
    axes = {"xaxis": axis("confidence", **_SHARES), "yaxis": axis("accuracy", **_SHARES), "showlegend": False}
    data = [plots.dashed([0, 1], [0, 1]), dots]
    return Plot("reliability", "Confidence and accuracy", caption, data, axes)


def areas_under_roc(subject: Subject) -> dict[int, float]:
    """Of each class that the training knows and that some but not all held-out samples have; of two the rarer alone."""
    known = range(len(subject.estimator.classes_))
    present = [k for k in known if 0 < (subject.codes == k).sum() < subject.n]
    if len(known) == len(subject.labels) == 2 and present:
        present = [rarer(subject)]
    return {k: float(metrics.roc_auc_score(subject.codes == k, subject.probabilities[:, k])) for k in present}


def rarer(subject: Subject) -> int:
    """Of two classes the one of which fewer held-out samples are, the second where they are as many."""
    first, second = np.bincount(subject.codes, minlength=2)
    return 0 if first < second else 1


def roc_plot(subject: Subject) -> Plot:
    """The curve of each class, or a note where there is nothing to see."""
    plot, areas = Plot("roc", "ROC curve"), areas_under_roc(subject)
    if not areas:
        plot.note = "There is nothing to rank: the held-out samples have fewer than two classes of the training."
        return plot
    shown = sorted(sorted(areas, key=areas.__getitem__)[:MOST_CURVES])
    few = f" These are the {len(shown)} classes of least area among {len(areas)}." if len(shown) < len(areas) else ""
    plot.caption = (
        f"Recall against false positive rate of a class against all others, for every threshold of its probability. "
        f"The number after a name is the area under its curve: 1 is perfect, the dashed line is chance.{few}"
    )
    plot.layout = {"xaxis": axis("false positive rate", **_SHARES), "yaxis": axis("recall", **_SHARES)}
    plot.layout["showlegend"] = True
    plot.data = [plots.dashed([0, 1], [0, 1], showlegend=False)]
    hover = "false positive rate %{x:.1%}<br>recall %{y:.1%}<extra>%{fullData.name}</extra>"
    for k in shown:
        x, y, _ = metrics.roc_curve(subject.codes == k, subject.probabilities[:, k])
        kept, line = plots.picked(len(x), MOST_PLACES), {"color": class_style(k)["color"], "width": 2}
        name = f"{label(subject.labels[k], 16)} {number(areas[k], 3)}"
        plot.data.append(scatter("lines", x[kept], y[kept], 4, name=name, meta=k, line=line, hovertemplate=hover))
    return plot


def prediction_plot(subject: Subject) -> Plot:
    """Predicted over observed values, one color an output, and the diagonal; outliers stand out and are listed."""
    y, left, far = subject.y, subject.residuals, outliers(subject)
    shown, both = subject.shown(SHOWN // y.shape[1]), np.stack([y, subject.predicted])
    ends = padded(np.array([plots.usual_ends(each) for each in both]))
    hover = "observed %{x:.4g}<br>predicted %{y:.4g}<extra>row %{text}</extra>"
    rows, data = [label(subject.row_name(i)) for i in shown], [plots.dashed(ends, ends, name="equal")]
    for k in range(y.shape[1]):
        marker: dict[str, Any] = {**class_style(k), "size": 6, "opacity": 0.75, "line": OUTLINE}
        if far[shown, k].any():
            marker["color"] = np.where(far[shown, k], VERMILION, marker["color"]).tolist()
        name = f"output {k + 1}" if y.shape[1] > 1 else "sample"
        data.append(scatter("markers", *both[:, shown, k], name=name, marker=marker, text=rows, hovertemplate=hover))
    half, most = np.quantile(np.abs(left), [0.5, 0.9])
    told, n = f"No residual is more than {FAR} robust deviations from the median.", int(far.sum())
    if n:
        it, make = ("it", "makes") if n == 1 else ("them", "make")
        told = (
            f"{count(n, 'outlier')} ({share(n / far.size)}), more than {FAR} robust deviations from the median, {make} "
            f"up {share(outlier_weight(subject))} of the squared error; without {it} the root mean square error is "
            f"{number(float(np.sqrt((left[~far] ** 2).mean())), 3)}."
        )
    hidden = int(((both < ends[0]) | (both > ends[1])).any(axis=0).sum())
    is_hidden = f" {count(hidden, 'dot')} far from the others {'is' if hidden == 1 else 'are'} outside the plot."
    caption = (
        f"Each dot is a held-out sample; on the dashed line a prediction is exact. Half of the predictions are off by "
        f"less than {number(half, 3)}, nine in ten by less than {number(most, 3)}. {told}{is_hidden if hidden else ''}"
        f"{plots.shown_note(subject, shown)}"
    )
    across, up = (axis(title, range=ends) for title in ("observed", "predicted"))
    axes = {"xaxis": across, "yaxis": up, "showlegend": y.shape[1] > 1}
    return Plot("prediction", "Observed and predicted", caption, data, axes, table=_listed(subject, far))


def deviations(left: np.ndarray) -> np.ndarray:
    """How many robust deviations each residual [n, n_outputs] lies from the median of its output; 0 without spread."""
    scale = median_abs_deviation(left, axis=0, scale="normal")
    scale = np.where(scale > 0, scale, left.std(axis=0))
    return np.abs(left - np.median(left, axis=0)) / np.where(scale > 0, scale, np.inf)


def outliers(subject: Subject) -> np.ndarray:
    return deviations(subject.residuals) > FAR


def outlier_weight(subject: Subject) -> float:
    squares = subject.residuals**2
    return float(squares[outliers(subject)].sum() / (squares.sum() or 1.0))


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
