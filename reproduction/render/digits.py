"""Handwritten digits."""

from typing import Any

from reproduction.account_figures import arms_figure
from reproduction.comparisons import effects, names, of_network, spread, tuned
from reproduction.digits import Digits, jobs, work
from reproduction.part import Claim, Numbers, Part, Row, Table

ORDERS, FEW = (0.9, 0.1), 2


def _of_depth(numbers: Numbers, depth: int) -> list[dict]:
    return [r for r in numbers["runs"] if r["n_layers"] == depth]


def claims(numbers: Numbers) -> list[Claim]:
    found = []
    deepest = max(names(numbers["runs"], "n_layers"))
    for order in ORDERS:
        if of_network(numbers["runs"], f"order {order:g}"):
            found.append(
                Claim(
                    f"better accuracy, digits, order {order:g}",
                    "comparable or significantly better",
                    f"test accuracy with {deepest} layers, points",
                    "more",
                    effects(
                        _of_depth(numbers, deepest),
                        order,
                        lambda r: 100 * r["test"],
                        tuned_by=lambda r: -r["validation"],
                    ),
                )
            )
    for order in ORDERS:
        if of_network(_of_depth(numbers, FEW), f"order {order:g}"):
            found.append(
                Claim(
                    f"fewer parameters, digits, order {order:g}",
                    "reuse of features reduces the number of parameters",
                    f"test accuracy with {FEW} layers, points",
                    "more",
                    effects(_of_depth(numbers, FEW), order, lambda r: 100 * r["test"]),
                )
            )
    return found


def rows(numbers: Numbers) -> list[Row]:
    return [
        Row(f"digits, N = {line[0]}, {line[1]}: test accuracy, %", "-", line[-2]) for line in tables(numbers)[0].rows
    ]


def tables(numbers: Numbers) -> list[Table]:
    lines = []
    depths = names(numbers["runs"], "n_layers")
    for depth in depths:
        runs = _of_depth(numbers, depth)
        groups = {name: list(of_network(runs, name).values()) for name in names(runs) if "τ = " not in name}
        if depth == max(depths):
            for order in sorted({r["order"] for r in runs}, reverse=True):
                groups[f"order {order:g}, tuned"] = list(tuned(runs, order, lambda r: -r["validation"]).values())
        for name, chosen in groups.items():
            steps = {f"{r['step_size']:.3g}" for r in chosen}
            cells = [spread([100 * r[key] for r in chosen], ".2f") for key in ("train", "test")]
            lines.append([str(depth), name, steps.pop() if len(steps) == 1 else "-", *cells, str(len(chosen))])
    headings = ("N", "network", "τ", "training, %", "test, %", "seeds")
    return [Table("Digits: accuracy, mean ± standard deviation over the seeds", headings, lines)]


def _figure(numbers: Numbers) -> Any:
    runs = [{**r, "panel": f"N = {r['n_layers']}", "error": 100 * (1 - r["test"])} for r in numbers["runs"]]
    return arms_figure(runs, "panel", "error", "test error, %", scale="linear")


PART = Part(
    name="digits",
    title="Handwritten digits, a harder data set",
    minutes=1.5,
    full=Digits(),
    quick=Digits(orders=(0.9,), depths=(2, 3), max_iter=10, seeds=(0, 1)),
    jobs=jobs,
    work=work,
    figure=_figure,
    rows=rows,
    tables=tables,
    claims=claims,
)
