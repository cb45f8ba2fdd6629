"""The figure of a fit: data, model and band; residuals; profiles."""

from typing import Any

import numpy as np

from fracdnn.extras import require

_BLUE, _VERMILION, _GREY = "#0072B2", "#D55E00", "#7F7F7F"


def figure_of(result: Any) -> Any:
    """One row for each data set (fit, residuals), then the profiles, four in a row."""
    require("matplotlib")
    from matplotlib.figure import Figure

    rows, more = len(result.sets), -(-len(result.profiles) // 4)
    figure = Figure(figsize=(10, 3.2 * rows + 2.4 * more), layout="constrained")
    heights = [3.2 * rows, 2.4 * more] if more else [1.0]
    upper, *lower = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for (left, right), each in zip(upper.subplots(rows, 2, squeeze=False), result.sets, strict=True):
        _draw_data(left, each)
        _draw_residuals(right, each)
    areas = lower[0].subplots(more, 4, squeeze=False).ravel().tolist() if lower else []
    for name in result.profiles:
        _draw_profile(areas.pop(0), name, result.profiles[name])
    for area in areas:
        area.set_axis_off()
    return figure


def _draw_data(area: Any, each: Any) -> None:
    order = np.argsort(each.t)
    if np.iscomplexobj(each.data):
        area.plot(each.data.real, -each.data.imag, "o", color=_BLUE, ms=4, label="data")
        area.plot(each.fitted.real[order], -each.fitted.imag[order], color=_VERMILION, label="fit")
        area.set(xlabel="real part", ylabel="− imaginary part", aspect="equal", adjustable="datalim")
        area.legend(frameon=False)
        return
    t, n = each.t[order], len(order)
    data, fitted, half = (part.reshape(n, -1)[order] for part in (each.data, each.fitted, 1.96 * each.band))
    points, lines = area.plot(t, data, "o", color=_BLUE, ms=4), area.plot(t, fitted, color=_VERMILION)
    for column in range(data.shape[1]):
        ends = fitted[:, column] - half[:, column], fitted[:, column] + half[:, column]
        band = area.fill_between(t, *ends, color=_VERMILION, alpha=0.25)
    area.set(xlabel="t", ylabel="value", xscale=_scale(each.t))
    area.legend([points[0], lines[0], band], ["data", "fit", "95 %"], frameon=False)


def _draw_residuals(area: Any, each: Any) -> None:
    residuals = each.residuals if each.sigma is None else each.residuals / each.sigma
    words = {"real": residuals.real, "imaginary": residuals.imag} if np.iscomplexobj(residuals) else {"": residuals}
    for (word, part), color in zip(words.items(), (_BLUE, _VERMILION), strict=False):
        area.plot(each.t, part.reshape(len(each.t), -1), "o", color=color, ms=4, label=word)
    area.axhline(0.0, color=_GREY, lw=1)
    name = "residual" if each.sigma is None else "residual / sigma"
    area.set(xlabel="ω" if len(words) > 1 else "t", ylabel=name, xscale=_scale(each.t))
    if len(words) > 1:
        area.legend(frameon=False)


def _draw_profile(area: Any, name: str, profile: Any) -> None:
    """√excess falls to 0 at the estimate and crosses 1 at the ends; a straight V is a parabola of χ²."""
    root = np.sqrt(np.maximum(profile.excess, 0.0))
    shown = root <= 2.0
    area.plot(np.array(profile.values)[shown], root[shown], "o-", color=_BLUE, ms=3)
    area.axhline(1.0, color=_GREY, lw=1, ls="--")
    area.set(xlabel=name, ylabel="√(Δχ²/limit)", ylim=(0, 2))
    area.tick_params(axis="x", labelrotation=20)


def _scale(t: np.ndarray) -> str:
    """Logarithmic for places that crowd at small values, as frequencies do; not for equal steps."""
    return "log" if t.min() > 0 and np.median(t) < 0.2 * t.max() else "linear"
