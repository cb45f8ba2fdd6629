"""Figures of trained networks: level sets, flow, depth."""

from typing import Any

import numpy as np

from fracdnn.report.figures import BLUE, ORANGE, PALETTE, new_figure

# Twenty classes: ten colours that differ in lightness too, each with a full and an open marker.
_TEN = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F", "#7B3294")


def level_set_figure(points: np.ndarray, target: np.ndarray, wrong: np.ndarray, flow: np.ndarray, loss: list) -> Any:
    """The test points by class with those misclassified, where the network carries them, and the loss."""
    figure = new_figure(12, 4)
    left, middle, right = figure.subplots(1, 3)
    for label, colour in ((0, BLUE), (1, ORANGE)):
        shown = target[: flow.shape[1]] == label
        left.plot(*points[: flow.shape[1]][shown].T, ".", color=colour, markersize=3, label=f"class {label}")
        middle.plot(*flow[-1][shown].T, ".", color=colour, markersize=3)
    left.plot(*points[wrong].T, "x", color="black", markersize=6, label=f"wrong, {wrong.sum()} of {len(points):,}")
    left.set(xlabel="$x$", ylabel="$y$", title="test points", aspect="equal")
    left.legend(loc="lower right", fontsize=8, markerscale=2)
    middle.set(xlabel="first feature", ylabel="second feature", title="after the last layer, $Y_N$")
    right.semilogy(range(1, len(loss) + 1), loss, color=BLUE)
    right.set(xlabel="BFGS iteration", ylabel="objective on the mini-batch", title="training")
    return figure


def flow_figure(numbers: dict[str, Any]) -> Any:
    """Start (squares) and end (dots) of all samples, a colour for each class; same scale in both panels."""
    networks = [r for r in numbers["runs"] if r["kind"] == "picture"]
    figure = new_figure(5.2 * len(networks), 5)
    panels = figure.subplots(1, len(networks), sharex=True, sharey=True, squeeze=False)[0]
    start, target = np.array(networks[0]["start"]), np.array(networks[0]["target"])
    for axes, network in zip(panels, networks, strict=True):
        end = np.array(network["end"])
        for label in np.unique(target):
            of_class = target == label
            colour = _TEN[label % 10]
            full = colour if label < 10 else "none"
            options = {"linestyle": "none", "markeredgecolor": colour, "markerfacecolor": full}
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
        for colour, order in zip(PALETTE, dict.fromkeys(r["order"] for r in runs), strict=False):
            chosen = [r["steps"] for r in runs if r["start"] == start and r["order"] == order]
            depths = [step["n_layers"] for step in chosen[0]]
            counts = np.array([[step["iterations"] for step in steps] for steps in chosen])
            axes.plot(depths, np.median(counts, axis=0), "o-", color=colour, label=f"order {order:g}, median")
            axes.fill_between(depths, counts.min(0), counts.max(0), color=colour, alpha=0.15)
        axes.set_xscale("log", base=2)
        axes.set_yscale("symlog", linthresh=1)
        axes.set_xticks(depths, [str(depth) for depth in depths])
        axes.set(xlabel="number of layers $N$, $T = N\\tau$ fixed", title=f"start: {start}")
    panels[0].set_ylabel(f"iterations to a loss of {runs[0]['target']:g}")
    panels[0].legend(frameon=False)
    return figure
