"""The paper's derivative test."""

from reproduction.experiment_figures import gradient_figure
from reproduction.gradient_test import GradientTest, jobs, work
from reproduction.part import Numbers, Part, Row, Table

WORDS = {"exact": "exact", "classical": "classical", "continuous": "printed"}


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
        first = [f"{c[name]:.1f}" for name in ("first_layer", "first_layer_with_c")]
        off = [f"{c['off'][name]:.1f}" for name in ("K", "b")]
        lines.append([f"{c['order']:g}", WORDS[c["adjoint"]], *smallest, *off, f"{c['cosine']:.3f}", *first])
    headings = (
        "order",
        "adjoint",
        "W",
        "K",
        "b",
        "off, K",
        "off, b",
        "cosine",
        "first layer",
        "first layer, c put back",
    )
    title = (
        "Smallest relative difference to central differences along one direction; against the exact gradient: "
        "difference by norm, cosine of (K, b), and the first layer's K"
    )
    return [Table(title, headings, lines)]


def values(numbers: Numbers) -> dict[str, str]:
    found = {}
    for c in numbers["runs"]:
        key = f"{WORDS[c['adjoint']]}-{c['order']:g}"
        found[f"{key}-worst"] = f"{max(min(c['errors'][name]) for name in 'WKb'):.0e}"
        found[f"{key}-off"] = f"{max(c['off'].values()):.1g}"
        found[f"{key}-first"] = f"{c['first_layer']:.0f}"
        found[f"{key}-first-c"] = f"{c['first_layer_with_c']:.0f}"
        found[f"{key}-cosine"] = f"{c['cosine']:.2f}"
    return found


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
    values=values,
)
