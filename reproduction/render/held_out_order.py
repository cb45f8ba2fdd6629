"""The order learned on held-out samples."""

from typing import Any

from reproduction.account_figures import arms_figure
from reproduction.comparisons import effect_text, grouped, middle
from reproduction.held_out_order import HeldOutOrder, jobs, work
from reproduction.part import Numbers, Part, Row, Table
from reproduction.statistics import Difference, difference, ratio


def effect(runs: list[dict[str, Any]], measure: str) -> Difference:
    """The chosen order's against order 1, seed by seed: losses as a ratio, accuracies as a difference."""
    compare = ratio if measure.endswith("loss") else difference
    return compare([r[f"chosen_{measure}"] for r in runs], [r[f"residual_{measure}"] for r in runs])


def rows(numbers: Numbers) -> list[Row]:
    return [
        Row(
            f"{data}, {held} held: order by held-out loss, median and quarters", "-", middle([r["order"] for r in runs])
        )
        for (data, held), runs in grouped(numbers["runs"], "data", "held").items()
    ]


def tables(numbers: Numbers) -> list[Table]:
    lines = []
    for (data, held), runs in grouped(numbers["runs"], "data", "held").items():
        orders = [r["order"] for r in runs]
        effects = [effect_text(effect(runs, name)) for name in ("held_out_loss", "test_loss", "test_accuracy")]
        lines.append(
            [data, held, middle(orders), f"{sum(order == 1.0 for order in orders)} of {len(orders)}", *effects]
        )
    title = "The order chosen by held-out loss, and its network against the one of order 1, mean and 95 % interval"
    headings = ("data", "held", "order", "order 1 chosen", "held-out loss", "test loss", "test accuracy, points")
    return [Table(title, headings, lines)]


def values(numbers: Numbers) -> dict[str, str]:
    found = {}
    for (data, held), runs in grouped(numbers["runs"], "data", "held").items():
        for name in ("test_loss", "test_accuracy"):
            found[f"{data}-{held}-{name}"] = effect_text(effect(runs, name))
        found[f"{data}-{held}-order"] = middle([r["order"] for r in runs])
    return found


def _figure(numbers: Numbers) -> Any:
    runs = [{**r, "network": f"{r['held']} held"} for r in numbers["runs"]]
    return arms_figure(runs, "data", "order", "order chosen on held-out samples", scale="linear")


PART = Part(
    name="held-out-order",
    title="The order learned on held-out samples",
    minutes=6,
    full=HeldOutOrder(),
    quick=HeldOutOrder(
        grid=(0.5, 1.0),
        refinements=1,
        trainings=1,
        layers=(("CLS", 3), ("PD", 3)),
        n_points=100,
        max_iter=10,
        seeds=(0, 1),
    ),
    jobs=jobs,
    work=work,
    figure=_figure,
    rows=rows,
    tables=tables,
    values=values,
    is_chaotic=lambda job: job["data"] == "PD",
    needs_perfume=True,
)
