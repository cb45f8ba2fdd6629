"""Figures of the paper's account: gradients over layers and under refinement, orders against their rivals."""

from typing import Any

import numpy as np

from fracdnn.report.figures import BLUE, GREEN, GREY, ORANGE, PALETTE, PURPLE, VERMILION, new_figure

COLOURS = {"plain": PURPLE, "order 1": "black", "order 0.9": VERMILION, "order 0.5": GREEN, "order 0.1": BLUE}


def refinement_figure(numbers: dict[str, Any]) -> Any:
    """Relative error and cosine of the printed gradient over the number of layers; median and range of the seeds."""
    figure = new_figure(9.5, 3.8)
    panels = figure.subplots(1, 2)
    runs = numbers["runs"]
    kinds = list(dict.fromkeys((r["order"], r["adjoint"]) for r in runs))
    for axes, name, words in zip(
        panels, ("with_step", "cosine"), ("relative error, times $\\tau$", "cosine with the gradient"), strict=True
    ):
        for (order, adjoint), color in zip(kinds, (GREY, "black", VERMILION, GREEN, BLUE), strict=False):
            chosen = [r for r in runs if r["order"] == order and r["adjoint"] == adjoint]
            depths = list(dict.fromkeys(r["n_layers"] for r in chosen))
            table = np.array([[r[name] for r in chosen if r["n_layers"] == depth] for depth in depths])
            word = {"continuous": "printed", "classical": "classical"}[adjoint]
            axes.plot(depths, np.median(table, 1), "o-", color=color, markersize=4, label=f"order {order:g}, {word}")
            axes.fill_between(depths, table.min(1), table.max(1), color=color, alpha=0.12, linewidth=0)
        axes.set_xscale("log", base=2)
        axes.set_xticks(depths, [str(depth) for depth in depths])
        axes.set(xlabel="number of layers $N$, $T = 1$", ylabel=words)
    panels[0].set_yscale("log")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return figure


def vanishing_gradient_figure(numbers: dict[str, Any]) -> Any:
    """Norms at the first and last layer over the steps as bands of the seeds, whole and without the plain network."""
    runs = [r for r in numbers["runs"] if r["kind"] == "trained"]
    figure = new_figure(12, 7.2)
    panels = figure.subplots(2, 3)
    exact = ("order 1", "order 0.9", "order 0.5", "order 0.1")
    titles = ("exact gradient", "the same without the plain network", "the paper's printed adjoint")
    for axes, title, chosen in zip(
        panels[0], titles, (("plain", *exact), exact, tuple(f"{name}, printed" for name in exact)), strict=True
    ):
        for name in chosen:
            of_name = [r for r in runs if r["network"] == name]
            _bands(axes, of_name, COLOURS[name.removesuffix(", printed")], name, with_bands="printed" not in name)
        axes.set(xlabel="step of steepest descent", title=title, yscale="log")
    panels[0, 0].set_ylabel("norm of the gradient of $(K, b)$")
    for axes, name, title in zip(
        panels[1],
        ("profile_start", "profile_end", "profile_end"),
        ("start", "after the descent", "printed"),
        strict=True,
    ):
        suffix = ", printed" if title == "printed" else ""
        title = "after, printed adjoint" if suffix else title
        for kind in exact:
            profiles = np.array([r[name] for r in runs if r["network"] == kind + suffix])
            if len(profiles):
                axes.plot(np.linspace(1, 70, 11), np.median(profiles, 0), "o-", color=COLOURS[kind], markersize=3)
        axes.set(xlabel="layer", title=f"each layer, {title}", yscale="log")
    panels[1, 0].set_ylabel("norm, median of the seeds")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return figure


def _bands(axes: Any, runs: list[dict[str, Any]], color: str, name: str, *, with_bands: bool) -> None:
    """Median of the seeds, and the middle half as a band; a run that ended early keeps its last value."""
    if not runs:
        return
    for key, style, word in (("last", "-", "last layer"), ("first", "--", "first layer")):
        longest = max(len(r[key]) for r in runs)
        table = np.array([r[key] + [r[key][-1]] * (longest - len(r[key])) for r in runs])
        low, half, high = np.quantile(table, (0.25, 0.5, 0.75), axis=0)
        axes.plot(half, style, color=color, linewidth=1.3, label=f"{name}, {word}")
        if with_bands:
            axes.fill_between(range(longest), low, high, color=color, alpha=0.12, linewidth=0)


def arms_figure(runs: list[dict[str, Any]], panels_of: str, measure: str, label: str, *, scale: str = "log") -> Any:
    """A measure of each network in each panel: each seed a dot, the median a bar; fractional ones in color."""
    from matplotlib.ticker import LogLocator, NullFormatter

    sets = list(dict.fromkeys(r[panels_of] for r in runs))
    networks = [name for name in dict.fromkeys(r["network"] for r in runs) if "τ = " not in name]
    figure = new_figure(3.2 * len(sets) + 1.5, 0.32 * len(networks) + 1.6)
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    for axes, each in zip(panels, sets, strict=True):
        for place, name in enumerate(networks):
            values = [r[measure] for r in runs if r[panels_of] == each and r["network"] == name]
            color = GREY if name.startswith("order 1") else VERMILION
            axes.plot(values, [place] * len(values), "o", color=color, alpha=0.35, markersize=4)
            if values:
                axes.plot([float(np.median(values))] * 2, [place - 0.35, place + 0.35], color="black", linewidth=2)
        axes.set(title=each, xlabel=label, xscale=scale)
        if scale == "log":
            low, high = axes.get_xlim()
            steps = (1, 2, 5) if high / low < 100 else (1,)
            axes.xaxis.set_major_locator(LogLocator(subs=steps))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(axis="x", labelsize=8)
    panels[0].set_yticks(range(len(networks)), networks, fontsize=8)
    panels[0].invert_yaxis()
    figure.supxlabel("a dot is a seed, a bar the median; fractional networks in color", fontsize=8)
    return figure


def profile_figure(runs: list[dict[str, Any]]) -> Any:
    """Above, where a learned order ends; below, the loss of fixed orders; a color for what is held."""
    sets = list(dict.fromkeys(r["data"] for r in runs))
    holds = list(dict.fromkeys(r["held"] for r in runs))
    figure = new_figure(4.5 * len(sets) + 1.5, 6.4)
    panels = figure.subplots(2, len(sets), squeeze=False, sharex=True)
    for (upper, lower), data in zip(panels.T, sets, strict=True):
        for place, (hold, color) in enumerate(zip(holds, (VERMILION, BLUE, GREEN, ORANGE, *PALETTE), strict=False)):
            chosen = [r for r in runs if r["data"] == data and r["held"] == hold]
            learned = [r for r in chosen if r["learned"]]
            shift = 0.015 * (place - 1)
            starts = [r["order"] + shift for r in learned]
            upper.plot(starts, [r["ends"] for r in learned], "o", color=color, alpha=0.5, label=f"{hold} held")
            fixed = [r for r in chosen if not r["learned"]]
            orders = sorted({r["order"] for r in fixed})
            losses = np.array([[r["loss"] for r in fixed if r["order"] == order] for order in orders])
            lower.plot(orders, np.median(losses, 1), "o-", color=color, markersize=4)
            lower.fill_between(orders, *np.quantile(losses, (0.25, 0.75), axis=1), color=color, alpha=0.12, linewidth=0)
        upper.plot([0, 1], [0, 1], ":", color="0.4")
        upper.set(title={"CLS": "level sets", "PD": "perfumes"}[data], ylim=(-0.03, 1.03))
        lower.set(xlabel="order (above: at the start)", yscale="log")
    panels[0, 0].set_ylabel("learned order, at the end")
    panels[1, 0].set_ylabel("loss with the order fixed")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return figure


def accuracy_figure(runs: list[dict[str, Any]], paper: dict[tuple[str, float], tuple[str, str]]) -> Any:
    """Each run's accuracy as a dot, the paper's as a bar across; a panel for each set of training samples."""
    sets = list(dict.fromkeys(r["data"] for r in runs))
    figure = new_figure(11.5, 4)
    panels = figure.subplots(1, len(sets))
    for axes, data in zip(panels, sets, strict=True):
        labels: list[str] = []
        for (name, order), printed in paper.items():
            if not data.startswith(name):
                continue
            chosen = [r for r in runs if r["data"] == data and r["network"] == f"order {order:g}" and not r["rounding"]]
            for key, number in zip(("train", "test"), printed, strict=True):
                if key == "test" and "560" in data:
                    continue
                x = len(labels)
                axes.plot([x] * len(chosen), [100 * r[key] for r in chosen], "o", color=BLUE, alpha=0.4)
                axes.plot([x - 0.3, x + 0.3], [float(number)] * 2, color=VERMILION, linewidth=3)
                labels.append(f"order {order:g}\n{'training' if key == 'train' else 'test'}")
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        axes.set(title={"CLS": "level sets"}.get(data, data.replace("PD", "perfumes")), xlim=(-0.6, len(labels) - 0.4))
    panels[0].set_ylabel("accuracy, %")
    marks = [
        panels[0].plot([], [], "o", color=BLUE, label="here, each seed")[0],
        panels[0].plot([], [], color=VERMILION, linewidth=3, label="paper (its perfumes for the test are others)")[0],
    ]
    figure.legend(handles=marks, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def readings_figure(numbers: dict[str, Any], words: dict[str, str]) -> Any:
    """Accuracy on the last mini-batch for each reading of the algorithm, as `words` say it; the paper's as a bar."""
    runs = numbers["runs"]
    networks = list(dict.fromkeys(r["network"] for r in runs))
    readings = list(dict.fromkeys((r["gradient"], r["normalization"]) for r in runs))
    figure = new_figure(3.4 * len(networks) + 1.5, 0.4 * len(readings) + 1.6)
    panels = figure.subplots(1, len(networks), sharey=True, squeeze=False)[0]
    printed = {"order 1": 52.86, "order 0.9": 70.36}
    for axes, network in zip(panels, networks, strict=True):
        for place, (gradient, normalization) in enumerate(readings):
            chosen = [
                r["batch"]
                for r in runs
                if (r["network"], r["gradient"], r["normalization"]) == (network, gradient, normalization)
            ]
            axes.plot(chosen, [place] * len(chosen), "o", color=BLUE, alpha=0.45, markersize=5)
        if network in printed:
            axes.axvline(printed[network], color=VERMILION, linewidth=2)
        axes.set(title=network, xlabel="right on the last mini-batch, %", xlim=(0, 102))
    panels[0].set_yticks(range(len(readings)), [f"{words[g]}, {words[n]}" for g, n in readings], fontsize=8)
    panels[0].invert_yaxis()
    figure.suptitle("each seed a dot; the line is the paper's", fontsize=9)
    return figure


def choices_figure(accuracies: dict[tuple[Any, ...], list[float]]) -> Any:
    """Accuracies by data, choice and order: each seed a dot, a panel for each data set."""
    sets = list(dict.fromkeys(data for data, *_ in accuracies))
    figure = new_figure(11, 3.4)
    panels = figure.subplots(1, len(sets))
    for axes, data in zip(panels, sets, strict=True):
        of_data = {(choice, order): found for (name, choice, order), found in accuracies.items() if name == data}
        for place, found in enumerate(of_data.values()):
            axes.plot(found, [place] * len(found), "o", color=BLUE, alpha=0.45, markersize=5)
        names = [f"{choice}, order {order:g}" for choice, order in of_data]
        axes.set_yticks(range(len(names)), names, fontsize=8)
        axes.invert_yaxis()
        axes.set(title={"CLS": "level sets", "PD": "perfumes"}[data], xlabel="accuracy of each seed, %")
    return figure
