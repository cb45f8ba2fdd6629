"""Whether normalizing each mini-batch speeds up learning."""

from typing import Any

from reproduction.account_figures import choices_figure
from reproduction.batch_normalization import BatchNormalization, jobs, work
from reproduction.comparisons import effect_text, grouped, spread
from reproduction.part import Numbers, Part, Row, Table
from reproduction.statistics import Difference, ratio

WORDS = {
    "mini-batch": "each mini-batch by its own",
    "fixed": "by those of all training samples",
    "none": "not normalized",
}
KEYS = ("data", "order", "n_batches")


def effect(runs: list[dict[str, Any]], rival: str) -> Difference:
    """The loss with mini-batch normalization over that of another way, seed by seed."""
    losses = {way: {r["seed"]: r["loss"] for r in runs if r["normalization"] == way} for way in ("mini-batch", rival)}
    seeds = sorted(losses["mini-batch"].keys() & losses[rival].keys())
    return ratio([losses["mini-batch"][seed] for seed in seeds], [losses[rival][seed] for seed in seeds])


def rows(numbers: Numbers) -> list[Row]:
    return [
        Row(f"loss over that of networks {WORDS[rival]}, {data}, order {order:g}, {n} mini-batches", "less", text)
        for (data, order, n), runs in grouped(numbers["runs"], *KEYS).items()
        for rival in ("none", "fixed")
        for text in [effect_text(effect(runs, rival))]
    ]


def tables(numbers: Numbers) -> list[Table]:
    lines = []
    for (data, order, n), runs in grouped(numbers["runs"], *KEYS).items():
        accuracies = [
            spread([r["accuracy"] for r in runs if r["normalization"] == way], ".1f")
            for way in dict.fromkeys(r["normalization"] for r in runs)
        ]
        ratios = [effect_text(effect(runs, rival)) for rival in ("none", "fixed")]
        lines.append([data, f"{order:g}", str(n), *accuracies, *ratios])
    title = (
        "Training accuracy in percent, mean ± deviation, and the loss with mini-batch normalization over the others'"
    )
    headings = ("data", "order", "mini-batches", *WORDS.values(), "loss / not normalized", "loss / fixed")
    return [Table(title, headings, lines)]


def values(numbers: Numbers) -> dict[str, str]:
    return {
        f"{data}-{order:g}-{n}-{rival}": effect_text(effect(runs, rival))
        for (data, order, n), runs in grouped(numbers["runs"], *KEYS).items()
        for rival in ("none", "fixed")
    }


def _figure(numbers: Numbers) -> Any:
    most = {data: max(r["n_batches"] for r in numbers["runs"] if r["data"] == data) for data in ("CLS", "PD")}
    chosen = [r for r in numbers["runs"] if r["n_batches"] == most[r["data"]]]
    groups = grouped([{**r, "words": WORDS[r["normalization"]]} for r in chosen], "data", "words", "order")
    return choices_figure({key: [r["accuracy"] for r in runs] for key, runs in groups.items()})


PART = Part(
    name="batch-normalization",
    title="Learning with and without normalized mini-batches",
    minutes=2,
    full=BatchNormalization(),
    quick=BatchNormalization(budgets=((1,), (2,)), n_points=200, seeds=(0, 1)),
    jobs=jobs,
    work=work,
    figure=_figure,
    rows=rows,
    tables=tables,
    values=values,
    is_chaotic=lambda job: job["data"] == "PD",
    needs_perfume=True,
)
