"""Line searches."""

from typing import Any

from reproduction.account_figures import arms_figure
from reproduction.comparisons import effects, names, of_network, spread
from reproduction.line_search import LineSearch, jobs, work
from reproduction.part import Claim, Numbers, Part, Row, Table
from reproduction.table import LEVEL_SETS, PERFUMES

WORDS = {"bfgs": "library's BFGS", "textbook-bfgs": "textbook BFGS"}
ORDERS = {"CLS": 0.1, "PD": 0.9}


def per_iteration(run: dict[str, Any]) -> float:
    return run["trials"] / run["iterations"]


def _chosen(numbers: Numbers, data: str, method: str) -> list[dict[str, Any]]:
    return [r for r in numbers["runs"] if r["data"] == data and r["method"] == method]


def claims(numbers: Numbers) -> list[Claim]:
    return [
        Claim(
            f"fewer line searches, {data}, {WORDS[method]}, order {ORDERS[data]:g}",
            "fewer Armijo iterations than the residual network",
            "trials per iteration",
            "less",
            effects(_chosen(numbers, data, method), ORDERS[data], per_iteration),
        )
        for data in names(numbers["runs"], "data")
        for method in names(numbers["runs"], "method")
    ]


def rows(numbers: Numbers) -> list[Row]:
    return [Row(f"trials per iteration, {line[0]}, {line[1]}, {line[2]}", "-", line[-2]) for line in _lines(numbers)]


def _lines(numbers: Numbers) -> list[list[str]]:
    found = []
    for data in names(numbers["runs"], "data"):
        for method in names(numbers["runs"], "method"):
            chosen = _chosen(numbers, data, method)
            for name in names(chosen):
                runs = list(of_network(chosen, name).values())
                cells = [spread([per_iteration(r) for r in runs], ".3f"), str(len(runs))]
                found.append([data, WORDS[method], name, f"{runs[0]['step_size']:.3g}", *cells])
    return found


def tables(numbers: Numbers) -> list[Table]:
    headings = ("data", "optimizer", "network", "τ", "trials per iteration", "seeds")
    return [Table("Trials of the line search, mean ± standard deviation over the seeds", headings, _lines(numbers))]


def _figure(numbers: Numbers) -> Any:
    runs = [
        {**r, "panel": f"{r['data']}, {WORDS[r['method']]}", "per_iteration": per_iteration(r)} for r in numbers["runs"]
    ]
    return arms_figure(runs, "panel", "per_iteration", "trials per iteration", scale="linear")


PART = Part(
    name="line-search",
    title="Trials of the line search, two BFGS",
    minutes=2,
    full=LineSearch(),
    quick=LineSearch(level_sets=LEVEL_SETS.short(2), perfumes=PERFUMES.short(3), n_points=200, seeds=(0, 1)),
    jobs=jobs,
    work=work,
    figure=_figure,
    rows=rows,
    tables=tables,
    claims=claims,
    is_chaotic=lambda job: job["data"] == "PD",
    needs_perfume=True,
)
