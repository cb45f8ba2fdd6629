"""The pictures of the page, each a function of all records."""

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.measures import Record, median
from benchmarks.tables import of_group
from fracdnn.report.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, new_figure

Records = list[Record]
# One color and marker for each rival, the same in all pictures.
STYLES: dict[str, tuple[str, str, str]] = {
    "residual": ("residual network", GREY, "s"),
    "ours": ("ours", "#003C5F", "*"),
    "exact": ("ours, exact", BLUE, "o"),
    "ours, exact": ("ours, exact", BLUE, "o"),
    "compressed": ("ours, compressed", SKY, "D"),
    "ours, PECE": ("ours, PECE", SKY, "D"),
    "ours, all times": ("ours, all times", "#6C8EBF", "h"),
    "blocked": ("ours, torch operations", PURPLE, "p"),
    "plain": ("one sum a layer, autograd", ORANGE, "v"),
    "naive": ("double loop", VERMILION, "X"),
    "fdeint (PyPI)": ("fdeint (PyPI), PECE", PURPLE, "^"),
    "torchdiffeq": ("torchdiffeq, Euler, order 1", GREEN, "<"),
    "torchdiffeq, all times": ("the same, all times", "#00523B", "4"),
    "torchode": ("torchode, Euler, order 1", "#66B99E", ">"),
    "ours, collocation": ("ours, collocation (default)", "#003C5F", "*"),
    "ours, adams": ("ours, adams", BLUE, "o"),
    "ours, adams, graded": ("ours, adams, graded", SKY, "D"),
    "ours, pece": ("ours, pece", "#6C8EBF", "h"),
    "ours, trapezoidal": ("ours, trapezoidal", "#8AA4C8", "s"),
    "pycaputo, Euler": ("pycaputo, Euler", "#66B99E", ">"),
    "pycaputo, explicit trapezoidal": ("pycaputo, explicit trapezoidal", ORANGE, ">"),
    "pycaputo, PEC": ("pycaputo, PEC", ORANGE, "<"),
    "pycaputo, PECE": ("pycaputo, PECE", GREEN, "<"),
    "pycaputo, PECECE": ("pycaputo, PECE, two corrections", GREEN, "v"),
    "pycaputo, modified PECE": ("pycaputo, modified PECE", "#00523B", "<"),
    "pycaputo, backward Euler": ("pycaputo, backward Euler", "#B8860B", "v"),
    "pycaputo, Crank-Nicolson": ("pycaputo, weighted Euler 1/2", VERMILION, "v"),
    "pycaputo, trapezoidal": ("pycaputo, trapezoidal", VERMILION, "X"),
    "pycaputo, L1": ("pycaputo, L1", "#8B4513", "1"),
    "pycaputo, PECE, graded": ("pycaputo, PECE, graded", GREEN, "2"),
    "pycaputo, modified PECE, graded": ("pycaputo, modified PECE, graded", "#00523B", "2"),
    "pycaputo, trapezoidal, graded": ("pycaputo, trapezoidal, graded", VERMILION, "2"),
    "pycaputo, L1, graded": ("pycaputo, L1, graded", "#8B4513", "2"),
}
Measure = Callable[[Record, str], float | None]


def depth_figure(records: Records) -> Any:
    """Time a layer, or a step, against their number."""
    figure, (left, right) = _panels("Time of a layer", "Time of a step of a solver")
    _curves(left, of_group(records, "depth"), "layers", _each("layers", 1e6))
    _curves(right, of_group(records, "solver"), "steps", _each("steps", 1e6))
    left.set(xlabel="layers (256 × 256, float32)", ylabel="µs per layer, forward + backward")
    right.set(xlabel="steps (256 × 32, float32, one thread)", ylabel="µs per step, forward + backward")
    return _finished(figure, (left, right))


def memory_figure(records: Records) -> Any:
    """Peak memory against depth: as the system has it (lines), and live (dotted, small)."""
    figure, (left, right) = _panels("Peak memory of a network", "Peak memory of a solver")
    for measure, style in (("memory", {}), ("live_memory", {"linestyle": ":", "markersize": 3, "label": None})):
        for axes, group, setting in ((left, "depth", "layers"), (right, "solver", "steps")):
            chosen = [record for record in of_group(records, group) if _measured(record, measure)]
            _curves(axes, chosen, setting, partial(median, measure=measure), **style)
    left.set(xlabel="layers (256 × 256, float32)", ylabel="MiB, forward + backward (dotted: live)")
    right.set(xlabel="steps (256 × 32, float32)", ylabel="MiB, forward + backward (dotted: live)")
    return _finished(figure, (left, right))


def precision_figure(records: Records) -> Any:
    """Error against seconds: a column a problem, forward above and with the gradient below."""
    chosen = of_group(records, "precision")
    problems = list(dict.fromkeys(record["settings"]["problem"] for record in chosen))
    figure = new_figure(4 * max(len(problems), 1), 8)
    panels = figure.subplots(2, max(len(problems), 1), squeeze=False)
    for record in chosen:
        forward = record["settings"]["pass"] == "forward"
        axes = panels[0 if forward else 1][problems.index(record["settings"]["problem"])]
        for curve, points in _work(record).items():
            _line(axes, curve, [p[0] for p in points], [p[1] for p in points])
        axes.set(xlabel=f"seconds, {record['settings']['pass']}", ylabel="relative error", xscale="log")
        axes.set_title(record["settings"]["problem"], fontsize=10)
        axes.tick_params(axis="x", which="minor", labelbottom=False)
        axes.axhline(1e-6, color=GREY, linewidth=0.7, linestyle=":")
    return _finished(figure, panels.flat)


def _work(record: Record) -> dict[str, list[tuple[float, float]]]:
    """Seconds and error of the points of each curve; exact ones are shown at rounding."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, outcome in record["rivals"].items():
        seconds = median(record, name)
        if seconds is not None:
            curves.setdefault(name.partition(": ")[0], []).append((seconds, max(outcome["error"], 1e-16)))
    return curves


def scaling_figure(records: Records) -> Any:
    """Seconds over layers to 10⁴ and samples to 10⁶."""
    figure, (left, right) = _panels("Over layers", "Over samples")
    _curves(left, of_group(records, "scaling-depth"), "layers", median)
    _curves(right, of_group(records, "scaling-samples"), "samples", median)
    left.set(xlabel="layers (64 × 64, float32)", ylabel="seconds, forward + backward")
    right.set(xlabel="samples (35 layers, width 2, float64)", ylabel="seconds, value and gradient")
    return _finished(figure, (left, right))


def _panels(*titles: str) -> tuple[Any, Any]:
    figure = new_figure(11, 4)
    panels = figure.subplots(1, len(titles))
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title)
    return figure, panels


def _each(setting: str, scale: float) -> Measure:
    def measure(record: Record, name: str) -> float | None:
        value = median(record, name)
        return None if value is None else scale * value / record["settings"][setting]

    return measure


def _names(records: Records) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record["rivals"]))


def _measured(record: Record, measure: str) -> bool:
    return any(outcome.get(measure) is not None for outcome in record["rivals"].values())


def _curves(axes: Any, records: Records, setting: str, measure: Measure, **style: Any) -> None:
    sizes = [record["settings"][setting] for record in records]
    if sizes:
        axes.set_xscale("log")
        axes.set_xticks(sizes, [_short(size) for size in sizes], minor=False)
        axes.set_xticks([], minor=True)
    for name in _names(records):
        points = [(r["settings"][setting], value) for r in records if (value := measure(r, name)) is not None]
        _line(axes, name, [p[0] for p in points], [p[1] for p in points], **style)


def _short(size: int) -> str:
    """Up to four digits as they are; above, powers of ten."""
    power = len(str(size)) - 1
    if size < 10_000:
        return str(size)
    return f"$10^{power}$" if size == 10**power else f"${size / 10**power:g}\\cdot 10^{power}$"


def _line(axes: Any, name: str, x: list[Any], y: list[Any], **style: Any) -> None:
    if x:
        label, color, marker = STYLES.get(name, (name, "black", "."))
        axes.plot(
            x, y, **{"marker": marker, "color": color, "label": label, "linewidth": 1.5, "markersize": 5, **style}
        )


def _finished(figure: Any, panels: Any) -> Any:
    """One legend beside the panels, so that it covers no curve."""
    handles: dict[str, Any] = {}
    for axes in panels:
        axes.set_yscale("log")
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside right upper", frameon=False, fontsize=8)
    return figure


FIGURES: dict[str, Callable[[Records], Any]] = {
    "depth": depth_figure,
    "memory": memory_figure,
    "precision": precision_figure,
    "scaling": scaling_figure,
}
