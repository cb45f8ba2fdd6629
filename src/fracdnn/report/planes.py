"""What an estimator answers around the data: on a line, or in the plane of two features or principal components."""

from typing import Any

import numpy as np

from fracdnn.report.plots import OUTLINE, Plot, axis, class_key, class_style, label, numbers, padded, shown_note
from fracdnn.report.subject import Subject

CELLS = 121
# Opacity of a region where a class barely wins, and where it is certain.
FAINT, FULL = 0.06, 0.5


def principal_axes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, the first two principal directions [2, n_columns], and their shares of the variance; signs are fixed.

    Directions beyond the rank of the data are still orthonormal; one column gives one direction.
    """
    mean = values.mean(axis=0)
    spread, directions = np.linalg.eigh(np.cov(values - mean, rowvar=False, bias=True).reshape(len(mean), -1))
    spread, directions = np.maximum(spread[::-1], 0.0), directions.T[::-1][:2]
    largest = directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)]
    return mean, directions * np.sign(largest)[:, None], spread[:2] / (spread.sum() or 1.0)


def region_plot(subject: Subject) -> Plot:
    if len(subject.features) == 1:
        return _line_plot(subject)
    shown = subject.shown()
    points, axes, grid, place = _plane(subject, shown)
    return (
        _class_regions(subject, shown, points, axes, grid, place)
        if subject.classifies
        else _value_regions(subject, shown, points, axes, grid, place)
    )


def _plane(subject: Subject, shown: np.ndarray) -> tuple[np.ndarray, dict[str, Any], np.ndarray, str]:
    """The samples' places [n, 2], the two axes, the features at the cells' middles, and what plane it is."""
    if len(subject.features) == 2:
        points, titles, place = (
            subject.X,
            [label(name) for name in subject.features],
            "in the plane of the two features",
        )
    else:
        scaled = subject.standardised(subject.X)
        mean, directions, shares = principal_axes(scaled)
        points = (scaled - mean) @ directions.T
        titles = [f"{word} component ({share:.0%})" for word, share in zip(("first", "second"), shares, strict=True)]
        place = (
            "in the plane of the first two principal components of the scaled features (with their share of the "
            "variance), all other components at their mean"
        )
    ranges = [padded(points[:, k], 0.08) for k in range(2)]
    across, up = (np.linspace(*ends, CELLS) for ends in ranges)
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    if len(subject.features) > 2:
        grid = subject.in_units(mean + grid @ directions)
    axes = {
        "xaxis": axis(titles[0], range=ranges[0], showgrid=False),
        "yaxis": axis(titles[1], range=ranges[1], showgrid=False),
        "cells": {"x": numbers(across), "y": numbers(up)},
    }
    return points[shown], axes, grid, place


def _class_regions(
    subject: Subject, shown: np.ndarray, points: np.ndarray, axes: dict[str, Any], grid: np.ndarray, place: str
) -> Plot:
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
    predicted = subject.places(subject.predicted)[shown]
    for k in range(len(names)):
        mine = subject.codes[shown] == k
        trace = class_trace(subject, k, 7)
        answers = [f"true {names[k]}<br>predicted {names[p]}" for p in predicted[mine]]
        cells = {"x": numbers(points[mine, 0]), "y": numbers(points[mine, 1]), "text": answers}
        plot.data.append({**trace, **cells, "type": "scatter", "hovertemplate": "%{text}<extra></extra>"})
    plot.caption = (
        f"The class predicted at each place {place}; the stronger the colour, the higher its probability. Marks are "
        f"held-out samples in the colour of their true class. {shown_note(subject, shown)}"
    )
    return plot


def _value_regions(
    subject: Subject, shown: np.ndarray, points: np.ndarray, axes: dict[str, Any], grid: np.ndarray, place: str
) -> Plot:
    cells = axes.pop("cells")
    values, observed = subject.answers(grid)[:, 0], subject.y[shown, 0]
    low, high = padded(np.concatenate([values, observed]), 0.0) if np.ptp(np.append(values, observed)) else (0.0, 1.0)
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
        "x": numbers(points[:, 0]),
        "y": numbers(points[:, 1]),
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
        f"The predicted {what} at each place {place}; dots are held-out samples in the colour of their observed value, "
        f"so that a dot which stands out is badly predicted. {shown_note(subject, shown)}"
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
