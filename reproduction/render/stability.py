"""Stability and exploding gradients."""

from operator import itemgetter
from typing import Any

from reproduction.account_figures import arms_figure
from reproduction.comparisons import effect_text, effects, middle, names, of_network
from reproduction.part import Claim, Numbers, Part, Row, Table
from reproduction.stability import Stability, jobs, work

ORDERS = (0.9, 0.5, 0.1)
MEASURES = {
    "growth": "largest growth of a change",
    "largest": "largest layer's gradient",
    "exploding": "largest layer's gradient over the last's",
}


def claims(numbers: Numbers) -> list[Claim]:
    found = []
    exploding = '"can help with the exploding gradient issue"'
    for measure, name, paper in (
        ("growth", "stability", '"stable discretization"'),
        ("largest", "exploding gradients, absolute", exploding),
        ("exploding", "exploding gradients, relative", exploding),
    ):
        for order in (order for order in ORDERS if of_network(numbers["runs"], f"order {order:g}")):
            chosen = [r for r in numbers["runs"] if r["scale"] == max(names(numbers["runs"], "scale"))]
            found.append(
                Claim(
                    f"{name}, order {order:g}",
                    paper,
                    f"{MEASURES[measure]}, K times 3",
                    "less",
                    effects(chosen, order, itemgetter(measure), is_ratio=True),
                )
            )
    return found


def rows(numbers: Numbers) -> list[Row]:
    return [
        Row(f"growth of a change, {name}, K times {scale}", "-", growth)
        for scale, name, _, growth, *_ in _lines(numbers)
    ]


def _lines(numbers: Numbers) -> list[list[str]]:
    found = []
    for scale in names(numbers["runs"], "scale"):
        runs = [r for r in numbers["runs"] if r["scale"] == scale]
        for name in names(runs):
            chosen = list(of_network(runs, name).values())
            cells = [middle([r[key] for r in chosen]) for key in MEASURES]
            found.append([f"{scale:g}", name, f"{chosen[0]['step_size']:.3g}", *cells])
    return found


def tables(numbers: Numbers) -> list[Table]:
    title = "70 random layers: median over the seeds and the quarters about it"
    return [Table(title, ("K times", "network", "τ", *MEASURES.values()), _lines(numbers))]


def values(numbers: Numbers) -> dict[str, str]:
    """Effects at the same horizon: of the largest gradient by itself ("absolute"), over the last's ("relative")."""
    found = {}
    for claim in claims(numbers):
        name, order = claim.name.removeprefix("exploding gradients, ").split(", order ")
        found[f"{name}-{order}"] = effect_text(claim.effects["horizon"])
    return found


def _figure(numbers: Numbers) -> Any:
    runs = [{**r, "panel": f"K times {r['scale']:g}"} for r in numbers["runs"]]
    return arms_figure(runs, "panel", "growth", "largest growth of a change")


PART = Part(
    name="stability",
    title="Stability and exploding gradients at a random start",
    minutes=0.5,
    full=Stability(),
    quick=Stability(n_layers=10, seeds=(0, 1)),
    jobs=jobs,
    work=work,
    figure=_figure,
    rows=rows,
    tables=tables,
    values=values,
    claims=claims,
    needs_perfume=True,
)
