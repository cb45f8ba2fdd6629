"""Figures of trained networks: accuracy, flow, gradients over layers, depth, order, non-smooth functions."""

from typing import Any

import numpy as np

from fracdnn.report.figures import BLUE, ORANGE, PALETTE, VERMILION, new_figure

# Twenty classes: ten colours that differ in lightness too, each with a full and an open marker.
_TEN = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F", "#7B3294")


def accuracy_figure(runs: list[dict[str, Any]], paper: dict[tuple[str, float], tuple[str, str]]) -> Any:
    """Each run's accuracy as a dot, the paper's as a bar across."""
    figure = new_figure(9, 3.8)
    panels = figure.subplots(1, 2, width_ratios=(2, 4))
    for axes, data, title in zip(panels, ("CLS", "PD"), ("level sets", "perfumes"), strict=True):
        labels: list[str] = []
        for (name, order), (train, test) in paper.items():
            if name != data:
                continue
            chosen = [r for r in runs if r["setting"]["data"] == data and r["setting"]["order"] == order]
            columns = [("train", False, "training", train), ("test", data == "PD", "test", test)]
            for key, by_time, word, printed in columns:
                x = len(labels)
                values = [100 * r[key] for r in chosen if r["by_time"] == by_time]
                axes.plot([x] * len(values), values, "o", color=BLUE, alpha=0.6, label="here, each seed")
                axes.plot([x - 0.3, x + 0.3], [float(printed)] * 2, color=VERMILION, linewidth=3, label="paper")
                labels.append(f"order {order:g}\n{word}")
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        axes.set(title=title, ylabel="accuracy, %")
    handles, names = panels[0].get_legend_handles_labels()
    unique = dict(zip(names, handles, strict=True))
    panels[1].legend(unique.values(), unique.keys(), frameon=False, loc="lower left")
    return figure


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
    networks = numbers["networks"]
    figure = new_figure(5.2 * len(networks), 5)
    panels = figure.subplots(1, len(networks), sharex=True, sharey=True, squeeze=False)[0]
    start, target = np.array(numbers["start"]), np.array(numbers["target"])
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


def vanishing_gradient_figure(numbers: dict[str, Any]) -> Any:
    """Gradient norm of the first (dashed) and last (solid) layer over the steps; exact and printed adjoint."""
    figure = new_figure(11, 4.2)
    panels = figure.subplots(1, 2, sharey=True)
    curves = [c for c in numbers["curves"] if c["seed"] == numbers["curves"][0]["seed"]]
    names = list(dict.fromkeys(c["name"].removesuffix(", printed") for c in curves))
    colours = dict(zip(names, PALETTE, strict=False))
    titles = (("exact", "exact gradient"), ("continuous", "the paper's printed adjoint"))
    for axes, (adjoint, title) in zip(panels, titles, strict=True):
        for c in curves:
            if c["adjoint"] == adjoint:
                name = c["name"].removesuffix(", printed")
                steps = range(len(c["first"]))
                # A mark at the start: a network that finds no step has nothing else to show.
                options = {"color": colours[name], "linewidth": 1.3, "markevery": [0]}
                axes.semilogy(steps, c["last"], "s-", **options, label=f"{name}, last layer")
                axes.semilogy(steps, c["first"], "o--", **options, label=f"{name}, first layer")
        axes.set(xlabel="step of steepest descent", title=title)
    panels[0].set_ylabel("norm of the gradient of $(K, b)$")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
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


def learned_order_figure(numbers: dict[str, Any]) -> Any:
    """Above, where the order ends against where it starts; below, test accuracy of learned and of fixed orders."""
    runs = numbers["runs"]
    sets = list(dict.fromkeys(r["data"] for r in runs))
    figure = new_figure(9, 6)
    panels = figure.subplots(2, len(sets), squeeze=False, sharex=True)
    for (upper, lower), data in zip(panels.T, sets, strict=True):
        learned = [r for r in runs if r["data"] == data and r["learned"]]
        fixed = [r for r in runs if r["data"] == data and not r["learned"]]
        upper.plot([0, 1], [0, 1], ":", color="0.4", label="unchanged")
        upper.plot([r["start"] for r in learned], [r["order"] for r in learned], "o", color=VERMILION, alpha=0.6)
        upper.set(title={"CLS": "level sets", "PD": "perfumes"}[data], ylabel="learned order", ylim=(-0.03, 1.03))
        upper.legend(frameon=False)
        lower.plot([r["start"] for r in fixed], [100 * r["test"] for r in fixed], "x", color=BLUE, label="fixed")
        ends = [r["order"] for r in learned]
        lower.plot(
            ends, [100 * r["test"] for r in learned], "o", color=VERMILION, alpha=0.6, label="learned, at its end"
        )
        lower.set(xlabel="order (above: at the start)", ylabel="test accuracy, %")
        lower.legend(frameon=False)
    return figure


def nonsmooth_figure(numbers: dict[str, Any]) -> Any:
    """Error over the order for each target; median, and each seed as a dot."""
    runs = numbers["runs"]
    targets = list(dict.fromkeys(r["target"] for r in runs))
    figure = new_figure(3 * len(targets), 3.4)
    panels = figure.subplots(1, len(targets), sharey=True, squeeze=False)[0]
    for axes, target in zip(panels, targets, strict=True):
        chosen = [r for r in runs if r["target"] == target]
        axes.semilogy([r["order"] for r in chosen], [r["error"] for r in chosen], "o", color=BLUE, alpha=0.5)
        orders = sorted({r["order"] for r in chosen})
        medians = [float(np.median([r["error"] for r in chosen if r["order"] == order])) for order in orders]
        axes.semilogy(orders, medians, "-", color=VERMILION, label="median")
        axes.set(xlabel="order", title=target)
    panels[0].set_ylabel("root mean square error")
    panels[0].legend(frameon=False)
    return figure
