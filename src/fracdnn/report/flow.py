"""The flow of the samples through the layers, state by state, under a slider."""

import base64
from typing import Any

import numpy as np

from fracdnn.report.planes import class_trace
from fracdnn.report.plots import (
    OUTLINE,
    Plot,
    axis,
    class_key,
    colour_ends,
    colours_told,
    label,
    numbers,
    padded,
    picked,
    shown_note,
)
from fracdnn.report.projection import Plane, answer_plane, nearest_share
from fracdnn.report.subject import SHOWN, Subject

MOST_STATES = 101
# What a file may hold of the flow, and what memory may hold of the trajectory, in numbers.
FILE_NUMBERS, MEMORY_NUMBERS = 300_000, 20_000_000

# A plane in which fewer samples lie nearest to the centre of their class says too little to be shown.
LEAST_NEAREST = 0.5

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
    plot = Plot("flow", "Flow through the layers", "")
    flow = subject.estimator.trajectory(subject.X[shown])[states][:, order].astype(np.float64)
    if not np.isfinite(flow).all():
        plot.note = "The states are not finite, so that there is nothing to draw."
        return plot
    places, titles, seen = _places(flow, subject, shown[order])
    if not titles:
        plot.note = seen
        return plot
    values = np.ascontiguousarray(places.transpose(0, 2, 1), dtype="<f4")
    plot.data = _traces(subject, shown, groups, places.shape[2])
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
    n_members = len(subject.estimator.members_)
    first = f" Shown is the first of {n_members} members." if n_members > 1 else ""
    far = "" if subject.classifies else colours_told(subject.y[shown, 0])
    plot.caption = (
        f"Where the held-out samples are after each layer, coloured by {coloured}: {seen}. "
        f"Move the slider or press play.{first} {far}{shown_note(subject, shown)}{thinned}"
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
    plane = answer_plane(flow[-1], _output_weights(subject), classifies=subject.classifies)
    places = plane.places(flow)
    return places, *_plane_told(subject, plane, places[-1], samples)


def _output_weights(subject: Subject) -> np.ndarray:
    return subject.estimator.network_.W.detach().cpu().numpy().astype(np.float64)


def _plane_told(subject: Subject, plane: Plane, last: np.ndarray, samples: np.ndarray) -> tuple[list[str], str]:
    """Axis titles and what one sees; no titles where that is too little, and why."""
    across = plane.shares[1] == 0
    names = ["answer", "spread across it"] if across else ["first direction", "second direction"]
    titles = [f"{name} ({share:.0%})" if share else name for name, share in zip(names, plane.shares, strict=True)]
    if not subject.classifies:
        seen = "to the right the predicted value grows" if across else "the plane in which the outputs change most"
        return titles, f"{seen}; earlier states show it as if the layers ended there"
    if len(_output_weights(subject)) < 4:
        axes = "the first axis" if across else "this plane"
        return (
            titles,
            f"the class scores depend on {axes} alone; earlier states show them as if the layers ended there",
        )
    near = nearest_share(last, subject.places(subject.predicted)[samples])
    if near < LEAST_NEAREST:
        why = (
            f"No plane shows how the classes part: even in the one in which their scores change most "
            f"({plane.shares.sum():.0%} of it), {near:.0%} of the samples lie nearest to the centre of their class."
        )
        return [], why
    seen = (
        f"the plane in which the scores of the classes change most, {plane.shares.sum():.0%} of it; after the last "
        f"layer {near:.0%} of the samples lie nearest to the centre of the class that is predicted for them"
    )
    return titles, seen


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
    low, high = colour_ends(subject.y[shown, 0])
    marker = {"color": colours, "colorscale": "Viridis", "size": size, "line": OUTLINE, "colorbar": bar}
    marker |= {"cmin": low, "cmax": high}
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
