"""The flow of the samples through the layers, state by state, under a slider.

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

from fracdnn.report import plots
from fracdnn.report.planes import class_trace
from fracdnn.report.plots import OUTLINE, Plot, axis, numbers, padded, shown_note
from fracdnn.report.subject import SHOWN, Subject

MOST_STATES = 41
# What a file may hold of the flow, in places, and what memory may hold of the trajectory, in numbers.
FILE_NUMBERS, MEMORY_NUMBERS = 6_000, 20_000_000
# Below this share of the greatest, a direction holds rounding errors.
_NOTHING = 1e-9


def flow_plot(subject: Subject) -> Plot:
    """Y_0 … Y_N of some samples. The page fills in the places: `states` holds them as base64 of float32,
    [states, 2, samples], samples sorted by trace.
    """
    states, plot = plots.picked(subject.shape.n_layers + 1, MOST_STATES), Plot("flow", "Flow through the layers")
    in_memory = MEMORY_NUMBERS // ((subject.shape.n_layers + 1) * subject.shape.width)
    shown = subject.shown(max(min(SHOWN, FILE_NUMBERS // len(states), in_memory), 20))
    codes = subject.codes[shown] if subject.classifies else np.zeros(len(shown))
    order = np.argsort(codes, kind="stable")  # by trace
    flow = subject.estimator.states(subject.X[shown])[states][:, order].astype(np.float64)
    if not np.isfinite(flow).all():
        plot.note = "The states are not finite, so there is nothing to draw."
        return plot
    places, titles, seen = _places(flow, subject, shown[order])
    values = np.ascontiguousarray(places.transpose(0, 2, 1), dtype="<f4")
    plot.data = _traces(subject, shown)
    # Ranges of all states, so that the axes stay as the points move.
    across, up = (axis(title, range=padded(places[:, :, k])) for k, title in enumerate(titles))
    plot.layout = {"showlegend": False, "xaxis": across, "yaxis": up}
    plot.key = plots.class_key(subject.labels) if subject.classifies else None
    plot.states = {
        "layers": states.tolist(),
        "sizes": [int((codes == k).sum()) for k in range(len(plot.data))],
        "values": base64.b64encode(values.tobytes()).decode("ascii"),
    }
    thinned = "" if len(states) == subject.shape.n_layers + 1 else f" The slider stops at {len(states)} states."
    colored, far = ("class", "") if subject.classifies else ("value", plots.describe_colors(subject.y[shown, 0]))
    plot.caption = (
        f"Where the held-out samples are after each layer, colored by observed {colored}: {seen}. Move the slider or "
        f"press play.{subject.first_member} {far}{shown_note(subject, shown)}{thinned}"
    )
    return plot


def _places(flow: np.ndarray, subject: Subject, samples: np.ndarray) -> tuple[np.ndarray, list[str], str]:
    """The states as points [states, samples, 2], axis titles, and what one sees."""
    if subject.shape.width <= 2:  # of one, all lie on a line
        places = np.pad(flow, ((0, 0), (0, 0), (0, 2 - subject.shape.width)))
        return places, ["first coordinate", "second coordinate"], "the axes are the coordinates of the state"
    W = subject.estimator.network_.W.detach().cpu().numpy().astype(np.float64)
    directions, shares = answer_plane(flow[-1], W, classifies=subject.classifies)
    places, across = flow @ directions.T, shares[1] == 0
    names = ["answer", "spread across it"] if across else ["first direction", "second direction"]
    titles = [f"{name} ({share:.0%})" if share else name for name, share in zip(names, shares, strict=True)]
    if subject.classifies and len(W) >= 4:
        near = nearest_share(places[-1], subject.places(subject.predicted)[samples])
        seen = (
            f"the plane in which the scores of the classes change most, {shares.sum():.0%} of it; after the last layer "
            f"{near:.0%} of the samples lie nearest to the center of the class that is predicted for them"
        )
        return places, titles, seen
    if subject.classifies:
        seen = f"the class scores depend on {'the first axis' if across else 'this plane'} alone"
    else:
        seen = "the predicted value grows to the right" if across else "the plane in which the outputs change most"
    return places, titles, f"{seen}; earlier states are drawn as if the network ended there"


def _traces(subject: Subject, shown: np.ndarray) -> list[dict[str, Any]]:
    hover = "%{x:.3g}, %{y:.3g}<extra>%{fullData.name}</extra>"
    if subject.classifies:
        return [{**class_trace(subject, k, 7), "hovertemplate": hover} for k in range(len(subject.labels))]
    low, high = plots.color_ends(subject.y[shown, 0])
    marker = {"color": numbers(subject.y[shown, 0]), "colorscale": "Viridis", "cmin": low, "cmax": high}
    marker |= {"size": 7, "line": OUTLINE, "colorbar": plots.bar("observed")}
    return [{"mode": "markers", "name": "", "marker": marker, "hovertemplate": hover}]


def answer_plane(last: np.ndarray, W: np.ndarray, *, classifies: bool) -> tuple[np.ndarray, np.ndarray]:
    """Two directions [2, width], and the shares of the spread of the answers that they show: of last states [n, width]
    and outputs' weights W [n_outputs, width].
    """
    weights = W - W.mean(axis=0) if classifies else W
    centered = last - last.mean(axis=0)
    _, sizes, turned = np.linalg.svd(centered @ weights.T, full_matrices=False)
    spread = sizes**2
    rank = int((spread > _NOTHING * spread.max(initial=0.0)).sum()) if spread.any() else 0
    found = [_signed(turned[k] @ weights) for k in range(min(2, rank))]
    shares = [float(spread[k] / spread.sum()) for k in range(min(2, rank))]
    while len(found) < 2:  # that in which the states spread most without going with the others
        together = centered.T @ centered @ np.array(found).reshape(-1, centered.shape[1]).T
        basis = np.linalg.qr(together)[0] if together.any() else np.zeros((centered.shape[1], 0))
        found.append(_signed(np.linalg.svd(centered - centered @ basis @ basis.T, full_matrices=False)[2][0]))
        shares.append(0.0)
    return np.array(found), np.array(shares)


def _signed(direction: np.ndarray) -> np.ndarray:
    """The largest part positive, so that a report is the same each time."""
    return direction * (np.sign(direction[np.abs(direction).argmax()]) or 1.0)


def nearest_share(places: np.ndarray, labels: np.ndarray) -> float:
    """The share of places [n, 2] whose nearest center of a class is that of their own."""
    names = np.unique(labels)
    centers = np.stack([places[labels == name].mean(axis=0) for name in names])
    nearest = ((places[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    return float((names[nearest] == labels).mean())
