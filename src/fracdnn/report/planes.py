"""What an estimator answers around the samples, in the plane of two features."""

from typing import Any

import numpy as np

from fracdnn.report import plots
from fracdnn.report.plots import OUTLINE, Plot, axis, class_style, label, numbers, padded, scatter, shown_note
from fracdnn.report.subject import Subject

CELLS = 97
# Opacity of a region where a class barely wins, and where it is certain.
FAINT, FULL = 0.06, 0.5


def region_plot(subject: Subject) -> Plot | None:
    """None but for two columns of one feature each: no plane through many says much of what lies around the samples."""
    if not len(subject.columns) == len(subject.features) == 2:
        return None
    ranges = [padded(np.array(plots.usual_ends(subject.X[:, k])), 0.08) for k in range(2)]
    across, up = (np.linspace(*ends, CELLS) for ends in ranges)
    axes = [axis(label(subject.features[k]), range=ranges[k], showgrid=False) for k in range(2)]
    plot = Plot("regions", "", layout={"xaxis": axes[0], "yaxis": axes[1], "showlegend": False})
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    cells = {"type": "heatmap", "x": numbers(across), "y": numbers(up)}
    return (_class_regions if subject.classifies else _value_regions)(subject, subject.shown(), plot, cells, grid)


def _class_regions(subject: Subject, shown: np.ndarray, plot: Plot, cells: dict[str, Any], grid: np.ndarray) -> Plot:
    """One heat map: the whole part of a cell is its class, the fraction how sure it is."""
    probability = subject.estimator.predict_proba(grid)
    winner, best, n_classes = probability.argmax(axis=1), probability.max(axis=1), probability.shape[1]
    sureness = (best - 1 / n_classes) / (1 - 1 / n_classes) if n_classes > 1 else np.ones(len(best))
    names = [label(name) for name in subject.labels]
    texts = np.array([f"{names[k]}, {p:.0%}" for k, p in zip(winner, best, strict=True)], dtype=object)
    cells |= {"z": np.round(winner + 0.998 * sureness + 0.001, 3).reshape(CELLS, CELLS).tolist()}
    scale: list[list[Any]] = []
    for k in range(n_classes):  # from faint to full within each class, with a jump between classes
        rgb = ",".join(map(str, plots.channels(class_style(k)["color"])))
        scale += [[k / n_classes, f"rgba({rgb},{FAINT})"], [(k + 1) / n_classes, f"rgba({rgb},{FULL})"]]
    cells |= {"zmin": 0, "zmax": n_classes, "colorscale": scale, "showscale": False}
    cells |= {"text": texts.reshape(CELLS, CELLS).tolist(), "hovertemplate": "%{text}<extra>region</extra>"}
    plot.heading, plot.data, plot.key = "Decision regions", [cells], plots.class_key(subject.labels)
    predicted = subject.places(subject.predicted)
    for k, name in enumerate(names):
        mine = shown[subject.codes[shown] == k]
        answers = [f"true {name}<br>predicted {names[p]}" for p in predicted[mine]]
        samples = scatter("markers", *subject.X[mine].T, text=answers, hovertemplate="%{text}<extra></extra>")
        plot.data.append(class_trace(subject, k, 7) | samples)
    plot.caption = (
        f"The class predicted at each place; the stronger the color, the higher its probability. Marks are "
        f"held-out samples in the color of their true class. {shown_note(subject, shown)}"
    )
    return plot


def _value_regions(subject: Subject, shown: np.ndarray, plot: Plot, cells: dict[str, Any], grid: np.ndarray) -> Plot:
    values, observed = subject.outputs(grid)[:, 0], subject.y[shown, 0]
    low, high = plots.color_ends(np.append(values, observed))
    what = "value" if subject.y.shape[1] == 1 else "value of the first output"
    cells |= {"z": numbers(values.reshape(CELLS, CELLS), 4), "zsmooth": "best", "coloraxis": "coloraxis"}
    cells["hovertemplate"] = "predicted %{z:.4g}<extra></extra>"
    marker = {"color": numbers(observed), "coloraxis": "coloraxis", "size": 6, "line": {"width": 0.7, "color": "#fff"}}
    hover = "observed %{marker.color:.4g}<extra></extra>"
    plot.heading = "Predicted values"
    plot.data = [cells, scatter("markers", *subject.X[shown].T, marker=marker, hovertemplate=hover)]
    plot.layout["coloraxis"] = {"colorscale": "Viridis", "cmin": low, "cmax": high, "colorbar": {"thickness": 12}}
    plot.caption = (
        f"The predicted {what} at each place; dots are held-out samples in the color of their observed value, "
        f"one which stands out is badly predicted. {plots.describe_colors(observed)}{shown_note(subject, shown)}"
    )
    return plot


def class_trace(subject: Subject, k: int, size: float) -> dict[str, Any]:
    """The markers of class k, without places; `meta` lets the key switch them."""
    style = class_style(k)
    marker = {"color": style["color"], "symbol": style["symbol"], "size": size, "line": OUTLINE}
    return {"mode": "markers", "name": label(subject.labels[k]), "meta": k, "marker": marker}
