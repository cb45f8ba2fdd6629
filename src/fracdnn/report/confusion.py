"""What each class is taken for: the confusion matrix, and the mistakes of each class in words."""

from typing import Any

import numpy as np

from fracdnn.report.plots import Plot, Table, axis, bar, label, numbers
from fracdnn.report.subject import Subject
from fracdnn.report.texts import share

# A matrix of more classes than this has no room for its counts; they are shown on hovering.
MOST_COUNTED = 30
# So many classes are listed, and so many that one of them is taken for.
MOST_LISTED, MOST_OTHERS = 20, 3
_LIGHT_BLUES = [[0, "#f3f6fa"], [0.5, "#7fb3d9"], [1, "#0a4a7c"]]
_DARK_BLUES = [[0, "#1b2330"], [0.5, "#1f6aa5"], [1, "#a9d6f5"]]


def confusion_plot(subject: Subject) -> Plot:
    """Counts of true against predicted class; the colour is the share of the row."""
    names = [label(name, 18) for name in subject.labels]
    size, counts = len(names), confusions(subject)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    heat: dict[str, Any] = {
        "type": "heatmap",
        "z": numbers(shares, 4),
        "zmin": 0,
        "zmax": 1,
        "xgap": 1,
        "ygap": 1,
        "colorscale": _LIGHT_BLUES,
        "colorbar": {**bar("share of true class"), "tickformat": ".0%"},
        "customdata": counts.tolist(),
        "hovertemplate": "true %{y}<br>predicted %{x}<br>%{customdata} samples, %{z:.1%}<extra></extra>",
    }
    texts = _texts(counts)
    dark, light = ([_ink(value, scale) for value in shares.ravel()] for scale in (_DARK_BLUES, _LIGHT_BLUES))
    ticks = {"tickvals": list(range(size)), "ticktext": names, "showgrid": False, "range": [-0.5, size - 0.5]}
    ticks |= {"tickfont": {"size": 12 if size <= 12 else 10}} if size <= MOST_COUNTED else {"nticks": 20}
    right = int(np.trace(counts))
    caption = (
        f"Rows are true classes and columns predicted ones: {right:,} of {subject.n:,} samples lie on the diagonal."
    )
    if size > MOST_COUNTED:
        caption += " Point at a cell for its count."
    caption += _listed(len(mistaken(counts)), size)
    return Plot(
        "confusion",
        "Confusion matrix",
        caption,
        [heat, *texts],
        {
            "xaxis": axis("predicted class", **ticks),
            "yaxis": axis("true class", **ticks) | {"range": [size - 0.5, -0.5]},
            "showlegend": False,
        },
        themes={
            "light": [{"colorscale": [_LIGHT_BLUES]}, *({"textfont.color": [light]} for _ in texts)],
            "dark": [{"colorscale": [_DARK_BLUES]}, *({"textfont.color": [dark]} for _ in texts)],
        },
        narrow=[{"showscale": False}, *({"textfont": {"size": 12 if size <= 8 else 8}} for _ in texts)],
        tall=size > 8,
        table=class_table(subject, counts),
    )


def _texts(counts: np.ndarray) -> list[dict[str, Any]]:
    """The counts as a trace of their own, so that each has the ink that its cell needs; none where there is no room."""
    size = len(counts)
    if size > MOST_COUNTED:
        return []
    down, across = np.indices(counts.shape).reshape(2, -1).tolist()
    texts = ["" if size > 8 and not count else f"{count:,}" for count in counts.ravel()]
    font = {"size": 14 if size <= 8 else 10}
    places = {"x": across, "y": down, "text": texts}
    return [{"type": "scatter", "mode": "text", **places, "textfont": font, "hoverinfo": "skip"}]


def _ink(value: float, scale: list[list[Any]]) -> str:
    """Black or white, whichever is told better from the colour of a value."""
    stops, colours = [stop for stop, _ in scale], np.array([_channels(colour) for _, colour in scale])
    light = luminance(np.array([np.interp(value, stops, channel) for channel in colours.T]))
    return "#000000" if (light + 0.05) ** 2 > 0.05 * 1.05 else "#ffffff"


def _channels(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def luminance(channels: np.ndarray) -> float:
    """Of red, green and blue from 0 to 255, as the Web Content Accessibility Guidelines define it."""
    parts = channels / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def confusions(subject: Subject) -> np.ndarray:
    """How many samples of each class [true, predicted]."""
    counts = np.zeros((len(subject.labels),) * 2, dtype=int)
    np.add.at(counts, (subject.codes, subject.places(subject.predicted)), 1)
    return counts


def mistaken(counts: np.ndarray) -> np.ndarray:
    """The classes that are taken for others or others for them."""
    wrong = counts - np.diag(counts.diagonal())
    return np.flatnonzero(wrong.sum(0) + wrong.sum(1))


def class_table(subject: Subject, counts: np.ndarray) -> Table | None:
    """Each class with a mistake and what it is taken for most; where they are many, those of most missed samples."""
    hits, true, told = counts.diagonal(), counts.sum(1), counts.sum(0)
    found = mistaken(counts)
    if not len(found):
        return None
    rows = []
    for k in np.sort(found[np.argsort((hits - true)[found], kind="stable")[:MOST_LISTED]]):
        others = [(int(counts[k, j]), str(subject.labels[j])) for j in range(len(counts)) if j != k and counts[k, j]]
        taken = [f"{name} ({n:,})" for n, name in sorted(others, key=lambda other: -other[0])[:MOST_OTHERS]]
        more = len(others) - len(taken)
        rows.append(
            [
                str(subject.labels[k]),
                f"{true[k]:,}",
                _share(hits[k], true[k]),
                _share(hits[k], told[k]),
                ", ".join([*taken, *([f"{more} more"] if more else [])]) or "–",
            ]
        )
    return Table(["class", "samples", "found", "right when told", "taken for"], rows)


def _listed(n_mistaken: int, n_classes: int) -> str:
    if not n_mistaken:
        return " No class is taken for another."
    told = (
        " “Found” is the share of a class that is told so (recall), “right when told” the share that is so of those "
        "told (precision)."
    )
    if n_mistaken > MOST_LISTED:
        return f"{told} Listed are the {MOST_LISTED} classes of which most samples are missed."
    others = n_classes - n_mistaken
    never = " The other one is never mistaken." if others == 1 else f" The other {others} are never mistaken."
    return told + (never if others else "")


def _share(part: int, whole: int) -> str:
    return share(part / whole) if whole else "–"
