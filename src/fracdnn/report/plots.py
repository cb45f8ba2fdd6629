"""Interactive plots as Plotly reads them: one function a plot, plain dicts, nothing imported from Plotly.

Names that come from the user go through `label`: Plotly reads a little HTML in every text.
"""

import html
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fracdnn.caputo import memory_weights
from fracdnn.report.figures import BLUE, GREY, PALETTE, VERMILION
from fracdnn.report.subject import Subject
from fracdnn.training import History

# Longer histories are thinned evenly: no screen shows more.
MOST_POINTS, MOST_COLUMNS, MOST_ROWS = 2000, 400, 128
# A confusion matrix of more classes than this has no room for its counts; they are shown on hovering.
MOST_COUNTED = 30
OUTLINE = {"width": 0.7, "color": "#8c8c8c"}
# Shapes that flat and spatial plots share.
SYMBOLS = ("circle", "diamond", "square", "cross", "x")
_LIGHT_BLUES = [[0, "#f3f6fa"], [0.5, "#7fb3d9"], [1, "#0a4a7c"]]
_DARK_BLUES = [[0, "#1b2330"], [0.5, "#1f6aa5"], [1, "#a9d6f5"]]


@dataclass
class Plot:
    """A plot with its heading and a sentence on what one sees; `note` stands in for a plot that has nothing to show.

    `themes` holds what the first trace changes between "light" and "dark", `narrow` what it changes on a phone; a
    `tall` plot gets more height. `key` is the list of classes to show with it, `states` the data of a slider (see
    `flow`).
    """

    name: str
    heading: str
    caption: str
    data: list[dict[str, Any]] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)
    themes: dict[str, Any] | None = None
    narrow: dict[str, Any] | None = None
    tall: bool = False
    key: list[dict[str, str]] | None = None
    states: dict[str, Any] | None = None
    note: str = ""


def numbers(values: Any, digits: int = 5) -> Any:
    """Arrays as nested lists of few digits; None for what is not finite, which JSON cannot hold."""
    if isinstance(values, np.ndarray | list | tuple):
        return [numbers(value, digits) for value in values]
    if values is None or not np.isfinite(values):
        return None
    return float(f"{values:.{digits}g}")


def label(name: Any, length: int = 24) -> str:
    """A name from the user as Plotly shows it literally; cut where it is long."""
    text = " ".join(str(name).split())
    short = text if len(text) <= length else text[: length - 1] + "…"
    # Between dollar signs it would look for mathematics.
    return html.escape(short, quote=False).replace("$", "&#36;")


def axis(title: str, **options: Any) -> dict[str, Any]:
    return {"title": {"text": title, "standoff": 8}, "automargin": True, "zeroline": False, **options}


def log_axis(title: str, values: Any, **options: Any) -> dict[str, Any]:
    """A logarithmic axis with ticks at powers of ten, between them 2 and 5 where the values span few of them."""
    found = np.array([value for value in values if value is not None and value > 0], dtype=float)
    found = found[np.isfinite(found)]
    ticks = {}
    if len(found):
        low, high = np.floor(np.log10(found.min())), np.ceil(np.log10(found.max()))
        decades = np.log10(found.max() / found.min())
        digits = (1, 2, 5) if decades <= 3 else (1,)
        step = max(1, round(decades / 8))
        places = [digit * 10.0**power for power in np.arange(low, high + 1, step) for digit in digits]
        inside = [place for place in places if found.min() / 1.3 <= place <= found.max() * 1.3]
        # Within a factor of two or so Plotly's own ticks do.
        ticks = {"tickvals": inside, "ticktext": [f"{place:g}" for place in inside]} if len(inside) > 2 else {}
    return axis(title, type="log", **ticks, **options)


def picked(n: int, most: int) -> np.ndarray:
    """At most so many of n places, evenly, with the first and the last."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))


def padded(values: np.ndarray, share: float = 0.06) -> tuple[float, float]:
    """A range around the values, never empty."""
    low, high = float(values.min()), float(values.max())
    pad = share * (high - low) or 1.0
    return low - pad, high + pad


def class_style(k: int) -> dict[str, str]:
    """Colour and shape of class k: eight colours, then lighter and darker ones, each round with its own shape."""
    turn = k // len(PALETTE)
    return {"colour": _tinted(PALETTE[k % len(PALETTE)], turn % 3), "symbol": SYMBOLS[turn % len(SYMBOLS)]}


def class_key(labels: list[Any]) -> list[dict[str, str]]:
    return [{"name": str(name), **class_style(k)} for k, name in enumerate(labels)]


def _tinted(colour: str, tint: int) -> str:
    """Tint 0 as it is, 1 half way to white, 2 a third of the way to black."""
    toward, share = ((0, 0.0), (255, 0.5), (0, 0.35))[tint]
    parts = [round(int(colour[i : i + 2], 16) * (1 - share) + toward * share) for i in (1, 3, 5)]
    return "#" + "".join(f"{part:02x}" for part in parts)


def training_plot(history: History) -> Plot:
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
    return plot


def _add_accuracy(plot: Plot, options: dict[str, Any], accuracy: list[float | None]) -> None:
    trace = {"name": "accuracy", "line": {"color": BLUE}, "yaxis": "y2", "showlegend": False}
    plot.data.append({**options, "y": numbers(accuracy), **trace})
    plot.layout["yaxis"]["domain"] = [0.46, 1]
    plot.layout["yaxis2"] = axis("accuracy", domain=[0, 0.36], tickformat=".0%", nticks=5)
    plot.layout["xaxis"]["anchor"] = "y2"
    plot.caption += " Below, the share of training samples put in the right class."


def gradient_plot(history: History) -> Plot:
    """Log10 of the gradient norm of each layer over the iterations."""
    plot = Plot("gradients", "Gradients by layer", "")
    norms = np.array([record.layer_gradients for record in history.records], dtype=float)
    positive = np.isfinite(norms) & (norms > 0)
    if not positive.any():
        plot.note = "No gradient was recorded during training."
        return plot
    columns, rows = picked(norms.shape[0], MOST_COLUMNS), picked(norms.shape[1], MOST_ROWS)
    logs = np.where(positive, np.log10(np.where(positive, norms, 1.0)), np.nan)[np.ix_(columns, rows)].T
    plot.data.append(
        {
            "type": "heatmap",
            "x": [history.records[i].iteration for i in columns],
            "y": (rows + 1).tolist(),
            "z": numbers(logs, 4),
            "colorscale": "Viridis",
            "colorbar": _bar("log<sub>10</sub> norm"),
            "hovertemplate": "iteration %{x}, layer %{y}<br>log<sub>10</sub> norm %{z:.2f}<extra></extra>",
        }
    )
    plot.layout = {"xaxis": axis("iteration", showgrid=False), "yaxis": axis("layer", showgrid=False, **_whole(rows))}
    plot.caption = (
        "How steep the loss was in the parameters of each layer, first layer at the bottom: "
        "dark bands at the bottom are layers that hardly learn."
    )
    return plot


def confusion_plot(subject: Subject) -> Plot:
    """Counts of true against predicted class; the colour is the share of the row."""
    names = [label(name, 18) for name in subject.labels]
    size = len(names)
    counts = np.zeros((size, size), dtype=int)
    np.add.at(counts, (subject.codes, subject.places(subject.predicted)), 1)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    texts = [["" if size > 8 and not count else str(count) for count in row] for row in counts]
    heat: dict[str, Any] = {
        "type": "heatmap",
        "z": numbers(shares, 4),
        "zmin": 0,
        "zmax": 1,
        "xgap": 1,
        "ygap": 1,
        "colorscale": _LIGHT_BLUES,
        "colorbar": {**_bar("share of true class"), "tickformat": ".0%"},
        "customdata": counts.tolist(),
        "text": texts,
        "hovertemplate": "true %{y}<br>predicted %{x}<br>%{customdata} samples, %{z:.1%}<extra></extra>",
    }
    if size <= MOST_COUNTED:
        heat |= {"texttemplate": "%{text}", "textfont": {"size": 14 if size <= 8 else 10}}
    ticks = {"tickvals": list(range(size)), "ticktext": names, "showgrid": False, "range": [-0.5, size - 0.5]}
    ticks |= {"tickfont": {"size": 12 if size <= 12 else 10}} if size <= MOST_COUNTED else {"nticks": 20}
    right = int(np.trace(counts))
    caption = (
        f"Rows are true classes and columns predicted ones: {right:,} of {subject.n:,} samples lie on the diagonal."
    )
    if size > MOST_COUNTED:
        caption += " Point at a cell for its count."
    return Plot(
        "confusion",
        "Confusion matrix",
        caption,
        [heat],
        {
            "xaxis": axis("predicted class", **ticks),
            "yaxis": axis("true class", **ticks) | {"range": [size - 0.5, -0.5]},
        },
        themes={"light": {"colorscale": [_LIGHT_BLUES]}, "dark": {"colorscale": [_DARK_BLUES]}},
        narrow={"showscale": False, "textfont": {"size": 12 if size <= 8 else 8}},
        tall=size > 8,
    )


def reliability_plot(subject: Subject) -> Plot:
    """How often predictions of some confidence are right, a dot for each bin that holds any, by size."""
    found = subject.reliability
    kept = found.counts > 0
    counts, confidence, right = (each[kept] for each in (found.counts, found.confidence, found.hits))
    size = 10 + 34 * np.sqrt(counts / counts.sum())
    line = {"color": GREY, "dash": "dash", "width": 1.5}
    diagonal = {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [0, 1], "line": line, "hoverinfo": "skip"}
    dots = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": numbers(confidence / counts),
        "y": numbers(right / counts),
        "customdata": counts.astype(int).tolist(),
        "line": {"color": BLUE},
        "marker": {"size": numbers(size), "opacity": 0.8, "line": OUTLINE},
        "cliponaxis": False,
        "hovertemplate": "confidence %{x:.1%}<br>right %{y:.1%}<br>%{customdata} samples<extra></extra>",
    }
    ends = {"range": [0, 1.02], "tickformat": ".0%"}
    caption = (
        "Predictions in bins of a tenth by the probability of the predicted class, dots as large as they are many: on "
        "the dashed line a model is right as often as it says, below it too sure, above it too cautious."
    )
    axes = {"xaxis": axis("confidence", **ends), "yaxis": axis("share that is right", **ends), "showlegend": False}
    return Plot("reliability", "Confidence and accuracy", caption, [diagonal, dots], axes)


def prediction_plot(subject: Subject) -> Plot:
    """Observed against predicted values, one colour an output, and the diagonal."""
    shown = subject.shown()
    y, predicted = subject.y[shown], subject.predicted[shown]
    several = y.shape[1] > 1
    both = padded(np.concatenate([subject.y.ravel(), subject.predicted.ravel()]))
    line = {"color": GREY, "dash": "dash", "width": 1.5}
    data: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "x": both, "y": both, "line": line, "hoverinfo": "skip", "name": "equal"}
    ]
    for k in range(y.shape[1]):
        style = class_style(k)
        marker = {"color": style["colour"], "symbol": style["symbol"], "size": 6, "opacity": 0.75, "line": OUTLINE}
        cells = {"x": numbers(y[:, k]), "y": numbers(predicted[:, k])}
        name = f"output {k + 1}" if several else "sample"
        hover = "observed %{x:.4g}<br>predicted %{y:.4g}"
        data.append(
            {"type": "scatter", "mode": "markers", "name": name, "marker": marker, "hovertemplate": hover, **cells}
        )
    axes = {"xaxis": axis("observed", range=both), "yaxis": axis("predicted", range=both)}
    caption = f"Each dot is a held-out sample; on the dashed line a prediction is exact. {shown_note(subject, shown)}"
    return Plot("prediction", "Observed and predicted", caption, data, {**axes, "showlegend": several})


def memory_plot(subject: Subject) -> Plot:
    """The weights of Y_0 … Y_{N−1} in Y_N, the last row of the memory matrix."""
    order, n_layers = subject.estimator.order_, subject.n_layers
    weights = memory_weights(order, n_layers).numpy()
    kept = picked(n_layers, MOST_POINTS)
    trace = {
        "type": "scatter",
        "mode": "lines+markers" if n_layers <= 100 else "lines",
        "x": kept.tolist(),
        "y": numbers(np.where(weights > 0, weights, np.nan)[kept]),
        "line": {"color": BLUE},
        "marker": {"size": 8},
        "hovertemplate": "state %{x}: weight %{y:.4g}<extra></extra>",
    }
    if order == 1:
        caption = "At order 1 the last layer remembers only the state just before it, with weight 1."
    else:
        caption = (
            f"How much the last layer keeps of each earlier state at order {order:.4g}; the weights are positive and "
            f"add up to 1, and state 0 is what enters the first layer."
        )
    positive = np.log10(weights[weights > 0])
    span = [float(positive.min()) - 0.25, float(positive.max()) + 0.25]
    states = axis("earlier state", range=[-0.5, n_layers - 0.5], **_whole(kept))
    weight_axis = log_axis("weight in the last layer", weights, range=span)
    return Plot("memory", "Memory of the last layer", caption, [trace], {"xaxis": states, "yaxis": weight_axis})


def shown_note(subject: Subject, shown: np.ndarray) -> str:
    if len(shown) == subject.n:
        return ""
    return f"Shown are {len(shown):,} of {subject.n:,} samples, drawn at random."


def _bar(title: str) -> dict[str, Any]:
    return {"title": {"text": title, "side": "right"}, "thickness": 12, "outlinewidth": 0}


def _whole(places: np.ndarray) -> dict[str, Any]:
    """Ticks at whole numbers only: Plotly would put some between few places."""
    return {"dtick": 1} if len(places) <= 12 else {}
