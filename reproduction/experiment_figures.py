"""Figures of single experiments: the example, the derivative test, flow, depth."""

from typing import Any

import numpy as np

from fracdnn.report.figures import BLUE, GREEN, PALETTE, PURPLE, VERMILION, new_figure

# Twenty classes: ten colors that differ in lightness too, each with a full and an open marker.
_TEN = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F", "#7B3294")


def flow_figure(numbers: dict[str, Any]) -> Any:
    """Start (squares) and end (dots) of all samples, a color for each class; same scale in both panels."""
    networks = [r for r in numbers["runs"] if r["kind"] == "picture"]
    figure = new_figure(5.2 * len(networks), 5)
    panels = figure.subplots(1, len(networks), sharex=True, sharey=True, squeeze=False)[0]
    start, target = np.array(networks[0]["start"]), np.array(networks[0]["target"])
    for axes, network in zip(panels, networks, strict=True):
        end = np.array(network["end"])
        for label in np.unique(target):
            of_class = target == label
            color = _TEN[label % 10]
            full = color if label < 10 else "none"
            options = {"linestyle": "none", "markeredgecolor": color, "markerfacecolor": full}
            axes.plot(*start[of_class].T, marker="s", markersize=3, alpha=0.5, **options)
            axes.plot(*end[of_class].T, marker="o", markersize=5, **options)
        share = 100 * network["separability"]
        axes.set(title=f"order {network['order']:g}: linear classifier {share:.1f} %", xlabel="first feature (scaled)")
    panels[0].set_ylabel("second feature (scaled)")
    figure.suptitle("Perfumes before (squares) and after (circles) the network; classes 11 to 20 are open", fontsize=10)
    return figure


def depth_independence_figure(numbers: dict[str, Any]) -> Any:
    """Iterations to the target loss over the number of layers, a panel for each start; median and range."""
    runs = numbers["runs"]
    starts = list(dict.fromkeys(r["start"] for r in runs))
    figure = new_figure(11, 3.8)
    panels = figure.subplots(1, len(starts), sharey=True)
    for axes, start in zip(panels, starts, strict=True):
        for color, order in zip(PALETTE, dict.fromkeys(r["order"] for r in runs), strict=False):
            chosen = [r["steps"] for r in runs if r["start"] == start and r["order"] == order]
            depths = [step["n_layers"] for step in chosen[0]]
            counts = np.array([[step["iterations"] for step in steps] for steps in chosen])
            axes.plot(depths, np.median(counts, axis=0), "o-", color=color, label=f"order {order:g}, median")
            axes.fill_between(depths, counts.min(0), counts.max(0), color=color, alpha=0.15)
        axes.set_xscale("log", base=2)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_xticks(depths, [str(depth) for depth in depths])
        axes.set(xlabel="number of layers $N$, $T = N\\tau$ fixed", title=f"start: {start}")
    panels[0].set_ylabel(f"iterations to a loss of {runs[0]['target']:g}")
    panels[0].legend(frameon=False)
    return figure


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
    colors = dict(zip(orders, (BLUE, GREEN, PURPLE, VERMILION), strict=False))
    for axes, name in zip(panels, ("W", "K", "b"), strict=True):
        for c in comparisons:
            style, word = {
                "exact": ("o-", "exact"),
                "classical": ("+:", "classical"),
                "continuous": ("x--", "printed"),
            }[c["adjoint"]]
            options = {"color": colors[c["order"]], "markersize": 4, "linewidth": 1.2}
            axes.loglog(increments, c["errors"][name], style, **options, label=f"{word}, order {c['order']:g}")
        largest = max(c["errors"][name][0] for c in comparisons if c["adjoint"] == "exact")
        reference = [largest * (size / increments[0]) ** 2 for size in increments]
        axes.loglog(increments, reference, ":", color="0.4", label="second order")
        axes.set(xlabel="increment", title=f"gradient with respect to ${name}$")
    panels[0].set_ylabel("relative difference to central differences")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return figure
