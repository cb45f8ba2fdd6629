"""What the network answers around the samples, their flow through its layers, and its training.

States of more than two coordinates are shown in the plane in which the answer of the network changes most. The
outputs are W Y_N, so that the answer depends on the last state only through them: what they do not hold no reader
needs to see. For outputs less their mean Z = U diag(s) Vᵀ (for classes also less the mean over classes, which a softmax
does not notice), the first directions are Wᵀ v_1 and Wᵀ v_2, and s_1² and s_2² of Σ s² is the share they show: all of
it for up to three classes. For earlier states the same plane shows what the answer would be, did the layers end there.
Where the outputs have one direction alone, the second axis is the greatest spread that does not go with the answer.
"""

import base64
from typing import Any

import numpy as np

from fracdnn.caputo import memory_weights
from fracdnn.report import plots
from fracdnn.report.figures import BLUE, VERMILION
from fracdnn.report.plots import MOST_POINTS, OUTLINE, Plot, axis, class_style, label, numbers, padded, picked, scatter
from fracdnn.report.subject import SHOWN, Subject
from fracdnn.report.texts import number
from fracdnn.tables.words import count
from fracdnn.training import History

CELLS = 97
# Opacity of a region where a class barely wins, and where it is certain.
FAINT, FULL = 0.06, 0.5
MOST_STATES, MOST_KEPT = 41, 7
# What a file may hold of the flow, in places, and what memory may hold of the trajectory, in numbers.
FILE_NUMBERS, MEMORY_NUMBERS = 6_000, 20_000_000
# Below this share of the greatest, a direction holds rounding errors.
_NOTHING = 3e-5
# How a training ended, by its status.
ENDS = {
    "converged": "the gradient reached `tol`",
    "no improvement": "the loss stopped improving",
    "epoch limit": "reached the limit of epochs",
    "iteration limit": "reached the limit of iterations",
    "line search failed": "the line search failed: no step lowered the loss",
    "not finite": "the loss was no longer finite",
    "time limit": "reached the time limit",
    "interrupted": "interrupted",
}


def region_plot(subject: Subject) -> Plot | None:
    """One heat map: the whole part of a cell is its class, the fraction how sure it is. Of classes and two columns of
    one feature each alone: no plane through many says much of what lies around the samples.
    """
    if not (subject.classifies and len(subject.columns) == len(subject.features) == 2):
        return None
    ranges = [padded(np.array(plots.usual_ends(subject.X[:, k])), 0.08) for k in range(2)]
    across, up = (np.linspace(*ends, CELLS) for ends in ranges)
    probability = subject.outputs(np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2))
    winner, best, n_classes = probability.argmax(axis=1), probability.max(axis=1), probability.shape[1]
    sureness = (best - 1 / n_classes) / (1 - 1 / n_classes) if n_classes > 1 else np.ones(len(best))
    names = [label(name) for name in subject.labels]
    texts = np.array([f"{names[k]}, {p:.0%}" for k, p in zip(winner, best, strict=True)], dtype=object)
    scale: list[list[Any]] = []
    for k in range(n_classes):  # from faint to full within each class, with a jump between classes
        rgb = ",".join(map(str, bytes.fromhex(class_style(k)["color"][1:])))
        scale += [[k / n_classes, f"rgba({rgb},{FAINT})"], [(k + 1) / n_classes, f"rgba({rgb},{FULL})"]]
    z = np.round(winner + 0.998 * sureness + 0.001, 3).reshape(CELLS, CELLS).tolist()
    cells = {"type": "heatmap", "x": numbers(across), "y": numbers(up), "z": z, "zmin": 0, "zmax": n_classes}
    cells |= {"colorscale": scale, "showscale": False, "text": texts.reshape(CELLS, CELLS).tolist()}
    cells |= {"hovertemplate": "%{text}<extra>region</extra>"}
    plot = Plot("regions", "Decision regions", data=[cells], key=plots.class_key(subject.labels))
    axes = [axis(label(subject.features[k]), range=ranges[k], showgrid=False) for k in range(2)]
    plot.layout = {"xaxis": axes[0], "yaxis": axes[1], "showlegend": False}
    predicted, shown = subject.places(subject.predicted), subject.shown()
    for k, name in enumerate(names):
        mine = shown[subject.codes[shown] == k]
        answers = [f"true {name}<br>predicted {names[p]}" for p in predicted[mine]]
        samples = scatter("markers", *subject.X[mine].T, text=answers, hovertemplate="%{text}<extra></extra>")
        plot.data.append(class_trace(subject, k) | samples)
    plot.caption = (
        f"The class predicted at each place; the stronger the color, the higher its probability. Marks are held-out "
        f"samples in the color of their true class.{plots.shown_note(subject, shown)}"
    )
    return plot


def class_trace(subject: Subject, k: int) -> dict[str, Any]:
    """The markers of class k, without places; `meta` lets the key switch them."""
    marker = class_style(k) | {"size": 7, "line": OUTLINE}
    return {"mode": "markers", "name": label(subject.labels[k]), "meta": k, "marker": marker}


def flow_plot(subject: Subject) -> Plot:
    """Y_0 … Y_N of some samples. The page fills in the places: `states` holds them as base64 of float32,
    [states, 2, samples], samples sorted by trace.
    """
    states, plot = picked(subject.shape.n_layers + 1, MOST_STATES), Plot("flow", "Flow through the layers")
    in_memory = MEMORY_NUMBERS // ((subject.shape.n_layers + 1) * subject.shape.width)
    shown = subject.shown(max(min(SHOWN, FILE_NUMBERS // len(states), in_memory), 20))
    codes = subject.codes[shown] if subject.classifies else np.zeros(len(shown))
    order = np.argsort(codes, kind="stable")  # by trace
    flow = subject.estimator.states(subject.X[shown])[states][:, order].astype(np.float64)
    if not np.isfinite(flow).all():
        plot.note = "The states are not finite, so there is nothing to draw."
        return plot
    places, titles, seen = _places(flow, subject)
    values = np.ascontiguousarray(places.transpose(0, 2, 1), dtype="<f4")
    if subject.classifies:
        hover, plot.key = "%{x:.3g}, %{y:.3g}<extra>%{fullData.name}</extra>", plots.class_key(subject.labels)
        plot.data = [{**class_trace(subject, k), "hovertemplate": hover} for k in range(len(subject.labels))]
        colored = "class"
    else:
        observed, hover = subject.y[shown, 0], "%{x:.3g}, %{y:.3g}<extra>observed %{marker.color:.4g}</extra>"
        low, high = plots.usual_ends(observed)
        marker = {"color": numbers(observed), "colorscale": "Viridis", "cmin": low, "cmax": high, "size": 7}
        marker |= {"line": OUTLINE, "colorbar": {"title": {"text": "observed", "side": "right"}, "thickness": 12}}
        plot.data = [{"mode": "markers", "name": "", "marker": marker, "hovertemplate": hover}]
        colored = "value"
    # Ranges of all states, so that the axes stay as the points move.
    across, up = (axis(title, range=padded(places[:, :, k])) for k, title in enumerate(titles))
    plot.layout = {"showlegend": False, "xaxis": across, "yaxis": up}
    plot.states = {
        "layers": states.tolist(),
        "sizes": [int((codes == k).sum()) for k in range(len(plot.data))],
        "values": base64.b64encode(values.tobytes()).decode("ascii"),
    }
    thinned = "" if len(states) == subject.shape.n_layers + 1 else f" The slider stops at {len(states)} states."
    plot.caption = (
        f"Where the held-out samples are after each layer, colored by observed {colored}: {seen}. Move the slider or "
        f"press play.{subject.first_member}{plots.shown_note(subject, shown)}{thinned}"
    )
    return plot


def _places(flow: np.ndarray, subject: Subject) -> tuple[np.ndarray, list[str], str]:
    """The states as points [states, samples, 2], axis titles, and what one sees."""
    if subject.shape.width <= 2:  # of one, all lie on a line
        places = np.pad(flow, ((0, 0), (0, 0), (0, 2 - subject.shape.width)))
        return places, ["first coordinate", "second coordinate"], "the axes are the coordinates of the state"
    W = subject.estimator.network_.W.detach().cpu().numpy().astype(np.float64)
    directions, shares = answer_plane(flow[-1], W, classifies=subject.classifies)
    across = shares[1] == 0
    names = ["answer", "spread across it"] if across else ["first direction", "second direction"]
    titles = [f"{name} ({share:.0%})" if share else name for name, share in zip(names, shares, strict=True)]
    if not subject.classifies:
        seen = "the predicted value grows to the right" if across else "the plane in which the outputs change most"
    elif len(W) < 4:
        seen = f"the class scores depend on {'the first axis' if across else 'this plane'} alone"
    else:
        seen = f"the plane in which the scores of the classes change most, {shares.sum():.0%} of it"
    return flow @ directions.T, titles, f"{seen}; earlier states are drawn as if the network ended there"


def answer_plane(last: np.ndarray, W: np.ndarray, *, classifies: bool) -> tuple[np.ndarray, np.ndarray]:
    """Two directions [2, width], and the shares of the spread of the answers that they show: of last states [n, width]
    and outputs' weights W [n_outputs, width].
    """
    weights = W - W.mean(axis=0) if classifies else W
    centered = last - last.mean(axis=0)
    _, sizes, turned = np.linalg.svd(centered @ weights.T, full_matrices=False)
    shown = np.flatnonzero(sizes > _NOTHING * sizes.max())[:2]
    answers = turned[shown] @ weights
    # Where these are fewer than two, those in which the states spread most without going with the answers.
    basis = np.linalg.qr(centered.T @ centered @ answers.T)[0]
    rest = centered - centered @ basis @ basis.T
    directions = np.concatenate([answers, np.linalg.svd(rest.T @ rest)[2]])[:2]
    # The largest part is positive, so that a report is the same each time.
    largest = np.take_along_axis(directions, np.abs(directions).argmax(axis=1, keepdims=True), axis=1)
    shares = np.zeros(2)
    shares[: len(shown)] = sizes[shown] ** 2 / (sizes**2).sum()
    return directions * np.where(largest < 0, -1.0, 1.0), shares


def network_facts(subject: Subject) -> dict[str, str]:
    estimator = subject.estimator
    shape, n_members = subject.shape, len(estimator.members_)
    order = f"learned, from {estimator.order:.4g}" if estimator.learn_order else "fixed"
    facts = {
        "order": f"{estimator.order_:.4g}, {order}",
        "layers": f"{shape.n_layers}, of width {shape.width}, {shape.activation}",
        "last layer keeps": _kept_states(subject),
        "members": count(n_members, "network") + (", whose predictions are averaged" if n_members > 1 else ""),
        "features": count(len(subject.features), "input"),
        "training": why_ended(estimator.history_),
    }
    if estimator.temperature_ is not None:
        facts["temperature"] = number(estimator.temperature_)
    return facts


def _kept_states(subject: Subject) -> str:
    """The largest weights of the memory matrix in its last row, and the sum of the others."""
    weights = memory_weights(subject.estimator.order_, subject.shape.n_layers).numpy()
    most = [k for k in np.sort(np.argsort(-weights, kind="stable")[:MOST_KEPT]) if weights[k]]
    kept = [(weights[k], f"state {k}" if k else "what enters layer 1") for k in most]
    kept += [(1 - weights[most].sum(), "the others")] if np.count_nonzero(weights) > MOST_KEPT else []
    return ", ".join(f"{share:.0%} of {name}" for share, name in kept)


def why_ended(history: History) -> str:
    text = count(len(history.records), "iteration")
    if history.status == "partial":
        return f"{text} of partial_fit"
    return f"{text}; {ENDS[history.status]}" if history.status in ENDS else text


def training_plot(subject: Subject) -> Plot:
    plot, history = Plot("training", "Training"), subject.estimator.history_
    if not history.records:
        plot.note = "Training ended before its first iteration, so there is no curve to show."
        return plot
    kept = picked(len(history.records), MOST_POINTS)
    mode = "lines+markers" if len(kept) < 30 else "lines"
    iterations = [history.records[i].iteration for i in kept]
    loss, validation = ([history.column(name)[i] for i in kept] for name in ("loss", "validation_score"))
    plot.data, of = [scatter(mode, iterations, loss, name="loss", line={"color": BLUE})], "at each iteration"
    if any(value is not None for value in validation):
        line, of = {"color": VERMILION, "dash": "dash"}, "and on the rows held out for early stopping"
        plot.data.append(scatter(mode, iterations, validation, name="validation loss", line=line))
    plot.caption = f"The loss on the training data {of}, on a logarithmic axis."
    plot.layout = {"xaxis": axis("iteration"), "yaxis": axis("loss", type="log", nticks=6)}
    plot.layout["showlegend"] = len(plot.data) > 1
    plot.caption += subject.first_member
    return plot
