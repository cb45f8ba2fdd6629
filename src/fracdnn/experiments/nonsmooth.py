"""The paper's claim on non-smooth functions: learning |x|, a step, and the level set, against the order."""

from dataclasses import dataclass

import torch

from fracdnn.datasets import Perfume
from fracdnn.experiments.jobs import in_parallel
from fracdnn.experiments.paper_training import level_set_split
from fracdnn.experiments.part import Numbers, Part, Row, Table, Tick
from fracdnn.nn import FractionalNetwork
from fracdnn.report.experiment_figures import nonsmooth_figure
from fracdnn.training import FullBatchTraining, Objective, Regularization, Task

FUNCTIONS = {
    "|x|": lambda x: x.abs(),
    "step": lambda x: (x > 0).to(x.dtype),
    "sin(πx)": lambda x: torch.sin(torch.pi * x),
}


@dataclass(frozen=True)
class NonSmooth:
    """L-BFGS on all samples; widened networks, since one feature cannot bend twice. sin(πx) is there to compare."""

    targets: tuple[str, ...] = ("|x|", "step", "level set", "sin(πx)")
    orders: tuple[float, ...] = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
    n_layers: int = 10
    width: int = 8
    step_size: float = 0.2
    n_points: int = 200
    max_iter: int = 300
    decay: float = 1e-7
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


def jobs(settings: NonSmooth) -> list[tuple[str, float, int]]:
    return [(t, order, seed) for t in settings.targets for order in settings.orders for seed in settings.seeds]


def run(settings: NonSmooth, perfume: Perfume | None, tick: Tick) -> Numbers:
    wanted = jobs(settings)
    errors = in_parallel(_error, [(*job, settings) for job in wanted], tick)
    return {
        "runs": [
            {"target": target, "order": order, "seed": seed, "error": error}
            for (target, order, seed), error in zip(wanted, errors, strict=True)
        ]
    }


def _error(target: str, order: float, seed: int, settings: NonSmooth) -> float:
    """Root mean square error on 2001 points of [−1, 1]; for the level set, on 10⁴ points of the unit square."""
    if target == "level set":
        X, X_test, y, y_test = level_set_split(10_000, seed)
        X, y = 2 * X[: settings.n_points] - 1, y[: settings.n_points].to(torch.float64).unsqueeze(1)
        X_test, y_test = 2 * X_test - 1, y_test.to(torch.float64).unsqueeze(1)
    else:
        X = torch.linspace(-1, 1, settings.n_points, dtype=torch.float64).unsqueeze(1)
        X_test = torch.linspace(-1, 1, 2001, dtype=torch.float64).unsqueeze(1)
        y, y_test = FUNCTIONS[target](X), FUNCTIONS[target](X_test)
    network = FractionalNetwork(
        X.shape[1],
        1,
        n_layers=settings.n_layers,
        width=settings.width,
        order=order,
        step_size=settings.step_size,
        generator=torch.Generator().manual_seed(seed),
    ).double()
    regularization = Regularization(class_map=settings.decay, decay=settings.decay)
    FullBatchTraining(max_iter=settings.max_iter).fit(Task(network, Objective("squared_error", regularization), X, y))
    with torch.no_grad():
        return float((network(X_test) - y_test).pow(2).mean().sqrt())


def _errors(numbers: Numbers, target: str) -> dict[float, list[float]]:
    groups: dict[float, list[float]] = {}
    for r in numbers["runs"]:
        if r["target"] == target:
            groups.setdefault(r["order"], []).append(r["error"])
    return groups


def _targets(numbers: Numbers) -> list[str]:
    return list(dict.fromkeys(r["target"] for r in numbers["runs"]))


def _median(values: list[float]) -> float:
    return float(torch.tensor(values, dtype=torch.float64).median())


def rows(numbers: Numbers) -> list[Row]:
    found = []
    for target in _targets(numbers):
        medians = {order: _median(errors) for order, errors in _errors(numbers, target).items()}
        best = min(medians, key=lambda order: medians[order])
        text = f"best {medians[best]:.1e} (order {best:g}), order 1 {medians[max(medians)]:.1e}"
        claim = "fractional better" if target != "sin(πx)" else "-"
        found.append(Row(f"RMS error for {target}, median", claim, text))
    return found


def tables(numbers: Numbers) -> list[Table]:
    targets = _targets(numbers)
    lines = []
    for order in _errors(numbers, targets[0]):
        cells = [_errors(numbers, target)[order] for target in targets]
        lines.append([f"{order:g}", *(f"{_median(c):.1e} ({min(c):.1e} to {max(c):.1e})" for c in cells)])
    title = "Root mean square error, median and range over the seeds"
    return [Table(title, ("order", *(target.replace("|", "\\|") for target in targets)), lines)]


PART = Part(
    name="nonsmooth",
    title="Non-smooth functions",
    full=NonSmooth(),
    quick=NonSmooth(orders=(0.5, 1.0), n_points=50, max_iter=20, seeds=(0,)),
    units=lambda settings: len(jobs(settings)),
    run=run,
    figure=nonsmooth_figure,
    rows=rows,
    tables=tables,
)
