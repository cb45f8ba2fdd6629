"""Figures on paper: one function a figure, which takes numbers as JSON holds them and gives a Matplotlib figure."""

from pathlib import Path
from typing import Any

from fracdnn.files import write_whole

# Okabe and Ito's palette, which color-blind readers distinguish too.
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
YELLOW, GREY = "#F0E442", "#7F7F7F"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, YELLOW, GREY)


def new_figure(width: float, height: float) -> Any:
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
