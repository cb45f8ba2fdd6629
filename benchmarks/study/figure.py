"""The picture of docs/study.md: mean ranks on the report tables, with Nemenyi's critical difference."""

from typing import Any

import numpy as np

from benchmarks.study.comparisons import Comparison
from benchmarks.study.measures import critical_difference, ranks
from benchmarks.study.parts import COMPARED, KINDS, OURS
from benchmarks.study.runs import Record, model_called
from fracdnn.report.figures import BLUE, GREY, VERMILION, new_figure

PANELS = (("classes", "log_loss", "log-loss"), ("classes", "auc", "AUC"), ("numbers", "rmse", "RMSE"))


def figure(records: list[Record], half: str = "report") -> Any | None:
    """A panel a measure; None where nothing ran."""
    found = {kind: Comparison.of(records, half, kind, COMPARED[kind], by_most=True) for kind in KINDS}
    panels = [(found[kind], name, title) for kind, name, title in PANELS if found[kind]]
    if not panels:
        return None
    drawing = new_figure(4.4 * len(panels), 4.6)
    for axes, (comparison, name, title) in zip(np.ravel(drawing.subplots(1, len(panels))), panels, strict=True):
        _draw(axes, comparison, ranks(comparison.errors(name)).mean(0))
        axes.set_title(f"{title}, {len(comparison.tables)} tables")
    return drawing


def _draw(axes: Any, found: Comparison, means: np.ndarray) -> None:
    reach = critical_difference(len(found.models), len(found.tables))
    axes.axvspan(means.min(), means.min() + reach, color="0.9")
    order = np.argsort(means)
    for place, k in enumerate(order):
        name = found.models[k]
        color = VERMILION if name == OURS else BLUE if model_called(name).is_neural else GREY
        axes.plot([1, means[k]], [place, place], color=color, linewidth=2)
        axes.plot(means[k], place, "o", color=color, markersize=7)
    axes.set_yticks(range(len(order)), [found.models[k] for k in order], fontsize=11)
    axes.tick_params(axis="x", labelsize=10)
    axes.invert_yaxis()
    axes.set_xticks(range(1, len(order) + 1, 2))
    axes.set(xlim=(1, len(order)), xlabel="mean rank (1 is best)")
