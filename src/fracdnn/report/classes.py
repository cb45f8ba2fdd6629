"""How well classes are separated: the confusion matrix, confidence against accuracy, ROC and precision–recall."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from fracdnn.columns.words import count
from fracdnn.report import plots
from fracdnn.report.figures import BLUE, GREY
from fracdnn.report.plots import OUTLINE, Plot, axis, class_style, label, numbers, scatter
from fracdnn.report.subject import Subject
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
        areas = roc_auc_score(hits, probability), average_precision_score(hits, probability)
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
    caption = (
        f"Recall against false positive rate {which}, for every threshold of its probability. The number after a name "
        f"is the area under its curve: 1 is perfect, the dashed line is chance."
    )
    hover = "false positive rate %{x:.1%}<br>recall %{y:.1%}"
    curves = [_curve(subject, each, each.area, roc_curve(each.hits, each.probability)[:2], hover) for each in shown]
    roc = Plot("roc", "ROC curve", caption, [plots.dashed([0, 1], [0, 1], showlegend=False), *curves])
    roc.layout = _layout("false positive rate", "recall", showlegend=True)
    caption = (
        f"Precision against recall {which}, for every threshold of its probability. The number after a name is its "
        f"average precision.{chance}"
    )
    lines = [plots.dashed([0, 1], [rate, rate], showlegend=False)] if chance else []
    for each in shown:
        precision, recall, _ = precision_recall_curve(each.hits, each.probability)
        hover = "recall %{x:.1%}<br>precision %{y:.1%}"
        lines.append(_curve(subject, each, each.precision, (recall, precision), hover))
    layout = _layout("recall", "precision", showlegend=True)
    return [roc, Plot("precision", "Precision–recall curve", caption, lines, layout)]


def _curve(subject: Subject, each: Ranked, area: float, places: Any, hover: str) -> dict[str, Any]:
    x, y = places
    kept, line = plots.picked(len(x), MOST_PLACES), {"color": class_style(each.k)["color"], "width": 2}
    name, hover = f"{label(subject.labels[each.k], 16)} {number(area, 3)}", f"{hover}<extra>%{{fullData.name}}</extra>"
    return scatter("lines", x[kept], y[kept], 4, name=name, meta=each.k, line=line, hovertemplate=hover)
