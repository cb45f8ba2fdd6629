"""How the training went: its loss, and the gradient of each layer where these are many."""

from typing import Any

import numpy as np

from fracdnn.report.figures import BLUE, VERMILION
from fracdnn.report.plots import MOST_POINTS, Plot, axis, bar, colour_ends, log_axis, numbers, picked, whole
from fracdnn.training import History

# A heat map has no more columns and rows, and a network of few layers needs none.
MOST_COLUMNS, MOST_ROWS, LEAST_LAYERS = 400, 128, 8


def training_plot(history: History, n_members: int = 1) -> Plot:
    """Loss on a log axis above, accuracy below where it was recorded."""
    plot = Plot("training", "Training", "The loss on the training data at each iteration, on a logarithmic axis.")
    if not history.records:
        plot.note = "Training ended before its first iteration, so there is no curve to show."
        return plot
    kept = picked(len(history.records), MOST_POINTS)
    column = {name: [history.column(name)[i] for i in kept] for name in ("loss", "validation_score", "accuracy")}
    iterations = [history.records[i].iteration for i in kept]
    mode = "lines+markers" if len(kept) < 30 else "lines"
    options = {"type": "scatter", "mode": mode, "x": iterations}
    loss = [value if value is not None and value > 0 else None for value in column["loss"]]
    plot.data.append({**options, "y": numbers(loss), "name": "loss", "line": {"color": BLUE}})
    if any(value is not None for value in column["validation_score"]):
        line = {"color": VERMILION, "dash": "dash"}
        plot.data.append({**options, "y": numbers(column["validation_score"]), "name": "validation loss", "line": line})
        plot.caption = "The loss on the training data and on the part held out to stop early, on a logarithmic axis."
    loss_axis = log_axis("loss", loss + column["validation_score"])
    plot.layout = {"xaxis": axis("iteration"), "yaxis": loss_axis, "showlegend": len(plot.data) > 1}
    if any(value is not None for value in column["accuracy"]):
        _add_accuracy(plot, options, column["accuracy"])
    plot.caption += f" Shown is the first of {n_members} members." if n_members > 1 else ""
    return plot


_ENDS = {
    "converged": "the gradient was as small as asked for",
    "no improvement": "the loss improved no more",
    "epoch limit": "it had gone through the data as often as it may",
    "iteration limit": "it had as many iterations as it may",
    "line search failed": "no step along the gradient lowered the loss any more",
    "not finite": "the loss was not finite any more",
    "time limit": "its time was over",
    "interrupted": "it was interrupted",
}


def why_ended(history: History) -> str:
    n = len(history.records)
    told = f"{n:,} iteration{'' if n == 1 else 's'}"
    if history.status == "partial":
        return f"{told} of partial_fit"
    return f"{told}; {_ENDS[history.status]}" if history.status in _ENDS else told


def _add_accuracy(plot: Plot, options: dict[str, Any], accuracy: list[float | None]) -> None:
    trace = {"name": "accuracy", "line": {"color": BLUE}, "yaxis": "y2", "showlegend": False}
    plot.data.append({**options, "y": numbers(accuracy), **trace})
    plot.layout["yaxis"]["domain"] = [0.46, 1]
    plot.layout["yaxis2"] = axis("accuracy", domain=[0, 0.36], tickformat=".0%", nticks=5)
    plot.layout["xaxis"]["anchor"] = "y2"
    plot.caption += " Below, the share of training samples put in the right class."


def gradient_ratio(history: History) -> float | None:
    """The gradient norm of the first layer over that of the last, the median over the iterations that have both."""
    norms = [(record.layer_gradients[0], record.layer_gradients[-1]) for record in history.records]
    ratios = [first / last for first, last in norms if np.isfinite([first, last]).all() and last > 0]
    return float(np.median(ratios)) if ratios else None


def gradient_plot(history: History) -> Plot | None:
    """Log10 of the gradient norm of each layer over the iterations; None for few layers or iterations."""
    plot = Plot("gradients", "Gradients by layer", "")
    norms = np.array([record.layer_gradients for record in history.records], dtype=float)
    positive = np.isfinite(norms) & (norms > 0)
    if norms.ndim < 2 or norms.shape[1] < LEAST_LAYERS or not positive.any():
        return None
    columns, rows = picked(norms.shape[0], MOST_COLUMNS), picked(norms.shape[1], MOST_ROWS)
    logs = np.where(positive, np.log10(np.where(positive, norms, 1.0)), np.nan)[np.ix_(columns, rows)].T
    low, high = colour_ends(logs[np.isfinite(logs)])
    plot.data.append(
        {
            "type": "heatmap",
            "x": [history.records[i].iteration for i in columns],
            "y": (rows + 1).tolist(),
            "z": numbers(logs, 4),
            "colorscale": "Viridis",
            "zmin": low,
            "zmax": high,
            "colorbar": bar("log<sub>10</sub> norm"),
            "hovertemplate": "iteration %{x}, layer %{y}<br>log<sub>10</sub> norm %{z:.2f}<extra></extra>",
        }
    )
    plot.layout = {"xaxis": axis("iteration", showgrid=False), "yaxis": axis("layer", showgrid=False, **whole(rows))}
    plot.caption = (
        "How steep the loss was in the parameters of each layer, first layer at the bottom: "
        "dark bands at the bottom are layers that hardly learn."
    )
    return plot
