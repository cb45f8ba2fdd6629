"""The example of the L1 scheme."""

import math
from itertools import pairwise

from reproduction.experiment_figures import solution_figure
from reproduction.mittag_leffler import Example, jobs, work
from reproduction.part import Numbers, Part, Row, Table


def rows(numbers: Numbers) -> list[Row]:
    (shown,) = (r for r in numbers["runs"] if "curve" in r)
    text = f"{shown['at_end']:.6f} (exact {shown['exact']:.6f}, error {shown['error']:.1e})"
    return [
        Row(f"u(1) with step {shown['step_size']:g}", "curves coincide", text),
        Row("order of convergence at t = 1", "-", ", ".join(f"{o:.2f}" for o in _orders(numbers))),
    ]


def tables(numbers: Numbers) -> list[Table]:
    orders = ["-", *(f"{order:.2f}" for order in _orders(numbers))]
    lines = [
        [f"{r['step_size']:g}", f"{r['at_end']:.6f}", f"{r['exact']:.6f}", f"{r['error']:.2e}", order]
        for r, order in zip(numbers["runs"], orders, strict=True)
    ]
    headings = ("step size", "u(1), L1 scheme", "u(1), exact", "error", "order")
    return [Table("d_t^0.5 u = -4u, u(0) = 0.5", headings, lines)]


def _orders(numbers: Numbers) -> list[float]:
    """Slopes of the error from one step size to the next."""
    return [
        math.log(r["error"] / finer["error"]) / math.log(r["step_size"] / finer["step_size"])
        for r, finer in pairwise(numbers["runs"])
    ]


PART = Part(
    name="mittag-leffler",
    title="The example d_t^0.5 u = -4u",
    minutes=0.1,
    full=Example(),
    quick=Example(step_sizes=(0.02, 0.01, 0.005)),
    jobs=jobs,
    work=work,
    figure=solution_figure,
    rows=rows,
    tables=tables,
    values=lambda numbers: {"order": f"{_orders(numbers)[-1]:.2f}"},
)
