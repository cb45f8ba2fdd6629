"""What an estimator answers around the samples: on the line of one feature, or in the plane of two."""

from typing import Any

import numpy as np

from fracdnn.report.plots import (
    OUTLINE,
    Plot,
    axis,
    class_key,
    class_style,
    colour_ends,
    colours_told,
    label,
    numbers,
    padded,
    shown_note,
    usual_ends,
)
from fracdnn.report.subject import Subject

CELLS = 121
# Opacity of a region where a class barely wins, and where it is certain.
FAINT, FULL = 0.06, 0.5


def region_plot(subject: Subject) -> Plot | None:
    """None for more than two features: no plane through many says much of what lies around the samples."""
    if len(subject.features) == 1:
        return _line_plot(subject)
    if len(subject.features) > 2:
        return None
    shown = subject.shown()
    regions = _class_regions if subject.classifies else _value_regions
    return regions(subject, shown, *_plane(subject))


def _plane(subject: Subject) -> tuple[dict[str, Any], np.ndarray]:
    """The two axes, and the features at the cells' middles."""
    ranges = [padded(np.array(usual_ends(subject.X[:, k])), 0.08) for k in range(2)]
    across, up = (np.linspace(*ends, CELLS) for ends in ranges)
    titles = [label(name) for name in subject.features]
    axes = {
        "xaxis": axis(titles[0], range=ranges[0], showgrid=False),
        "yaxis": axis(titles[1], range=ranges[1], showgrid=False),
        "cells": {"x": numbers(across), "y": numbers(up)},
    }
    return axes, np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)


def _class_regions(subject: Subject, shown: np.ndarray, axes: dict[str, Any], grid: np.ndarray) -> Plot:
    """One heat map: the whole part of a cell is its class, the fraction how sure it is."""
    cells = axes.pop("cells")
    probability = subject.estimator.predict_proba(grid)
    winner, n_classes = probability.argmax(axis=1), probability.shape[1]
    best = probability.max(axis=1)
    sureness = (best - 1 / n_classes) / (1 - 1 / n_classes) if n_classes > 1 else np.ones(len(best))
    names = [label(name) for name in subject.labels]
    texts = np.array([f"{names[k]}, {p:.0%}" for k, p in zip(winner, best, strict=True)], dtype=object)
    regions = {
        "type": "heatmap",
        **cells,
        "z": np.round(winner + 0.998 * sureness + 0.001, 3).reshape(CELLS, CELLS).tolist(),
        "zmin": 0,
        "zmax": n_classes,
        "colorscale": _region_colours(n_classes),
        "showscale": False,
        "text": texts.reshape(CELLS, CELLS).tolist(),
        "hovertemplate": "%{text}<extra>region</extra>",
    }
    plot = Plot(
        "regions", "Decision regions", "", [regions], {**axes, "showlegend": False}, key=class_key(subject.labels)
    )
    predicted, points = subject.places(subject.predicted)[shown], subject.X[shown]
    for k in range(len(names)):
        mine = subject.codes[shown] == k
        trace = class_trace(subject, k, 7)
        answers = [f"true {names[k]}<br>predicted {names[p]}" for p in predicted[mine]]
        cells = {"x": numbers(points[mine, 0]), "y": numbers(points[mine, 1]), "text": answers}
        plot.data.append({**trace, **cells, "type": "scatter", "hovertemplate": "%{text}<extra></extra>"})
    plot.caption = (
        f"The class predicted at each place; the stronger the colour, the higher its probability. Marks are "
        f"held-out samples in the colour of their true class. {shown_note(subject, shown)}"
    )
    return plot


def _value_regions(subject: Subject, shown: np.ndarray, axes: dict[str, Any], grid: np.ndarray) -> Plot:
    cells = axes.pop("cells")
    values, observed = subject.answers(grid)[:, 0], subject.y[shown, 0]
    low, high = colour_ends(np.append(values, observed))
    what = "value" if subject.y.shape[1] == 1 else "value of the first output"
    surface = {
        "type": "heatmap",
        **cells,
        "z": numbers(values.reshape(CELLS, CELLS), 4),
        "zsmooth": "best",
        "coloraxis": "coloraxis",
        "hovertemplate": "predicted %{z:.4g}<extra></extra>",
    }
    samples = {
        "type": "scatter",
        "mode": "markers",
        "x": numbers(subject.X[shown, 0]),
        "y": numbers(subject.X[shown, 1]),
        "marker": {
            "color": numbers(observed),
            "coloraxis": "coloraxis",
            "size": 6,
            "line": {"width": 0.7, "color": "#fff"},
        },
        "hovertemplate": "observed %{marker.color:.4g}<extra></extra>",
    }
    scale = {"coloraxis": {"colorscale": "Viridis", "cmin": low, "cmax": high, "colorbar": {"thickness": 12}}}
    caption = (
        f"The predicted {what} at each place; dots are held-out samples in the colour of their observed value, "
        f"so that a dot which stands out is badly predicted. {colours_told(observed)}{shown_note(subject, shown)}"
    )
    return Plot("regions", "Predicted values", caption, [surface, samples], {**axes, **scale, "showlegend": False})


def _line_plot(subject: Subject) -> Plot:
    """One feature: the probability of each class, or the predicted value, over it."""
    ends = padded(subject.X[:, 0], 0.08)
    x = np.linspace(*ends, 4 * CELLS)
    shown = subject.shown()
    axes = {"xaxis": axis(label(subject.features[0]), range=ends), "showlegend": False}
    if not subject.classifies:
        curve = {"type": "scatter", "mode": "lines", "x": numbers(x), "y": numbers(subject.answers(x[:, None])[:, 0])}
        places = {"x": numbers(subject.X[shown, 0]), "y": numbers(subject.y[shown, 0])}
        dots = {"type": "scatter", "mode": "markers", "marker": {"size": 6, "opacity": 0.6, "line": OUTLINE}, **places}
        caption = f"The predicted value over the feature, and held-out samples as dots. {shown_note(subject, shown)}"
        return Plot("regions", "Predicted values", caption, [curve, dots], {**axes, "yaxis": axis("value")})
    plot = Plot("regions", "Class probabilities", "", [], {**axes, "yaxis": axis("probability", range=[-0.12, 1.05])})
    plot.key = class_key(subject.labels)
    probability = subject.estimator.predict_proba(x[:, None])
    for k in range(probability.shape[1]):
        line = {"color": class_style(k)["colour"]}
        curve = {"type": "scatter", "mode": "lines", "x": numbers(x), "y": numbers(probability[:, k]), "line": line}
        plot.data.append({**curve, "name": label(subject.labels[k]), "meta": k})
    for k in range(len(subject.labels)):
        mine = subject.X[shown, 0][subject.codes[shown] == k]
        plot.data.append(
            {**class_trace(subject, k, 7), "type": "scatter", "x": numbers(mine), "y": [-0.06] * len(mine)}
        )
    plot.caption = (
        f"The probability of each class over the feature; the marks below are held-out samples in the colour of their "
        f"true class. {shown_note(subject, shown)}"
    )
    return plot


def class_trace(subject: Subject, k: int, size: float) -> dict[str, Any]:
    """The markers of class k, without places; `meta` lets the key switch them."""
    style = class_style(k)
    marker = {"color": style["colour"], "symbol": style["symbol"], "size": size, "line": OUTLINE}
    return {"mode": "markers", "name": label(subject.labels[k]), "meta": k, "marker": marker}


def _region_colours(n_classes: int) -> list[list[Any]]:
    """From faint to full within each class, with a jump between classes."""
    scale: list[list[Any]] = []
    for k in range(n_classes):
        colour = class_style(k)["colour"]
        rgb = ",".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))
        scale += [[k / n_classes, f"rgba({rgb},{FAINT})"], [(k + 1) / n_classes, f"rgba({rgb},{FULL})"]]
    return scale
