"""Whether samples of a class get a higher probability of it than others: ROC and precision–recall curves."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from fracdnn.report.figures import GREY
from fracdnn.report.plots import Plot, axis, class_style, label, numbers, picked
from fracdnn.report.subject import Subject
from fracdnn.report.texts import number

MOST_CURVES, MOST_PLACES = 8, 300
# Curves of this area cling to the frame: there is nothing to see.
PERFECT = 0.995


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


def mean_area(subject: Subject) -> float | None:
    """The mean over classes of the area under ROC of one against the rest; None where no class has one."""
    areas = [each.area for each in ranked(subject)]
    return float(np.mean(areas)) if areas else None


def ranking_plots(subject: Subject) -> list[Plot]:
    """Both curves of each class, or a note where there is nothing to see."""
    roc = Plot("roc", "ROC: found against false alarms", "")
    found = ranked(subject)
    if not found:
        roc.note = "Without held-out samples of two classes that the training knows there is nothing to rank."
    elif min(each.area for each in found) >= PERFECT:
        roc.note = _nearly_perfect(subject, min(found, key=lambda each: each.area))
    if roc.note:
        return [roc]
    shown = sorted(sorted(found, key=lambda each: each.area)[:MOST_CURVES], key=lambda each: each.k)
    which = _which(subject, shown, len(found))
    return [_roc_plot(subject, shown, which), _precision_plot(subject, shown, which)]


def _nearly_perfect(subject: Subject, worst: Ranked) -> str:
    if worst.area == 1:
        return (
            "For every class, each of its samples has a higher probability of it than any other sample: the areas "
            "under the ROC and the precision–recall curves are 1."
        )
    return (
        f"The curves would cling to the frame: the least area under ROC is {number(worst.area)}, the average precision "
        f"there {number(worst.precision)}, of class “{subject.labels[worst.k]}”."
    )


def _which(subject: Subject, shown: list[Ranked], n_found: int) -> str:
    if len(shown) == 1:
        return f"of class “{subject.labels[shown[0].k]}”"
    if len(shown) < n_found:
        return f"of the {len(shown)} classes of least area among {n_found}, each against all others"
    return "of each class against all others"


def _roc_plot(subject: Subject, shown: list[Ranked], which: str) -> Plot:
    data = [_chance([0, 1])]
    for each in shown:
        false_alarms, right, _ = roc_curve(each.hits, each.probability)
        name = f"{label(subject.labels[each.k], 16)} {number(each.area, 3)}"
        data.append(_curve(each.k, name, false_alarms, right, "false alarms %{x:.1%}<br>found %{y:.1%}"))
    caption = (
        f"The share {which} that is found, against the share of false alarms among the others, as the probability "
        f"from which on it counts as found is lowered (ROC); after each name the area under its curve: 1 is perfect, "
        f"the dashed line is chance."
    )
    axes = {"xaxis": axis("false alarms", **_SHARES), "yaxis": axis("found", **_SHARES), "showlegend": True}
    return Plot("roc", "ROC: found against false alarms", caption, data, axes)


def _precision_plot(subject: Subject, shown: list[Ranked], which: str) -> Plot:
    data = []
    for each in shown:
        precision, recall, _ = precision_recall_curve(each.hits, each.probability)
        name = f"{label(subject.labels[each.k], 16)} {number(each.precision, 3)}"
        data.append(_curve(each.k, name, recall, precision, "found %{x:.1%}<br>of those told right %{y:.1%}"))
    caption = (
        f"The share of right ones among those told, against the share {which} that is found (precision and recall); "
        f"after each name its average precision."
    )
    if len(shown) == 1:
        rate = float(shown[0].hits.mean())
        caption += f" Chance alone would give {rate:.1%}, the dashed line."
        data.insert(0, _chance(numbers([rate, rate])))
    axes = {"xaxis": axis("found", **_SHARES), "yaxis": axis("right among those told", **_SHARES), "showlegend": True}
    return Plot("precision", "Precision and recall", caption, data, axes)


_SHARES = {"range": [0, 1.02], "tickformat": ".0%"}


def _chance(y: list[Any]) -> dict[str, Any]:
    """The dashed line from one side to the other that guessing would give."""
    line = {"color": GREY, "dash": "dash", "width": 1.5}
    options = {"x": [0, 1], "y": y, "line": line, "hoverinfo": "skip", "showlegend": False}
    return {"type": "scatter", "mode": "lines", **options}


def _curve(k: int, name: str, x: np.ndarray, y: np.ndarray, hover: str) -> dict[str, Any]:
    kept = picked(len(x), MOST_PLACES)
    places = {"x": numbers(x[kept], 4), "y": numbers(y[kept], 4)}
    line = {"color": class_style(k)["colour"], "width": 2}
    options = {"name": name, "meta": k, "line": line, "hovertemplate": f"{hover}<extra>%{{fullData.name}}</extra>"}
    return {"type": "scatter", "mode": "lines", **places, **options}
