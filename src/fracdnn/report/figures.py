"""Figures on paper: one function a figure, each takes arrays and a path."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fracdnn.files import write_whole

# Okabe and Ito's palette, told apart by colour-blind readers too.
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"


def solution_figure(
    path: Path,
    t: np.ndarray,
    exact: np.ndarray,
    numerical: np.ndarray,
    step_sizes: Sequence[float],
    errors: Sequence[float],
    *,
    title: str,
) -> Path:
    """Exact and numerical solution over time, and the error at the final time over the step size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(t, exact, color=BLUE, linewidth=3, label="exact, Mittag-Leffler")
    left.plot(t, numerical, color=VERMILION, linewidth=1.5, linestyle="--", label="L1 scheme")
    left.set(xlabel="time $t$", ylabel="solution $u(t)$", title=title)
    left.legend(frameon=False)
    right.loglog(step_sizes, errors, "o-", color=VERMILION, label="L1 scheme")
    reference = [errors[0] * step / step_sizes[0] for step in step_sizes]
    right.loglog(step_sizes, reference, ":", color="0.4", label="first order")
    right.set(xlabel=r"step size $\tau$", ylabel="error at the final time", title="Convergence")
    right.set_xticks(step_sizes, [f"{step:g}" for step in step_sizes], minor=False)
    right.set_yticks(errors, [f"{error:.1e}" for error in errors], minor=False)
    right.minorticks_off()
    right.legend(frameon=False)
    return _save(figure, path)


def gradient_figure(
    path: Path, increments: Sequence[float], curves: Sequence[tuple[float, str, dict[str, list[float]]]]
) -> Path:
    """Error of gradients against central differences for W, K, b; `curves` holds order, adjoint and errors by name."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.8), layout="constrained")
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    orders = sorted({order for order, _, _ in curves}, reverse=True)
    colours = dict(zip(orders, (BLUE, GREEN, PURPLE, VERMILION), strict=False))
    for axes, name in zip(panels, ("W", "K", "b"), strict=True):
        for order, adjoint, errors in curves:
            style = {"exact": "o-", "continuous": "x--"}[adjoint]
            label = f"{'exact' if adjoint == 'exact' else 'printed'}, order {order:g}"
            axes.loglog(increments, errors[name], style, color=colours[order], markersize=4, linewidth=1.2, label=label)
        largest = max(curve[2][name][0] for curve in curves if curve[1] == "exact")
        reference = [largest * (size / increments[0]) ** 2 for size in increments]
        axes.loglog(increments, reference, ":", color="0.4", label="second order")
        axes.set(xlabel="increment", title=f"gradient with respect to ${name}$")
    panels[0].set_ylabel("relative difference to central differences")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return _save(figure, path)


def _save(figure: Any, path: Path) -> Path:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return write_whole(path, lambda temporary: figure.savefig(temporary, dpi=150))
