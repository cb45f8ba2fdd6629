"""Figures on paper: one function a figure, which takes numbers as JSON holds them and gives a Matplotlib figure."""

from pathlib import Path
from typing import Any

from fracdnn.files import write_whole

# Okabe and Ito's palette, told apart by colour-blind readers too.
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


def solution_figure(numbers: dict[str, Any]) -> Any:
    """Exact and numerical solution over time, and the error at the final time over the step size."""
    figure = new_figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    (curve,) = (r["curve"] for r in numbers["runs"] if "curve" in r)
    left.plot(curve["t"], curve["exact"], color=BLUE, linewidth=3, label="exact, Mittag-Leffler")
    left.plot(curve["t"], curve["numerical"], color=VERMILION, linewidth=1.5, linestyle="--", label="L1 scheme")
    left.set(xlabel="time $t$", ylabel="solution $u(t)$", title=r"$d_t^{0.5}\,u = -4u$, $u(0) = 0.5$")
    left.legend(frameon=False)
    steps, errors = ([r[name] for r in numbers["runs"]] for name in ("step_size", "error"))
    right.loglog(steps, errors, "o-", color=VERMILION, label="L1 scheme")
    right.loglog(steps, [errors[0] * step / steps[0] for step in steps], ":", color="0.4", label="first order")
    right.set(xlabel=r"step size $\tau$", ylabel="error at the final time", title="Convergence")
    right.set_xticks(steps, [f"{step:g}" for step in steps], minor=False)
    right.set_yticks(errors, [f"{error:.1e}" for error in errors], minor=False)
    right.minorticks_off()
    right.legend(frameon=False)
    return figure


def gradient_figure(numbers: dict[str, Any]) -> Any:
    """Error of gradients against central differences for W, K, b, exact and printed adjoint."""
    figure = new_figure(11, 3.8)
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    comparisons = numbers["runs"]
    increments = comparisons[0]["increments"]
    orders = sorted({c["order"] for c in comparisons}, reverse=True)
    colours = dict(zip(orders, (BLUE, GREEN, PURPLE, VERMILION), strict=False))
    for axes, name in zip(panels, ("W", "K", "b"), strict=True):
        for c in comparisons:
            style, word = {
                "exact": ("o-", "exact"),
                "classical": ("+:", "classical"),
                "continuous": ("x--", "printed"),
            }[c["adjoint"]]
            options = {"color": colours[c["order"]], "markersize": 4, "linewidth": 1.2}
            axes.loglog(increments, c["errors"][name], style, **options, label=f"{word}, order {c['order']:g}")
        largest = max(c["errors"][name][0] for c in comparisons if c["adjoint"] == "exact")
        reference = [largest * (size / increments[0]) ** 2 for size in increments]
        axes.loglog(increments, reference, ":", color="0.4", label="second order")
        axes.set(xlabel="increment", title=f"gradient with respect to ${name}$")
    panels[0].set_ylabel("relative difference to central differences")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return figure
