"""Iterations against the number of layers."""

from statistics import median

from reproduction.depth_independence import STARTS, DepthIndependence, jobs, work
from reproduction.experiment_figures import depth_independence_figure
from reproduction.part import Numbers, Part, Row, Table


def rows(numbers: Numbers) -> list[Row]:
    found = []
    for order in sorted({r["order"] for r in numbers["runs"]}, reverse=True):
        for start in STARTS:
            counts = _iterations(numbers, order, start)
            text = ", ".join(f"{median(c):g}" for c in counts.values())
            found.append(
                Row(f"median iterations for N = {_list(counts)}, order {order:g}, start {start}", "constant", text)
            )
    return found


def _list(counts: dict[int, list[int]]) -> str:
    return ", ".join(str(n) for n in counts)


def _iterations(numbers: Numbers, order: float, start: str, name: str = "iterations") -> dict[int, list[int]]:
    counts: dict[int, list[int]] = {}
    for r in numbers["runs"]:
        if r["order"] == order and r["start"] == start:
            for step in r["steps"]:
                counts.setdefault(step["n_layers"], []).append(step[name])
    return counts


def tables(numbers: Numbers) -> list[Table]:
    depths = [str(step["n_layers"]) for step in numbers["runs"][0]["steps"]]
    lines = []
    for order in sorted({r["order"] for r in numbers["runs"]}, reverse=True):
        for start, words in STARTS.items():
            iterations = _iterations(numbers, order, start)
            evaluations = _iterations(numbers, order, start, "evaluations")
            cells = [
                f"{median(i):g} ({min(i)} to {max(i)}) / {median(e):g}"
                for i, e in zip(iterations.values(), evaluations.values(), strict=True)
            ]
            lines.append([f"{order:g}", words, *cells])
    target = numbers["runs"][0]["target"]
    title = f"Iterations (median, range over the seeds) / evaluations (median) of BFGS to a loss of {target:g}"
    return [Table(title, ("order", "start", *(f"N = {depth}" for depth in depths)), lines)]


def values(numbers: Numbers) -> dict[str, str]:
    """How many times as many iterations the deepest network needs as the shallowest; the median alone where trained."""
    found = {}
    for order in sorted({r["order"] for r in numbers["runs"]}):
        for start in STARTS:
            medians = [median(counts) for counts in _iterations(numbers, order, start).values()]
            found[f"{start}-{order:g}"] = (
                f"{medians[-1] / medians[0]:.1f}" if start != "trained" else f"{medians[-1]:g}"
            )
        steps = [step for r in numbers["runs"] if r["order"] == order for step in r["steps"]]
        found[f"missed-{order:g}"] = str(sum(not step["reached"] for step in steps))
        found[f"trainings-{order:g}"] = str(len(steps))
    found["n"] = str(len({r["seed"] for r in numbers["runs"]}))
    return found


PART = Part(
    name="depth-independence",
    title="Iterations against the number of layers",
    minutes=2,
    full=DepthIndependence(),
    quick=DepthIndependence(depths=(5, 10), orders=(1.0, 0.5), n_points=200, seeds=(0,)),
    jobs=jobs,
    work=work,
    figure=depth_independence_figure,
    rows=rows,
    tables=tables,
    values=values,
)
