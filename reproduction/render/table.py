"""Table 2 with the exact gradient."""

from functools import partial
from typing import Any

from reproduction.account_figures import accuracy_figure
from reproduction.comparisons import effects, names, of_network, spread, tuned
from reproduction.part import Claim, Numbers, Part, Row, Table, percent
from reproduction.table import CLS, PAPER, PD_ALL, PD_TIME, PERFUMES, TableSettings, jobs, work

ORDERS = {CLS: 0.1, PD_ALL: 0.9, PD_TIME: 0.9}
MEASURES = {CLS: "test", PD_ALL: "train", PD_TIME: "test"}


def of_data(numbers: Numbers, data: str, *, rounding: bool = False) -> list[dict[str, Any]]:
    return [r for r in numbers["runs"] if r["data"] == data and bool(r["rounding"]) == rounding]


def _points(measure: str, run: dict[str, Any]) -> float:
    return 100 * run[measure]


def claims(numbers: Numbers) -> list[Claim]:
    found = []
    for data, measure in MEASURES.items():
        paper = PAPER[data[:3].strip(","), ORDERS[data]], PAPER[data[:3].strip(","), 1.0]
        column = 0 if measure == "train" else 1
        found.append(
            Claim(
                f"accuracy of {data}, order {ORDERS[data]:g}",
                f"{paper[0][column]} % against {paper[1][column]} %",
                f"{'training' if measure == 'train' else 'test'} accuracy, points",
                "more",
                effects(
                    of_data(numbers, data),
                    ORDERS[data],
                    partial(_points, measure),
                    tuned_by=None if data == PD_ALL else lambda r: -r["validation"],
                ),
                round(float(paper[0][column]) - float(paper[1][column]), 2) or None,
            )
        )
    return found


def rows(numbers: Numbers) -> list[Row]:
    found = []
    for data in MEASURES:
        for order in (1.0, ORDERS[data]):
            runs = list(of_network(of_data(numbers, data), f"order {order:g}").values())
            papers = PAPER[data[:3].strip(","), order]
            for name, word, paper in zip(("train", "test"), ("training", "test"), papers, strict=True):
                if data != PD_ALL or name == "train":
                    text = f"{data}, order {order:g}: {word} accuracy, %"
                    found.append(Row(text, paper, percent([r[name] for r in runs])))
    return found


def tables(numbers: Numbers) -> list[Table]:
    return [_accuracy_table(numbers), _rounding_table(numbers)]


def _accuracy_table(numbers: Numbers) -> Table:
    lines = []
    for data in MEASURES:
        runs = of_data(numbers, data)
        networks = {name: list(of_network(runs, name).values()) for name in names(runs) if "τ = " not in name}
        if data != PD_ALL:
            for order in (1.0, ORDERS[data]):
                networks[f"order {order:g}, tuned"] = list(tuned(runs, order, lambda r: -r["validation"]).values())
        for name, chosen in networks.items():
            steps = {f"{r['step_size']:.3g}" for r in chosen}
            step = steps.pop() if len(steps) == 1 else "-"
            cells = [spread([100 * r[key] for r in chosen], ".2f") for key in ("train", "test")]
            cells[1] = cells[1] if data != PD_ALL else "-"
            lines.append([data, name, step, *cells, str(len(chosen))])
    headings = ("data", "network", "τ", "training, %", "test, %", "seeds")
    return Table("Accuracy, mean ± standard deviation over the seeds", headings, lines)


def _rounding_table(numbers: Numbers) -> Table:
    lines = []
    for order in (1.0, 0.9):
        name = f"order {order:g}"
        seeds = [100 * r["train"] for r in of_network(of_data(numbers, PD_ALL), name).values()]
        changed = [100 * r["train"] for r in of_data(numbers, PD_ALL, rounding=True) if r["network"] == name]
        for word, found in (("seeds", seeds), ("W of the first seed times 1 + k · 1e-15", changed)):
            lines.append([name, word, spread(found, ".1f"), f"{min(found):.1f} to {max(found):.1f}", str(len(found))])
    title = "Perfumes, all 560: training accuracy in percent by seed, and by a change in the last digit of W alone"
    return Table(title, ("network", "what changes", "mean ± deviation", "range", "runs"), lines)


def values(numbers: Numbers) -> dict[str, str]:
    found = {}
    for order, (_, _, deviation, span, _) in zip((1, 1, 0.9, 0.9), _rounding_table(numbers).rows, strict=True):
        kind = "rounding" if f"seeds-{order}" in found else "seeds"
        found[f"{kind}-{order}"] = deviation
        found[f"{kind}-{order}-range"] = span
    return found


PART = Part(
    name="table",
    title="Accuracy on level sets and perfumes (Table 2), exact gradient",
    minutes=6,
    full=TableSettings(),
    quick=TableSettings(
        columns=(
            *(column.short(2) for column in TableSettings().columns[:2]),
            *(PERFUMES.short(2).with_order(order) for order in (1.0, 0.9)),
        ),
        n_points=500,
        step_sizes=(0.2, 0.4),
        seeds=(0, 1),
        perfume_seeds=(0, 1),
        rounding=1,
    ),
    jobs=jobs,
    work=work,
    figure=lambda numbers: accuracy_figure(numbers["runs"], PAPER),
    rows=rows,
    tables=tables,
    values=values,
    claims=claims,
    is_chaotic=lambda job: job["data"] != CLS,
    needs_perfume=True,
)
