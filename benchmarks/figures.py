"""The pictures of the page, each a function of all records."""

from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.measures import Record, median
from benchmarks.tables import of_group
from fracdnn.report.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, new_figure

Records = list[Record]
# One colour and marker for each rival, the same in all pictures.
STYLES: dict[str, tuple[str, str, str]] = {
    "residual": ("residual network", GREY, "s"),
    "ours": ("ours", "#003C5F", "*"),
    "exact": ("ours, exact", BLUE, "o"),
    "ours, exact": ("ours, exact", BLUE, "o"),
    "ours, uniform": ("ours, equal steps", BLUE, "o"),
    "compressed": ("ours, compressed", SKY, "D"),
    "ours, compressed": ("ours, compressed", SKY, "D"),
    "ours, all times": ("ours, all times asked for", "#6C8EBF", "h"),
    "ours, graded": ("ours, graded steps", "#003C5F", "P"),
    "blocked": ("ours, torch operations", PURPLE, "p"),
    "plain": ("one sum a layer, autograd", ORANGE, "v"),
    "naive": ("double loop", VERMILION, "X"),
    "fdeint (PyPI)": ("fdeint (PyPI), PECE", PURPLE, "^"),
    "torchdiffeq": ("torchdiffeq, Euler, order 1", GREEN, "<"),
    "torchdiffeq, all times": ("the same, all times asked for", "#00523B", "4"),
    "torchode": ("torchode, Euler, order 1", "#66B99E", ">"),
    "pycaputo, PECE": ("pycaputo, PECE", GREEN, "<"),
    "pycaputo, Euler": ("pycaputo, Euler", "#66B99E", ">"),
}
Measure = Callable[[Record, str], float | None]


def depth_figure(records: Records) -> Any:
    """Time a layer, or a step, against their number."""
    figure, (left, right) = _panels("Time of a layer", "Time of a step of a solver")
    _curves(left, of_group(records, "depth"), "layers", _each("layers", 1e6))
    _curves(right, of_group(records, "solver"), "steps", _each("steps", 1e6))
    left.set(xlabel="layers (256 × 256, float32)", ylabel="µs a layer, forward + backward")
    right.set(xlabel="steps (256 × 32, float32, one thread)", ylabel="µs a step, forward + backward")
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


def accuracy_figure(records: Records) -> Any:
    """Error at the final time against the seconds of a solve."""
    figure = new_figure(8, 4.2)
    axes = figure.subplots()
    chosen = of_group(records, "accuracy")
    for name in _names(chosen):
        points = [(median(r, name), r["rivals"][name]["error"]) for r in chosen if median(r, name) is not None]
        _line(axes, name, [p[0] for p in points], [p[1] for p in points])
    axes.set(
        xlabel="seconds of a solve, forward, one thread",
        ylabel="relative error at $T = 1$",
        xscale="log",
        title=r"$d_t^{0.5}u = -4u$: each point twice the steps of the one before",
    )
    return _finished(figure, (axes,))


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
        label, colour, marker = STYLES.get(name, (name, "black", "."))
        axes.plot(
            x, y, **{"marker": marker, "color": colour, "label": label, "linewidth": 1.5, "markersize": 5, **style}
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
    "accuracy": accuracy_figure,
    "scaling": scaling_figure,
}
