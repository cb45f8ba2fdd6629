"""Figures on paper: one function a figure, each takes arrays and a path."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fracdnn.report.files import write_whole

# Okabe and Ito's palette, told apart by colour-blind readers too.
BLUE, VERMILION = "#0072B2", "#D55E00"


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
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return write_whole(path, lambda temporary: figure.savefig(temporary, dpi=150))
