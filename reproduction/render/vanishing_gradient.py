"""Gradients over the layers."""

import math
from statistics import median
from typing import Any

from reproduction.account_figures import vanishing_gradient_figure
from reproduction.comparisons import effects, middle, names, of_network
from reproduction.part import Claim, Numbers, Part, Row, Table
from reproduction.vanishing_gradient import VanishingGradient, jobs, work

PAPER = {"plain": "vanishes", "order 1": "about 0.1", "order 0.9": "same magnitude"}
CLAIMED = (0.9, 0.5, 0.1)


def ratio_on_the_way(run: dict[str, Any]) -> float:
    """First over last layer, geometric mean over the points of the descent, the start among them."""
    logarithms = [math.log(a) - math.log(b) for a, b in zip(run["first"], run["last"], strict=True)]
    return math.exp(sum(logarithms) / len(logarithms))


def imbalance(run: dict[str, Any]) -> float:
    """How many times larger the gradient of one of the two layers is, 1 where they are equal: geometric mean.

    Of logarithms without their sign, so that an early imbalance does not cancel a late one the other way.
    """
    logarithms = [abs(math.log(a) - math.log(b)) for a, b in zip(run["first"], run["last"], strict=True)]
    return math.exp(sum(logarithms) / len(logarithms))


def ratio_at_start(run: dict[str, Any]) -> float:
    return run["first"][0] / run["last"][0]


def of_kind(numbers: Numbers, kind: str) -> list[dict[str, Any]]:
    return [r for r in numbers["runs"] if r["kind"] == kind]


def claims(numbers: Numbers) -> list[Claim]:
    runs, found = of_kind(numbers, "trained"), []
    for order in (order for order in CLAIMED if of_network(runs, f"order {order:g}")):
        found.append(
            Claim(
                f"gradient of one magnitude over 70 layers, order {order:g}",
                "first and last layer of one magnitude; a tenth for the residual network",
                "how many times larger one of the two is, geometric mean over 100 steps of descent",
                "less",
                effects(runs, order, imbalance, is_ratio=True),
            )
        )
    for order in (order for order in CLAIMED if of_network(runs, f"order {order:g}")):
        found.append(
            Claim(
                f"better learning of 70 layers, order {order:g}",
                '"leads to better learning ability"',
                "loss after 100 steps of steepest descent",
                "less",
                effects(runs, order, lambda r: r["loss"], is_ratio=True),
            )
        )
    return found


def rows(numbers: Numbers) -> list[Row]:
    runs = of_kind(numbers, "trained")
    return [
        Row(
            f"gradient norm, first / last layer, {name}",
            PAPER.get(name, "-"),
            middle([ratio_on_the_way(r) for r in of_network(runs, name).values()]),
        )
        for name in names(runs)
    ]


def tables(numbers: Numbers) -> list[Table]:
    return [_trained_table(of_kind(numbers, "trained")), _start_table(of_kind(numbers, "start"))]


def _trained_table(runs: list[dict[str, Any]]) -> Table:
    lines = []
    for name in names(runs):
        chosen = list(of_network(runs, name).values())
        ends = [middle([r[key][0] for r in chosen]) for key in ("first", "last")]
        ratios = [middle([measure(r) for r in chosen]) for measure in (ratio_at_start, ratio_on_the_way)]
        steps = [r["steps"] for r in chosen]
        step_size = f"{chosen[0]['step_size']:.3g}"
        whole = f"{sum(s == max(steps) for s in steps)} of {len(steps)}" if name != "plain" else f"up to {max(steps)}"
        lines.append([name, step_size, *ends, *ratios, middle([r["loss"] for r in chosen], ".3g"), whole])
    title = "70 layers, norm of the gradient of (K, b): median over the seeds and the quarters about it"
    headings = ("network", "τ", "first layer, start", "last layer, start", "ratio, start", "ratio, geometric mean")
    return Table(title, (*headings, "final loss", "with all steps"), lines)


def _start_table(runs: list[dict[str, Any]]) -> Table:
    depths, lines = names(runs, "n_layers"), []
    for name in names(runs):
        for width in names(runs, "width"):
            cells = []
            for depth in depths:
                chosen = [r for r in runs if (r["network"], r["width"], r["n_layers"]) == (name, width, depth)]
                cells.append(f"{median(r['first'] / r['last'] for r in chosen):.2g}")
            lines.append([name, str(width), *cells])
        if name not in ("plain", "order 1"):
            predicted = {r["n_layers"]: r["resolvent"] for r in runs if r["network"] == name}
            lines.append([name, "resolvent", *(f"{predicted[depth]:.2g}" for depth in depths)])
    title = "First over last layer at a random start, median over the seeds, and the resolvent's prediction"
    return Table(title, ("network", "width", *(f"N = {depth}" for depth in depths)), lines)


def values(numbers: Numbers) -> dict[str, str]:
    found = {}
    runs = of_kind(numbers, "trained")
    for name in names(runs):
        chosen = list(of_network(runs, name).values())
        key = name.replace(", ", "-").replace(" ", "-")
        found[f"{key}-start"] = f"{median(ratio_at_start(r) for r in chosen):.2g}"
        found[f"{key}-way"] = f"{median(ratio_on_the_way(r) for r in chosen):.2g}"
        found[f"{key}-loss"] = f"{median(r['loss'] for r in chosen):.3g}"
        found[f"{key}-last"] = f"{median(r['last'][0] for r in chosen):.1g}"
        found[f"{key}-first"] = f"{median(r['first'][0] for r in chosen):.1g}"
        found[f"{key}-n"] = str(len(chosen))
    for r in of_kind(numbers, "start"):
        found[f"resolvent-{r['order']:g}-{r['n_layers']}"] = f"{r['resolvent']:.2g}"
    return found


PART = Part(
    name="vanishing-gradient",
    title="Gradient norms over the layers",
    minutes=2.5,
    full=VanishingGradient(),
    quick=VanishingGradient(iterations=5, seeds=(0, 1), depths=(10, 30), widths=(2, 16), start_seeds=(0,)),
    jobs=jobs,
    work=work,
    figure=vanishing_gradient_figure,
    rows=rows,
    tables=tables,
    values=values,
    claims=claims,
    is_chaotic=lambda job: job.get("adjoint", "exact") != "exact",
    needs_perfume=True,
)
