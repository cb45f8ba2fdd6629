"""What the plots of a report share: plain dicts as Plotly reads them, nothing imported from Plotly.

Names that come from the user go through `label`: Plotly reads a little HTML in every text.
"""

import html
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fracdnn.report.figures import GREY, PALETTE
from fracdnn.report.subject import Subject

# Longer curves are thinned evenly: no screen shows more.
MOST_POINTS = 1000
# Ends of what counts as usual, which outliers do not move.
_USUAL = (0.02, 0.98)
OUTLINE = {"width": 0.7, "color": "#8c8c8c"}
# Shapes that flat and spatial plots share.
SYMBOLS = ("circle", "diamond", "square", "cross", "x")


@dataclass
class Plot:
    """A plot with its heading and a sentence on what one sees; `note` stands in for a plot that has nothing to show.

    A `tall` plot gets more height, a `wide` one the whole row. `key` is the list of classes to show with it, `states`
    the data of a slider (see `flow`). Small plots may stand side by side in its place: `parts`. A `table` stands below
    it or alone: rows of texts, the headings first; or facts by name.
    """

    name: str
    heading: str
    caption: str = ""
    data: list[dict[str, Any]] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)
    tall: bool = False
    wide: bool = False
    key: list[dict[str, str]] | None = None
    states: dict[str, Any] | None = None
    note: str = ""
    table: list[list[str]] | dict[str, str] | None = None
    parts: list["Plot"] = field(default_factory=list)

    @property
    def drawn(self) -> list["Plot"]:
        return [plot for plot in (self, *self.parts) if plot.data]


def numbers(values: Any, digits: int = 5) -> Any:
    """Arrays as nested lists of few digits, whole numbers as they are; None for what is not finite: JSON has no NaN."""
    if isinstance(values, np.ndarray | list | tuple):
        return [numbers(value, digits) for value in values]
    if values is None or isinstance(values, int):
        return values
    return float(f"{values:.{digits}g}") if np.isfinite(values) else None


def scatter(mode: str, x: Any, y: Any, digits: int = 5, **options: Any) -> dict[str, Any]:
    return {"type": "scatter", "mode": mode, "x": numbers(x, digits), "y": numbers(y, digits), **options}


def dashed(x: Any, y: Any, **options: Any) -> dict[str, Any]:
    return scatter("lines", x, y, line={"color": GREY, "dash": "dash", "width": 1.5}, hoverinfo="skip", **options)


def label(name: Any, length: int = 24) -> str:
    """A name from the user as Plotly shows it literally; cut where it is long."""
    text = " ".join(str(name).split())
    short = text if len(text) <= length else text[: length - 1] + "…"
    return html.escape(short, quote=False).replace("$", "&#36;")  # as between $ it would look for mathematics


def axis(title: str, **options: Any) -> dict[str, Any]:
    return {"title": {"text": title, "standoff": 8}, "automargin": True, "zeroline": False, **options}


def picked(n: int, most: int) -> np.ndarray:
    """At most so many of n places, evenly, with the first and the last."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(int))


def padded(values: np.ndarray, share: float = 0.06) -> tuple[float, float]:
    """A range around the values, never empty."""
    low, high = float(values.min()), float(values.max())
    pad = share * (high - low) or 1.0
    return low - pad, high + pad


def usual_ends(values: np.ndarray) -> tuple[float, float]:
    """What an axis has to reach: few far values stretch it by no more than the range of the usual ones."""
    ends, usual = np.array([values.min(), values.max()]), np.quantile(values, _USUAL)
    if usual[0] < usual[1]:
        ends = np.clip(ends, *(usual + np.ptp(usual) * np.array([-1, 1])))
    return float(ends[0]), float(ends[1])


def class_style(k: int) -> dict[str, str]:
    """Color and shape of class k: eight colors, then lighter and darker ones, each round with its own shape."""
    turn, place = divmod(k, len(PALETTE))
    toward, share = ((0, 0.0), (255, 0.5), (0, 0.35))[turn % 3]  # white, black
    color = "#" + bytes(round(part * (1 - share) + toward * share) for part in bytes.fromhex(PALETTE[place][1:])).hex()
    return {"color": color, "symbol": SYMBOLS[turn % len(SYMBOLS)]}


def class_key(labels: list[Any]) -> list[dict[str, str]]:
    return [{"name": str(name), "place": str(k), **class_style(k)} for k, name in enumerate(labels)]


def shown_note(subject: Subject, shown: np.ndarray) -> str:
    return "" if len(shown) == subject.n else f" These are {len(shown):,} of {subject.n:,} samples, drawn at random."
