"""The pictures of the page, each a function of all comparisons."""

from collections.abc import Callable
from typing import Any

import numpy as np

from examples.gpt.comparison import Comparison, curve
from examples.gpt.streams import RESIDUAL
from fracdnn.report.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, new_figure

COLOURS = {
    RESIDUAL: GREY,
    "order 0.9": SKY,
    "order 0.5": BLUE,
    "order 0.5, horizon": "#003C5F",
    "residual, short": "#9A9A9A",
    "learnt order": GREEN,
    "learnt by layer": "#66B99E",
    "DenseFormer": ORANGE,
    "attention residuals": VERMILION,
}


def curves_figure(found: list[Comparison]) -> Any:
    """A row for each depth: loss over bytes, its difference to the residual stream, and loss over seconds."""
    figure = new_figure(13, 3.8 * len(found))
    panels = figure.subplots(len(found), 3, squeeze=False)
    for row, each in zip(panels, found, strict=True):
        for arm in each.arms:
            _draw(row, each, arm)
        for axes in (row[0], row[2]):
            axes.set(ylim=_limits(each), ylabel="held-out loss, nats a byte")
        row[0].set(title=f"{each.depth} blocks, equal tokens", xlabel="million bytes")
        row[1].set(title="difference to residual", xlabel="million bytes", ylabel="nats a byte (band: seeds)")
        row[2].set(title="equal time", xlabel="seconds of training")
    handles: dict[str, Any] = {}
    for axes in panels[:, 0]:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=8)
    return figure


def _draw(row: Any, each: Comparison, arm: str) -> None:
    runs, losses = each.of(arm), _losses(each, arm)
    style = {"color": COLOURS[arm], "linewidth": 1.4, "linestyle": "--" if arm == RESIDUAL else "-"}
    tokens, seconds = np.array(runs[0]["tokens"]) / 1e6, np.mean([run["seconds"] for run in runs], axis=0)
    gaps = losses - _losses(each, RESIDUAL)
    row[0].plot(tokens, losses.mean(0), label=arm, **style)
    row[1].plot(tokens, gaps.mean(0), **style)
    row[1].fill_between(tokens, gaps.min(0), gaps.max(0), color=COLOURS[arm], alpha=0.15, linewidth=0)
    row[2].plot(seconds, losses.mean(0), **style)


def _limits(each: Comparison) -> tuple[float, float]:
    """Of all losses but those of the first fifth of the training, which would make the rest look alike."""
    losses = np.stack([_losses(each, arm) for arm in each.arms])
    late = losses[..., losses.shape[-1] // 5 :]
    late = late[np.isfinite(late)]
    margin = 0.05 * float(np.ptp(late)) + 1e-3
    return float(late.min()) - margin, float(late.max()) + margin


def _losses(each: Comparison, arm: str) -> np.ndarray:
    return np.array([curve(run) for run in each.of(arm)])


def orders_figure(found: list[Comparison]) -> Any:
    """The learnt orders of all sublayers, with the range over the seeds; one for all as a line."""
    figure = new_figure(5.5 * len(found), 3.6)
    panels = figure.subplots(1, len(found), squeeze=False)[0]
    for axes, each in zip(panels, found, strict=True):
        for arm in each.arms:
            orders = np.array([run["orders"] for run in each.of(arm) if run["orders"]])
            if orders.size and orders.shape[1] == 1:
                axes.axhline(orders.mean(), color=GREY, linestyle="--", linewidth=1, label=arm)
            elif orders.size:
                _draw_orders(axes, orders)
        axes.set(title=f"{each.depth} blocks", xlabel="sublayer", ylabel="order at the end")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)
    return figure


def _draw_orders(axes: Any, orders: np.ndarray) -> None:
    places = np.arange(1, orders.shape[1] + 1)
    for first, name, colour in ((0, "by layer, attention", BLUE), (1, "by layer, perceptron", PURPLE)):
        chosen = orders[:, first::2]
        middle = chosen.mean(0)
        reach = np.maximum([middle - chosen.min(0), chosen.max(0) - middle], 0)  # rounding
        axes.errorbar(places[first::2], middle, reach, fmt="o", markersize=3, linewidth=1, color=colour, label=name)


FIGURES: dict[str, Callable[[list[Comparison]], Any]] = {"curves": curves_figure, "orders": orders_figure}
