"""Figures on paper: a palette, and files that hold the same bytes for the same numbers."""

from io import StringIO
from pathlib import Path
from typing import Any

from fracdnn.files import write_whole

# Okabe and Ito's palette, which color-blind readers distinguish too.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
YELLOW, GREY = "#F0E442", "#7F7F7F"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, YELLOW, GREY)
# Color of text and axes in a figure for a page, replaced by the text color of the page in light or dark.
INK = "#010203"


def new_figure(width: float, height: float) -> Any:
    """Return an empty Matplotlib figure that arranges its axes itself."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(path: Path, figure: Any) -> Path:
    """Write the figure in the format of the path's ending, whole or not at all."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    # Without a date, the same numbers give the same file.
    metadata = {"Date": None} if path.suffix == ".svg" else {}
    return write_whole(path, lambda temporary: figure.savefig(temporary, dpi=150, metadata=metadata))


def inline_svg(figure: Any) -> str:
    """Return the figure as an <svg> element on a transparent ground, with text in the color of the page."""
    import matplotlib

    text = StringIO()
    # Text stays text, which a reader can select; a salt makes the names of parts the same each time.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fracdnn"}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return text.getvalue().partition("<svg")[2].join(["<svg", ""]).replace(INK, "currentColor")
