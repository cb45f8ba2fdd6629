"""The printed adjoint under refinement."""

from statistics import median
from typing import Any

from reproduction.account_figures import refinement_figure
from reproduction.comparisons import names
from reproduction.part import Numbers, Part, Row, Table
from reproduction.refinement import Refinement, jobs, work

# What the printed gradient, a function of time, is multiplied with to be that of a layer; at order 1 both are the same.
FACTORS = {"with_step": "τ", "with_c": "c"}
WORDS = {"continuous": "printed", "classical": "classical"}


def medians(numbers: Numbers, order: float, adjoint: str, name: str) -> list[float]:
    """Over the seeds, by depth."""
    chosen = [r for r in numbers["runs"] if r["order"] == order and r["adjoint"] == adjoint]
    return [median(r[name] for r in chosen if r["n_layers"] == depth) for depth in names(numbers["runs"], "n_layers")]


def _kinds(numbers: Numbers) -> list[tuple[float, str]]:
    return list(dict.fromkeys((r["order"], r["adjoint"]) for r in numbers["runs"]))


def rows(numbers: Numbers) -> list[Row]:
    return [
        Row(
            f"relative error of the {WORDS[adjoint]} gradient as τ → 0, order {order:g}",
            "converges",
            " → ".join(f"{medians(numbers, order, adjoint, 'with_step')[k]:.2g}" for k in (0, -1)),
        )
        for order, adjoint in _kinds(numbers)
    ]


def tables(numbers: Numbers) -> list[Table]:
    depths = names(numbers["runs"], "n_layers")
    lines = []
    for order, adjoint in _kinds(numbers):
        for name, factor in FACTORS.items():
            if factor == "τ" or order < 1:
                errors = [f"{error:.3g}" for error in medians(numbers, order, adjoint, name)]
                cosine = f"{medians(numbers, order, adjoint, 'cosine')[-1]:.3f}"
                lines.append([f"{order:g}", WORDS[adjoint], factor, *errors, cosine])
    title = "Printed gradient of (K, b), times τ or c, against the network's own, T = 1: relative error, medians"
    headings = ("order", "adjoint", "times", *(f"N = {depth}" for depth in depths), f"cosine, N = {depths[-1]}")
    return [Table(title, headings, lines)]


def values(numbers: Numbers) -> dict[str, Any]:
    found = {}
    for order, adjoint in _kinds(numbers):
        for name in (*FACTORS, "cosine"):
            first, last = (medians(numbers, order, adjoint, name)[k] for k in (0, -1))
            found[f"{adjoint}-{order:g}-{name}-first"] = f"{first:.2g}"
            found[f"{adjoint}-{order:g}-{name}-last"] = f"{last:.2g}"
    return found


PART = Part(
    name="refinement",
    title="The printed adjoint as the step shrinks",
    minutes=1,
    full=Refinement(),
    quick=Refinement(depths=(5, 10), seeds=(0, 1)),
    jobs=jobs,
    work=work,
    figure=refinement_figure,
    rows=rows,
    tables=tables,
    values=values,
)
