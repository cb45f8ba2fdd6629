"""The flow of the perfumes."""

from reproduction.comparisons import effects, names, of_network, spread
from reproduction.experiment_figures import flow_figure
from reproduction.flow import FlowSettings, jobs, work
from reproduction.part import Claim, Numbers, Part, Row, Table
from reproduction.table import PERFUMES


def _deepest(numbers: Numbers) -> list[dict]:
    runs = [r for r in numbers["runs"] if r["kind"] == "depth"]
    return [r for r in runs if r["n_layers"] == max(r["n_layers"] for r in runs)]


def claims(numbers: Numbers) -> list[Claim]:
    return [
        Claim(
            "perfumes better separated, order 0.9",
            "residual: classes overlap; fractional: separated",
            "linear classifier on state 35, points",
            "more",
            effects(_deepest(numbers), 0.9, lambda r: 100 * r["separability"]),
        )
    ]


def rows(numbers: Numbers) -> list[Row]:
    pictures = [r for r in numbers["runs"] if r["kind"] == "picture"]
    here = [Row("linear classifier on Y_0, % right", "-", f"{100 * pictures[0]['start_separability']:.2f}")]
    for r in pictures:
        paper = "overlaps" if r["order"] == 1.0 else "separated"
        what = f"linear classifier on the last state, {r['network']}, % right"
        here.append(Row(what, paper, f"{100 * r['separability']:.2f}"))
    return here


def tables(numbers: Numbers) -> list[Table]:
    lines = []
    runs = [r for r in numbers["runs"] if r["kind"] == "depth"]
    for depth in names(runs, "n_layers"):
        for name in ("order 1", "order 0.9"):
            chosen = of_network([r for r in runs if r["n_layers"] == depth], name).values()
            cells = [spread([100 * r[key] for r in chosen], ".2f") for key in ("separability", "accuracy")]
            lines.append([str(depth), name, *cells])
    headings = ("N", "network", "linear classifier on the last state, %", "network's own class map, %")
    return [Table("Perfumes after N layers, mean ± standard deviation over the seeds", headings, lines)]


def values(numbers: Numbers) -> dict[str, str]:
    pictures = [r for r in numbers["runs"] if r["kind"] == "picture"]
    found = {"start": f"{100 * pictures[0]['start_separability']:.1f}"}
    for depth, name, separability, accuracy in tables(numbers)[0].rows:
        found[f"{name.replace(' ', '-')}-{depth}-separability"] = separability
        found[f"{name.replace(' ', '-')}-{depth}-accuracy"] = accuracy
    return found


PART = Part(
    name="flow",
    title="Forward propagation of the perfume data",
    minutes=1,
    full=FlowSettings(),
    quick=FlowSettings(column=PERFUMES.short(5), depths=(1, 35), max_iter=10, seeds=(0, 1)),
    jobs=jobs,
    work=work,
    figure=flow_figure,
    rows=rows,
    tables=tables,
    values=values,
    claims=claims,
    needs_perfume=True,
    is_chaotic=lambda job: job["kind"] == "picture",
)
