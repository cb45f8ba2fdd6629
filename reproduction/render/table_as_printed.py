"""Table 2 by the paper's own algorithm."""

from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

from fracdnn.optim import Status
from reproduction.account_figures import readings_figure
from reproduction.comparisons import effect_text, grouped, spread
from reproduction.part import Numbers, Part, Row, Table
from reproduction.statistics import difference, wilson
from reproduction.table import PAPER, PERFUMES
from reproduction.table_as_printed import AsPrinted, jobs, work

Values = Callable[[Numbers], dict[str, str]]
# How near, in points, an accuracy must be to the paper's to count as the same.
NEAR = 5.0
ALL_ITERATIONS = PERFUMES.n_batches * PERFUMES.iterations
KEYS = ("gradient", "normalization", "network")
WORDS = {
    "exact": "exact",
    "printed": "printed, ∇K put right",
    "printed, transposed": "printed, literally",
    "feature": "by feature",
    "global": "one mean for all",
}


def papers(network: str) -> tuple[float, float]:
    """Training and test accuracy; the plain network, which is not in the table, is held against the residual one's."""
    order = 0.9 if network == "order 0.9" else 1.0
    train, test = PAPER["PD", order]
    return float(train), float(test)


def shares(runs: list[dict[str, Any]], network: str) -> tuple[float, float, float]:
    """Of seeds near the paper's: on the last mini-batch, on all samples; and there with a test on 19 perfumes too."""
    train, test = papers(network)
    on_batch = [abs(r["batch"] - train) < NEAR for r in runs]
    on_all = [abs(r["all"] - train) < NEAR for r in runs]
    both = [
        near and any(abs(each - test) < NEAR for each in r["without_one"])
        for near, r in zip(on_batch, runs, strict=True)
    ]
    found = [100 * sum(each) / len(runs) for each in (on_batch, on_all, both)]
    return found[0], found[1], found[2]


def rows(numbers: Numbers) -> list[Row]:
    return [
        Row(
            f"{network}, gradient {WORDS[gradient]}, {WORDS[normalization]}: on the last mini-batch, %",
            f"{papers(network)[0]}",
            spread([r["batch"] for r in runs], ".1f"),
        )
        for (gradient, normalization, network), runs in grouped(numbers["runs"], *KEYS).items()
    ]


def tables(numbers: Numbers) -> list[Table]:
    lines = []
    for (gradient, normalization, network), runs in grouped(numbers["runs"], *KEYS).items():
        train, test = papers(network)
        spans = [(min(r["without_one"]), max(r["without_one"])) for r in runs]
        span = f"{min(low for low, _ in spans):.0f} to {max(high for _, high in spans):.0f}"
        lines.append(
            [
                WORDS[gradient],
                WORDS[normalization],
                network,
                spread([r["batch"] for r in runs], ".1f"),
                spread([r["all"] for r in runs], ".1f"),
                span,
                f"{train} / {test}",
                " / ".join(f"{share:.0f}" for share in shares(runs, network)),
            ]
        )
    headings = (
        "gradient",
        "normalization",
        "network",
        "last mini-batch, %",
        "all 560, %",
        "any 19 perfumes, %",
        "paper, %",
        f"seeds within {NEAR:g} points, %: batch / all / batch and test",
    )
    n_seeds = len({r["seed"] for r in numbers["runs"]})
    return [Table(f"Mean ± standard deviation over {n_seeds} seeds; range of 19 perfumes over seeds", headings, lines)]


def values(numbers: Numbers) -> dict[str, str]:
    found, groups = {}, grouped(numbers["runs"], *KEYS)
    for key, runs in groups.items():
        name = "-".join(key).replace(", ", "-").replace(" ", "-")
        found[f"{name}-batch"] = f"{sum(r['batch'] for r in runs) / len(runs):.1f}"
        found[f"{name}-all"] = f"{sum(r['all'] for r in runs) / len(runs):.1f}"
        found[f"{name}-near"] = f"{shares(runs, key[-1])[0]:.0f}"
        found[f"{name}-near-all"] = f"{shares(runs, key[-1])[1]:.0f}"
        found[f"{name}-near-both"] = f"{shares(runs, key[-1])[2]:.0f}"
        found[f"{name}-iterations"] = f"{100 * median(r['iterations'] for r in runs) / ALL_ITERATIONS:.0f}"
        found[f"{name}-failed"] = str(sum(r["status"] == Status.LINE_SEARCH_FAILED for r in runs))
    for (gradient, normalization, network), runs in groups.items():
        if network == "order 0.9":
            rivals = {r["seed"]: r["batch"] for r in groups[gradient, normalization, "order 1"]}
            found[f"{gradient}-{normalization}-difference"] = effect_text(
                difference([r["batch"] for r in runs], [rivals[r["seed"]] for r in runs])
            )
    found["n"] = str(len({r["seed"] for r in numbers["runs"]}))
    return found


QUICK = AsPrinted(column=PERFUMES.short(3), normalizations=("global",), seeds=(0,))


def _part(name: str, title: str, minutes: float, full: AsPrinted, quick: AsPrinted, values: Values = values) -> Part:
    return Part(
        name=name,
        title=title,
        minutes=minutes,
        full=full,
        quick=quick,
        jobs=jobs,
        work=work,
        figure=lambda numbers: readings_figure(numbers, WORDS),
        rows=rows,
        tables=tables,
        values=values,
        needs_perfume=True,
        is_chaotic=lambda job: True,
    )


def paired(numbers: Numbers) -> dict[str, str]:
    """How the paper's two accuracies and their gap lie among runs of both orders, seed by seed, on the last mini-batch.

    A share has Wilson's 95 % interval.
    """
    by_order = {
        order: {r["seed"]: r["batch"] for r in numbers["runs"] if r["network"] == f"order {order:g}"}
        for order in (1.0, 0.9)
    }
    found, gap = {}, papers("order 0.9")[0] - papers("order 1")[0]
    gaps = [by_order[0.9][seed] - value for seed, value in by_order[1.0].items()]
    for order, batches in by_order.items():
        below = sum(value < papers(f"order {order:g}")[0] for value in batches.values())
        found[f"below-{order:g}"] = f"{100 * below / len(batches):.0f}"
        found[f"mean-{order:g}"] = spread(list(batches.values()), ".1f")
        found[f"range-{order:g}"] = f"{min(batches.values()):.0f} to {max(batches.values()):.0f}"
    n_wide = sum(each >= gap for each in gaps)
    low, high = wilson(n_wide, len(gaps))
    found["wide"], found["n"] = str(n_wide), str(len(gaps))
    found["wide-share"] = f"{100 * n_wide / len(gaps):.0f} % ({100 * low:.0f} to {100 * high:.0f})"
    found["ahead"] = str(sum(each > 0 for each in gaps))
    effect = difference(list(by_order[0.9].values()), [by_order[1.0][seed] for seed in by_order[0.9]])
    found["difference"], found["p"] = effect_text(effect), f"{effect.p:.2g}"
    return found


PART = _part("table-as-printed", "Table 2 by the paper's own algorithm", 12.5, AsPrinted(), QUICK)
SWAPPED = _part(
    "table-swapped",
    "Table 2 with m2 mini-batches of m1 iterations each",
    5,
    AsPrinted(swapped=True, with_plain=False),
    replace(QUICK, gradients=("printed",), swapped=True, with_plain=False),
)
# The reading that changes nothing that is printed, on enough seeds to say how often a gap comes by chance.
LITERAL = AsPrinted(
    gradients=("printed, transposed",), normalizations=("feature",), with_plain=False, seeds=tuple(range(50))
)
PAIRED = _part(
    "table-paired",
    "Table 2 read literally, 50 paired seeds",
    15,
    LITERAL,
    replace(LITERAL, column=PERFUMES.short(3), seeds=(0, 1)),
    paired,
)
