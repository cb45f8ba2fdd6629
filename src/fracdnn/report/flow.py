"""The flow of the samples through the layers, state by state, under a slider."""

import base64
from typing import Any

import numpy as np

from fracdnn.report.planes import class_trace, principal_axes
from fracdnn.report.plots import OUTLINE, Plot, axis, class_key, label, numbers, padded, picked, shown_note
from fracdnn.report.subject import SHOWN, Subject

MOST_STATES = 101
# What a file may hold of the flow, and what memory may hold of the trajectory, in numbers.
FILE_NUMBERS, MEMORY_NUMBERS = 300_000, 20_000_000

# From where a spatial plot is seen at first: far enough for its axis titles.
EYE = {"x": 1.55, "y": 1.55, "z": 1.1}


def flow_plot(subject: Subject) -> Plot:
    """Y_0 … Y_N of some samples. The page fills in the places: `states` holds them as base64 of float32,
    [states, axes, samples], samples sorted by trace.
    """
    states = picked(subject.n_layers + 1, MOST_STATES)
    shown = subject.shown(_limit(subject, len(states)))
    groups = _groups(subject, shown)
    order = np.concatenate(groups)
    flow = subject.estimator.trajectory(subject.X[shown])[states][:, order].astype(np.float64)
    places, titles, seen = _places(flow, subject, shown[order])
    values = np.ascontiguousarray(places.transpose(0, 2, 1), dtype="<f4")
    plot = Plot("flow", "Flow through the layers", "", _traces(subject, shown, groups, places.shape[2]))
    plot.layout = {"showlegend": False, **_axes(titles, places)}
    if subject.width == 1 and subject.classifies:
        names = [label(name, 12) for name in subject.labels]
        plot.layout["yaxis"] |= {"tickvals": list(range(len(names))), "ticktext": names}
    plot.key = class_key(subject.labels) if subject.classifies else None
    plot.states = {
        "layers": states.tolist(),
        "sizes": [len(group) for group in groups],
        "axes": ["x", "y", "z"][: places.shape[2]],
        "values": base64.b64encode(values.tobytes()).decode("ascii"),
    }
    thinned = "" if len(states) == subject.n_layers + 1 else f" The slider stops at {len(states)} states."
    coloured = "class" if subject.classifies else "observed value"
    plot.caption = (
        f"Where the held-out samples are after each layer, coloured by {coloured}: {seen}; "
        f"move the slider or press play. {shown_note(subject, shown)}{thinned}"
    )
    return plot


def _limit(subject: Subject, n_states: int) -> int:
    dimensions = 3 if subject.width == 3 else 2
    held = (subject.n_layers + 1) * subject.width
    return max(min(SHOWN, FILE_NUMBERS // (n_states * dimensions), MEMORY_NUMBERS // held), 20)


def _groups(subject: Subject, shown: np.ndarray) -> list[np.ndarray]:
    """The places in `shown` of each trace: one for each class, or one in all."""
    if not subject.classifies:
        return [np.arange(len(shown))]
    return [np.flatnonzero(subject.codes[shown] == k) for k in range(len(subject.labels))]


def _places(flow: np.ndarray, subject: Subject, samples: np.ndarray) -> tuple[np.ndarray, list[str], str]:
    """The states as points of a line, a plane or a space [states, samples, axes], axis titles, and what one sees."""
    width = flow.shape[2]
    if width == 1:
        beside = subject.codes[samples] if subject.classifies else subject.y[samples, 0]
        second = np.broadcast_to(beside.astype(np.float64), flow.shape[:2])
        titles = ["state", "class" if subject.classifies else "observed value"]
        return np.stack([flow[:, :, 0], second], axis=-1), titles, "the one coordinate of the state runs across"
    if width <= 3:
        # In space there is room for a word only.
        titles = ["first", "second", "third"] if width == 3 else ["first coordinate", "second coordinate"]
        return flow, titles, f"the state has {width} coordinates, which are the axes"
    mean, directions, shares = principal_axes(flow.reshape(-1, width))
    titles = [f"{word} component ({share:.0%})" for word, share in zip(("first", "second"), shares, strict=True)]
    seen = f"the states have {width} coordinates, seen along the first two principal components of all states together"
    return (flow - mean) @ directions.T, titles, seen


def _traces(subject: Subject, shown: np.ndarray, groups: list[np.ndarray], dimensions: int) -> list[dict[str, Any]]:
    kind, size = ("scatter3d", 3.5) if dimensions == 3 else ("scatter", 7)
    hover = "%{x:.3g}, %{y:.3g}" + (", %{z:.3g}" if dimensions == 3 else "")
    if subject.classifies:
        traces = [class_trace(subject, k, size) for k in range(len(groups))]
        return [
            {**trace, "type": kind, "hovertemplate": f"{hover}<extra>%{{fullData.name}}</extra>"} for trace in traces
        ]
    colours = numbers(subject.y[shown, 0])
    bar = {"thickness": 12, "title": {"text": "observed", "side": "right"}}
    marker = {"color": colours, "colorscale": "Viridis", "size": size, "line": OUTLINE, "colorbar": bar}
    return [{"type": kind, "mode": "markers", "marker": marker, "hovertemplate": f"{hover}<extra></extra>"}]


def _axes(titles: list[str], places: np.ndarray) -> dict[str, Any]:
    """Ranges of all states, so that the axes stay as the points move."""
    axes = [axis(title, range=padded(places[:, :, k])) for k, title in enumerate(titles)]
    if len(axes) < 3:
        return {"xaxis": axes[0], "yaxis": axes[1]}
    scene = {f"{name}axis": {**flat, "nticks": 6} for name, flat in zip("xyz", axes, strict=True)}
    for spatial in scene.values():
        del spatial["automargin"]
        spatial["title"] = {"text": spatial["title"]["text"]}
    return {"scene": {**scene, "aspectmode": "cube", "camera": {"eye": EYE, "center": {"x": 0, "y": 0, "z": -0.12}}}}
