"""Stability and exploding gradients."""

from operator import itemgetter
from typing import Any

from reproduction.account_figures import arms_figure
from reproduction.comparisons import effects, middle, names, of_network
from reproduction.part import Claim, Numbers, Part, Row, Table
from reproduction.stability import Stability, jobs, work

ORDERS = (0.9, 0.5, 0.1)


def claims(numbers: Numbers) -> list[Claim]:
    found = []
    for measure, name, paper in (
        ("growth", "stability", '"stable discretization"'),
        ("exploding", "exploding gradients", '"can help with the exploding gradient issue"'),
    ):
        for order in (order for order in ORDERS if of_network(numbers["runs"], f"order {order:g}")):
            chosen = [r for r in numbers["runs"] if r["scale"] == max(names(numbers["runs"], "scale"))]
            words = {"growth": "largest growth of a change", "exploding": "largest layer's gradient over the last's"}
            found.append(
                Claim(
                    f"{name}, order {order:g}",
                    paper,
                    f"{words[measure]}, K times 3",
                    "less",
                    effects(chosen, order, itemgetter(measure), is_ratio=True),
                )
            )
    return found


def rows(numbers: Numbers) -> list[Row]:
    return [
        Row(f"growth of a change, {name}, K times {scale}", "-", growth)
        for scale, name, _, growth, _ in _lines(numbers)
    ]


def _lines(numbers: Numbers) -> list[list[str]]:
    found = []
    for scale in names(numbers["runs"], "scale"):
        runs = [r for r in numbers["runs"] if r["scale"] == scale]
        for name in names(runs):
            chosen = list(of_network(runs, name).values())
            cells = [middle([r[key] for r in chosen]) for key in ("growth", "exploding")]
            found.append([f"{scale:g}", name, f"{chosen[0]['step_size']:.3g}", *cells])
    return found


def tables(numbers: Numbers) -> list[Table]:
    title = "70 random layers: median over the seeds and the quarters about it"
    headings = ("K times", "network", "τ", "largest growth of a change", "largest layer's gradient over the last's")
    return [Table(title, headings, _lines(numbers))]


def _figure(numbers: Numbers) -> Any:
    runs = [{**r, "panel": f"K times {r['scale']:g}"} for r in numbers["runs"]]
    return arms_figure(runs, "panel", "growth", "largest growth of a change")


PART = Part(
    name="stability",
    title="Stability and exploding gradients at a random start",
    minutes=1,
    full=Stability(),
    quick=Stability(n_layers=10, seeds=(0, 1)),
    jobs=jobs,
    work=work,
    figure=_figure,
    rows=rows,
    tables=tables,
    claims=claims,
    needs_perfume=True,
)
