"""The paper's Table 2: accuracy on level sets (CLS) and perfumes (PD), order 1 against 0.1 and 0.9."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from fracdnn.datasets import Perfume
from fracdnn.experiments.jobs import in_parallel
from fracdnn.experiments.paper_training import Setting, Split, level_set_split, perfume_split, trained
from fracdnn.experiments.part import Numbers, Part, Row, Table, Tick, percent
from fracdnn.report.experiment_figures import accuracy_figure

LEVEL_SETS = Setting("CLS", 1.0, n_layers=5, n_batches=6, iterations=30, class_map=1e-1, operator=1e2, bias=1e-2)
PERFUMES = Setting("PD", 1.0, n_layers=35, n_batches=567, iterations=15, class_map=1e-8, operator=0.0, bias=0.0)
# What the paper reports, in percent: (training, test) by data and order.
PAPER = {
    ("CLS", 1.0): ("99.76", "99.79"),
    ("CLS", 0.1): ("99.82", "99.79"),
    ("PD", 1.0): ("52.86", "45.49"),
    ("PD", 0.9): ("70.36", "84.21"),
}
SPLITS = {
    "CLS": {"10,000 + 10,000 points": False},
    "PD": {"all 560": False, "first 14 s, last 14 s": True},
}


@dataclass(frozen=True)
class TableSettings:
    """Columns as printed; five seeds. `with_open` and `open_seeds` are for what the paper leaves open."""

    columns: tuple[Setting, ...] = (
        LEVEL_SETS,
        LEVEL_SETS.with_order(0.1),
        PERFUMES,
        PERFUMES.with_order(0.9),
    )
    n_points: int = 10_000
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    open_seeds: tuple[int, ...] = (0, 1)
    with_open: bool = True


QUICK = TableSettings(
    columns=tuple(replace(s, n_batches=min(s.n_batches, 4)) for s in TableSettings().columns),
    n_points=500,
    seeds=(0, 1),
    open_seeds=(0,),
)


def jobs(settings: TableSettings) -> list[tuple[Setting, bool, int]]:
    """Setting, whether to split by time, and seed of every run: the table, then what the paper leaves open."""
    table = [
        (column, by_time, seed)
        for column in settings.columns
        for by_time in SPLITS[column.data].values()
        for seed in settings.seeds
    ]
    variants = [
        (variant, False, seed)
        for column in settings.columns
        for variant in open_variants(column)
        for seed in settings.open_seeds
    ]
    return table + (variants if settings.with_open else [])


def open_variants(column: Setting) -> list[Setting]:
    """The setting with one of the open choices taken the other way."""
    variants = [replace(column, normalization="global"), replace(column, by_class=True)]
    if column.operator:
        variants.append(replace(column, laplacian="matrix"))
    return variants


def run(settings: TableSettings, perfume: Perfume | None, tick: Tick) -> Numbers:
    assert perfume is not None
    wanted = jobs(settings)
    arguments = [
        (setting, _split(setting, by_time, seed, settings, perfume), seed) for setting, by_time, seed in wanted
    ]
    found = in_parallel(_outcome, arguments, tick)
    runs = [
        {"setting": asdict(setting), "by_time": by_time, "seed": seed, **outcome}
        for (setting, by_time, seed), outcome in zip(wanted, found, strict=True)
    ]
    n_table = len(jobs(replace(settings, with_open=False)))
    return {"table": runs[:n_table], "open": runs[n_table:]}


def rows(numbers: Numbers) -> list[Row]:
    found = []
    for (data, order), papers in PAPER.items():
        for split, by_time in SPLITS[data].items():
            chosen = [r for r in numbers["table"] if _is(r, data, order) and r["by_time"] == by_time]
            for name, paper in zip(("train", "test"), papers, strict=True):
                if data == "PD" and not by_time and name == "test":
                    continue
                here = percent([r[name] for r in chosen])
                words = {"train": "training", "test": "test"}[name]
                found.append(Row(f"{data}, order {order:g}, {split}: {words} accuracy, %", paper, here))
    return found


def tables(numbers: Numbers) -> list[Table]:
    return [_accuracy_table(numbers["table"]), _line_search_table(numbers["table"]), _open_table(numbers)]


def _accuracy_table(runs: list[dict[str, Any]]) -> Table:
    lines = []
    for (data, order), (paper_train, paper_test) in PAPER.items():
        for split, by_time in SPLITS[data].items():
            chosen = [r for r in runs if _is(r, data, order) and r["by_time"] == by_time]
            test = "-" if data == "PD" and not by_time else percent([r["test"] for r in chosen])
            train = percent([r["train"] for r in chosen])
            lines.append([data, f"{order:g}", split, paper_train, train, paper_test, test])
    headings = ("data", "order", "samples", "training, paper", "training, here", "test, paper", "test, here")
    return Table("Accuracy in percent, mean and range over the seeds", headings, lines)


def _line_search_table(runs: list[dict[str, Any]]) -> Table:
    lines = []
    for data, order in PAPER:
        chosen = [r for r in runs if _is(r, data, order) and not r["by_time"]]
        per_iteration = [r["line_search_trials"] / r["iterations"] for r in chosen]
        mean = sum(per_iteration) / len(per_iteration)
        trials, iterations = (
            sum(r[name] for r in chosen) / len(chosen) for name in ("line_search_trials", "iterations")
        )
        spread = f"{min(per_iteration):.3f} to {max(per_iteration):.3f}"
        lines.append([data, f"{order:g}", f"{iterations:.0f}", f"{trials:.0f}", f"{mean:.3f} ({spread})"])
    headings = ("data", "order", "BFGS iterations", "line-search trials", "trials per iteration")
    return Table("Line search, mean over the seeds", headings, lines)


def _open_table(numbers: Numbers) -> Table:
    lines = []
    for data, order in PAPER:
        fixed = [r for r in numbers["table"] if _is(r, data, order) and not r["by_time"]]
        seeds = {r["seed"] for r in numbers["open"]}
        groups = {"as fixed": [r for r in fixed if r["seed"] in seeds]}
        for r in numbers["open"]:
            if _is(r, data, order):
                groups.setdefault(_variant_name(r["setting"]), []).append(r)
        for name, chosen in groups.items():
            lines.append([data, f"{order:g}", name, *(percent([r[k] for r in chosen]) for k in ("train", "test"))])
    return Table(
        "What the paper leaves open, taken the other way", ("data", "order", "choice", "training", "test"), lines
    )


def _variant_name(setting: dict[str, Any]) -> str:
    if setting["laplacian"] == "matrix":
        return "Laplacian over rows and columns of K"
    return "mini-batch drawn class by class" if setting["by_class"] else "one mean and deviation for all features"


def _is(run: dict[str, Any], data: str, order: float) -> bool:
    return run["setting"]["data"] == data and run["setting"]["order"] == order


def _split(setting: Setting, by_time: bool, seed: int, settings: TableSettings, perfume: Perfume) -> Split:
    if setting.data == "CLS":
        return level_set_split(settings.n_points, seed)
    return perfume_split(perfume, by_time=by_time)


def _outcome(setting: Setting, split: Split, seed: int) -> dict[str, float]:
    return asdict(trained(setting, split, seed)[1])


PART = Part(
    name="table",
    title="Accuracy on level sets and perfumes (Table 2)",
    full=TableSettings(),
    quick=QUICK,
    units=lambda settings: len(jobs(settings)),
    run=run,
    figure=lambda numbers: accuracy_figure(numbers["table"], PAPER),
    rows=rows,
    tables=tables,
    needs_perfume=True,
)
