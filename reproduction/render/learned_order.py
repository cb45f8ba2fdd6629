"""The order as a parameter."""

from statistics import median
from typing import Any

from reproduction.account_figures import profile_figure
from reproduction.comparisons import middle, names, spread
from reproduction.learned_order import LearnedOrder, jobs, work
from reproduction.part import Numbers, Part, Row, Table

# Nearer to 0 or 1 than this, an order counts as having gone to that end.
END = 0.05


def _chosen(numbers: Numbers, data: str, held: str, learned: bool) -> list[dict[str, Any]]:
    return [r for r in numbers["runs"] if (r["data"], r["held"], r["learned"]) == (data, held, learned)]


def _cases(numbers: Numbers) -> list[tuple[str, str]]:
    return [(data, held) for data in names(numbers["runs"], "data") for held in names(numbers["runs"], "held")]


def rows(numbers: Numbers) -> list[Row]:
    return [
        Row(f"{data}, {held} held: learned order, median and quarters", "-", middle([r["ends"] for r in runs]))
        for data, held in _cases(numbers)
        for runs in [_chosen(numbers, data, held, True)]
    ]


def tables(numbers: Numbers) -> list[Table]:
    return [_learned_table(numbers), _profile_table(numbers)]


def _learned_table(numbers: Numbers) -> Table:
    lines = []
    for data, held in _cases(numbers):
        runs = _chosen(numbers, data, held, True)
        ends = [r["ends"] for r in runs]
        counts = (sum(e < END for e in ends), sum(END <= e <= 1 - END for e in ends), sum(e > 1 - END for e in ends))
        starts = sorted({r["order"] for r in runs})
        by_start = " / ".join(f"{median(r['ends'] for r in runs if r['order'] == start):.2f}" for start in starts)
        accuracies = [spread([100 * r[name] for r in runs], ".1f") for name in ("train", "test")]
        lines.append([data, held, by_start, *map(str, counts), *accuracies])
    words = " / ".join(f"{order:g}" for order in sorted({r["order"] for r in numbers["runs"] if r["learned"]}))
    headings = ("data", "held", f"ends from {words}, medians", "at 0", "between", "at 1", "training, %", "test, %")
    return Table(f"The order learned; at an end is nearer than {END:g}", headings, lines)


def _profile_table(numbers: Numbers) -> Table:
    orders = sorted({r["order"] for r in numbers["runs"] if not r["learned"]})
    lines = []
    for data, held in _cases(numbers):
        runs = _chosen(numbers, data, held, False)
        cells = [[r["loss"] for r in runs if r["order"] == order] for order in orders]
        lines.append([data, held, *(middle(cell) for cell in cells)])
    title = "Loss with the order fixed: median over the seeds and the quarters about it"
    return Table(title, ("data", "held", *(f"order {order:g}" for order in orders)), lines)


def values(numbers: Numbers) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _learned_table(numbers).rows:
        data, held, _, at_0, between, at_1, *_ = line
        found |= {f"{data}-{held}-at-0": at_0, f"{data}-{held}-between": between, f"{data}-{held}-at-1": at_1}
    found["n"] = str(len(_chosen(numbers, *_cases(numbers)[0], True)))
    return found


PART = Part(
    name="learned-order",
    title="The order as a parameter",
    minutes=6.5,
    full=LearnedOrder(),
    quick=LearnedOrder(starts=(0.5,), fixed=(0.5, 1.0), n_points=200, max_iter=10, seeds=(0, 1)),
    jobs=jobs,
    work=work,
    figure=lambda numbers: profile_figure(numbers["runs"]),
    rows=rows,
    tables=tables,
    values=values,
    needs_perfume=True,
)
