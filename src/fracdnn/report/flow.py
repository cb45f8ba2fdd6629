"""The flow of the samples through the layers, state by state, under a slider.

States of more than three coordinates are shown in the plane in which the answer of the network changes most. The
outputs are W Y_N, so that the answer depends on the last state only through them: what they do not hold no reader
needs to see. For outputs less their mean Z = U diag(s) Vᵀ (for classes also less the mean over classes, which a softmax
does not notice), the first directions are Wᵀ v_1 and Wᵀ v_2, and s_1² and s_2² of Σ s² is the share they show: all of
it for up to three classes. For earlier states the same plane shows what the answer would be, did the layers end there.
Where the outputs have one direction alone, the second axis is the greatest spread that does not go with the answer.
"""

import base64
from typing import Any

import numpy as np

from fracdnn.report import plots
from fracdnn.report.planes import class_trace
from fracdnn.report.plots import OUTLINE, Plot, axis, label, numbers, padded, shown_note
from fracdnn.report.subject import SHOWN, Subject

MOST_STATES = 41
# What a file may hold of the flow, and what memory may hold of the trajectory, in numbers.
FILE_NUMBERS, MEMORY_NUMBERS = 12_000, 20_000_000
# A plane in which fewer samples lie nearest to the center of their class says too little to be shown.
LEAST_NEAREST = 0.5
# From where a spatial plot is seen at first: far enough for its axis titles.
CAMERA = {"eye": {"x": 1.55, "y": 1.55, "z": 1.1}, "center": {"x": 0, "y": 0, "z": -0.12}}
# Below this share of the greatest, a direction holds rounding errors.
_NOTHING = 1e-9


def flow_plot(subject: Subject) -> Plot:
    """Y_0 … Y_N of some samples. The page fills in the places: `states` holds them as base64 of float32,
    [states, axes, samples], samples sorted by trace.
    """
    states, plot = plots.picked(subject.n_layers + 1, MOST_STATES), Plot("flow", "Flow through the layers")
    in_file = FILE_NUMBERS // (len(states) * (3 if subject.width == 3 else 2))
    in_memory = MEMORY_NUMBERS // ((subject.n_layers + 1) * subject.width)
    shown = subject.shown(max(min(SHOWN, in_file, in_memory), 20))
    groups = [np.arange(len(shown))]  # the places in `shown` of each trace
    if subject.classifies:
        groups = [np.flatnonzero(subject.codes[shown] == k) for k in range(len(subject.labels))]
    order = np.concatenate(groups)
    flow = subject.estimator.states(subject.X[shown])[states][:, order].astype(np.float64)
    if not np.isfinite(flow).all():
        plot.note = "The states are not finite, so there is nothing to draw."
        return plot
    places, titles, seen = _places(flow, subject, shown[order])
    if not titles:
        plot.note = seen
        return plot
    values = np.ascontiguousarray(places.transpose(0, 2, 1), dtype="<f4")
    plot.data = _traces(subject, shown, places.shape[2])
    plot.layout = {"showlegend": False, **_axes(titles, places)}
    if subject.width == 1 and subject.classifies:
        names = [label(name, 12) for name in subject.labels]
        plot.layout["yaxis"] |= {"tickvals": list(range(len(names))), "ticktext": names}
    plot.key = plots.class_key(subject.labels) if subject.classifies else None
    plot.states = {
        "layers": states.tolist(),
        "sizes": [len(group) for group in groups],
        "axes": ["x", "y", "z"][: places.shape[2]],
        "values": base64.b64encode(values.tobytes()).decode("ascii"),
    }
    thinned = "" if len(states) == subject.n_layers + 1 else f" The slider stops at {len(states)} states."
    colored = "class" if subject.classifies else "observed value"
    n_members = len(subject.estimator.members_)
    first = f" Shown is the first of {n_members} members." if n_members > 1 else ""
    far = "" if subject.classifies else plots.describe_colors(subject.y[shown, 0])
    plot.caption = (
        f"Where the held-out samples are after each layer, colored by {colored}: {seen}. "
        f"Move the slider or press play.{first} {far}{shown_note(subject, shown)}{thinned}"
    )
    return plot


def _places(flow: np.ndarray, subject: Subject, samples: np.ndarray) -> tuple[np.ndarray, list[str], str]:
    """The states as points of a line, a plane or a space [states, samples, axes], axis titles, and what one sees.

    No titles where that is too little, and why.
    """
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
    W = subject.estimator.network_.W.detach().cpu().numpy().astype(np.float64)
    directions, shares = answer_plane(flow[-1], W, classifies=subject.classifies)
    places, across = flow @ directions.T, shares[1] == 0
    names = ["answer", "spread across it"] if across else ["first direction", "second direction"]
    titles = [f"{name} ({share:.0%})" if share else name for name, share in zip(names, shares, strict=True)]
    if not subject.classifies:
        seen = "to the right the predicted value grows" if across else "the plane in which the outputs change most"
        return places, titles, f"{seen}; earlier states show it as if the layers ended there"
    if len(W) < 4:
        seen = f"the class scores depend on {'the first axis' if across else 'this plane'} alone"
        return places, titles, f"{seen}; earlier states show them as if the layers ended there"
    near = nearest_share(places[-1], subject.places(subject.predicted)[samples])
    held = f"{shares.sum():.0%} of it"
    if near < LEAST_NEAREST:
        why = (
            f"No plane shows how the classes separate: even in the one in which their scores change most ({held}), "
            f"{near:.0%} of the samples lie nearest to the center of their class."
        )
        return places, [], why
    seen = (
        f"the plane in which the scores of the classes change most, {held}; after the last layer {near:.0%} of the "
        f"samples lie nearest to the center of the class that is predicted for them"
    )
    return places, titles, seen


def _traces(subject: Subject, shown: np.ndarray, dimensions: int) -> list[dict[str, Any]]:
    kind, size = ("scatter3d", 3.5) if dimensions == 3 else ("scatter", 7)
    hover = "%{x:.3g}, %{y:.3g}" + (", %{z:.3g}" if dimensions == 3 else "")
    if subject.classifies:
        options = {"type": kind, "hovertemplate": f"{hover}<extra>%{{fullData.name}}</extra>"}
        return [class_trace(subject, k, size) | options for k in range(len(subject.labels))]
    low, high = plots.color_ends(subject.y[shown, 0])
    marker = {"color": numbers(subject.y[shown, 0]), "colorscale": "Viridis", "cmin": low, "cmax": high}
    marker |= {"size": size, "line": OUTLINE, "colorbar": {"thickness": 12, "title": plots.bar("observed")["title"]}}
    return [{"type": kind, "mode": "markers", "marker": marker, "hovertemplate": f"{hover}<extra></extra>"}]


def _axes(titles: list[str], places: np.ndarray) -> dict[str, Any]:
    """Ranges of all states, so that the axes stay as the points move."""
    ranges = [padded(places[:, :, k]) for k in range(len(titles))]
    if len(titles) < 3:
        return {"xaxis": axis(titles[0], range=ranges[0]), "yaxis": axis(titles[1], range=ranges[1])}
    scene = {
        f"{name}axis": {"title": {"text": title}, "zeroline": False, "range": ends, "nticks": 6}
        for name, title, ends in zip("xyz", titles, ranges, strict=True)
    }
    return {"scene": {**scene, "aspectmode": "cube", "camera": CAMERA}}


def answer_plane(last: np.ndarray, W: np.ndarray, *, classifies: bool) -> tuple[np.ndarray, np.ndarray]:
    """Two directions [2, width], and the shares of the spread of the answers that they show: of last states [n, width]
    and outputs' weights W [n_outputs, width].
    """
    weights = W - W.mean(axis=0) if classifies else W
    centred = last - last.mean(axis=0)
    _, sizes, turned = np.linalg.svd(centred @ weights.T, full_matrices=False)
    spread = sizes**2
    rank = int((spread > _NOTHING * spread.max(initial=0.0)).sum()) if spread.any() else 0
    found = [_signed(turned[k] @ weights) for k in range(min(2, rank))]
    shares = [float(spread[k] / spread.sum()) for k in range(min(2, rank))]
    while len(found) < 2:
        found.append(_widest(centred, centred @ np.array(found).reshape(-1, centred.shape[1]).T))
        shares.append(0.0)
    return np.array(found), np.array(shares)


def _widest(centred: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The direction, of length 1, in which the states spread most without going with the `others` [n, k]."""
    together = centred.T @ others
    basis = np.linalg.qr(together)[0] if together.any() else np.zeros((centred.shape[1], 0))
    across = centred - centred @ basis @ basis.T
    return _signed(np.linalg.svd(across, full_matrices=False)[2][0])


def _signed(direction: np.ndarray) -> np.ndarray:
    """The largest part positive, so that a report is the same each time."""
    sign = np.sign(direction[np.abs(direction).argmax()])
    return direction * (sign or 1.0)


def nearest_share(places: np.ndarray, labels: np.ndarray) -> float:
    """The share of places [n, 2] whose nearest centre of a class is that of their own."""
    names = np.unique(labels)
    centres = np.stack([places[labels == name].mean(axis=0) for name in names])
    nearest = ((places[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    return float((names[nearest] == labels).mean())
