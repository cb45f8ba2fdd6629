"""The paper's derivative test."""

from fracdnn.experiments.gradient_test import GradientTest, jobs, work
from fracdnn.experiments.part import Numbers, Part, Row, Table
from fracdnn.report.figures import gradient_figure


def rows(numbers: Numbers) -> list[Row]:
    found = []
    for adjoint, word in (("exact", "exact adjoint"), ("continuous", "printed adjoint")):
        worst = max(min(c["errors"][name]) for c in numbers["runs"] if c["adjoint"] == adjoint for name in "WKb")
        paper = "-" if adjoint == "exact" else "agrees"
        found.append(Row(f"{word} against differences, worst of W, K, b", paper, f"{worst:.0e} relative"))
    return found


def tables(numbers: Numbers) -> list[Table]:
    lines = []
    for c in numbers["runs"]:
        smallest = [f"{min(c['errors'][name]):.1e}" for name in ("W", "K", "b")]
        kind = "exact" if c["adjoint"] == "exact" else "printed"
        lines.append([f"{c['order']:g}", kind, *smallest, f"{c['cosine']:.3f}", f"{c['first_layer']:.1f}"])
    headings = ("order", "adjoint", "W", "K", "b", "cosine (K, b)", "first layer")
    title = "Smallest relative difference to central differences; cosine and first layer's K against the exact gradient"
    return [Table(title, headings, lines)]


PART = Part(
    name="gradient-test",
    title="Gradients against finite differences",
    minutes=0.1,
    full=GradientTest(),
    quick=GradientTest(n_layers=10, n_samples=30),
    jobs=jobs,
    work=work,
    figure=gradient_figure,
    rows=rows,
    tables=tables,
)
