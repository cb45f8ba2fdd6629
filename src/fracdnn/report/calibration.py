"""Whether a classifier is right as often as it says."""

import numpy as np

from fracdnn.report.figures import BLUE, GREY
from fracdnn.report.intervals import share_interval
from fracdnn.report.plots import OUTLINE, Plot, axis, numbers
from fracdnn.report.subject import Subject
from fracdnn.report.texts import count, share

# Of fewer samples, each bin would hold a handful.
LEAST_SAMPLES = 50


def reliability_plot(subject: Subject) -> Plot:
    """How often predictions of some confidence are right, a dot for each bin that holds any, by size."""
    found = subject.reliability
    if subject.n < LEAST_SAMPLES:
        sure, hits = found.confidence.sum() / subject.n, found.hits.sum() / subject.n
        note = (
            f"{count(subject.n, 'sample')} are too few for a curve. On average the predicted class has a probability "
            f"of {share(sure)}, and {share(hits)} of the predictions are right."
        )
        return Plot("reliability", "Confidence and accuracy", "", note=note)
    kept = found.counts > 0
    counts, confidence, right = (each[kept] for each in (found.counts, found.confidence, found.hits))
    size = 10 + 34 * np.sqrt(counts / counts.sum())
    line = {"color": GREY, "dash": "dash", "width": 1.5}
    diagonal = {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [0, 1], "line": line, "hoverinfo": "skip"}
    low, high = share_interval(right, counts)
    bars = {"array": numbers(high - right / counts), "arrayminus": numbers(right / counts - low)}
    dots = {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(confidence / counts),
        "y": numbers(right / counts),
        "customdata": counts.astype(int).tolist(),
        "error_y": {"type": "data", "symmetric": False, **bars, "color": GREY, "thickness": 1.5, "width": 4},
        "marker": {"color": BLUE, "size": numbers(size), "opacity": 0.8, "line": OUTLINE},
        "cliponaxis": False,
        "hovertemplate": "confidence %{x:.1%}<br>right %{y:.1%}<br>%{customdata} samples<extra></extra>",
    }
    ends = {"range": [0, 1.02], "tickformat": ".0%"}
    caption = (
        "Predictions in bins of a tenth by the probability of the predicted class, dots as large as they are many: on "
        "the dashed line a model is right as often as it says, below it too sure, above it too cautious. Bars are 95% "
        "intervals of the share."
    )
    axes = {"xaxis": axis("confidence", **ends), "yaxis": axis("share that is right", **ends), "showlegend": False}
    return Plot("reliability", "Confidence and accuracy", caption, [diagonal, dots], axes)
