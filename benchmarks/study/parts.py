"""The parts of docs/study.md that are made from results, by name."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from benchmarks.measures import markdown, number
from benchmarks.study.comparisons import Comparison
from benchmarks.study.measures import bootstrap_interval, critical_difference, improvability, ranks
from benchmarks.study.models import BY_AUTHORS, EIGHTFOLD, LOG_LOSS_ALONE, MODELS, RECIPE
from benchmarks.study.runs import CPU, Record, Run
from benchmarks.study.sources import family_of
from benchmarks.study.tuning import TUNED
from reproduction.statistics import LEVEL

NOT_RUN = "Not run yet."
OURS = "fractional"
VARIANTS = ("fractional", "fractional, learned order", "fractional, order 1")
DEFAULTS = [name for name in MODELS if name not in VARIANTS[1:]]
COMPARED = {
    "classes": [*DEFAULTS, *BY_AUTHORS],
    "numbers": [*DEFAULTS, *(name for name in BY_AUTHORS if name not in LOG_LOSS_ALONE)],
}
ONE = "one network"
LEARNT, PLAIN = (f"{name}, tuned" for name in VARIANTS[1:])
TIME_UNIT = "RealMLP-TD-S"
MEASURES = {
    "classes": {"log_loss": "log-loss", "auc": "AUC", "accuracy": "accuracy"},
    "numbers": {"rmse": "RMSE"},
}
KINDS = tuple(MEASURES)


class Results:
    """Records, and comparisons of them that are made once."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.comparison = cache(self._comparison)

    def part(self, name: str, *words: str) -> str:
        return PARTS[name](self, *words)

    def _comparison(self, half: str, kind: str, models: tuple[str, ...], by_most: bool = False) -> Comparison:
        return Comparison.of(self.records, half, kind, models, by_most=by_most)

    def compared(self, half: str, kind: str) -> Comparison:
        return self.comparison(half, kind, tuple(COMPARED[kind]), by_most=True)


def size(results: Results, half: str) -> str:
    """How many tables, models and seeds, and who is left out."""
    lines = []
    for kind in KINDS:
        found = results.compared(half, kind)
        if not found:
            lines.append(f"- {kind}: {NOT_RUN.lower()}")
            continue
        seeds = ", ".join(map(str, found.seeds))
        families = len({family_of(table) for table in found.tables})
        counts = f"{len(found.tables)} tables of {families} families, {len(found.models)} models, seeds {seeds}"
        lines.append(f"- {kind}: {counts}.{_left_out_told(found)}")
    return "\n".join(lines)


def rank_table(results: Results, half: str, kind: str) -> str:
    found = results.compared(half, kind)
    if not found:
        return NOT_RUN
    measures = MEASURES[kind]
    columns = {f"rank by {title}": ranks(found.errors(name)).mean(0) for name, title in measures.items()}
    cells = {title: [f"{value:.2f}" for value in values] for title, values in columns.items()}
    for name, title in measures.items():
        if name != "accuracy":
            cells[f"improvability, {title}"] = [f"{value:.1%}" for value in improvability(found.errors(name))]
    if kind == "classes":
        cells["calibration error"] = [f"{value:.3f}" for value in np.nanmean(found.values("ece"), axis=0)]
    for name, title in {"fit_seconds": "fit time", "predict_seconds": "predict time"}.items():
        there = TIME_UNIT in found.models
        cells[title] = [number(value) for value in found.time_ratios(name, TIME_UNIT)] if there else []
    if OURS in found.models:
        cells |= _wins(found, kind, OURS)
    order = np.argsort(next(iter(columns.values())))
    rows = [[found.models[k], *(values[k] if values else "-" for values in cells.values())] for k in order]
    return f"{markdown(['model', *cells], rows)}\n\n{_difference_told(found)}"


def _difference_told(found: Comparison) -> str:
    models, tables = len(found.models), len(found.tables)
    reach = critical_difference(models, tables)
    return f"Mean ranks of {models} models on {tables} tables differ significantly where they are {reach:.2f} apart."


def _left_out_told(found: Comparison) -> str:
    if not found.left_out:
        return ""
    return f" Left out, having run too little: {'; '.join(f'{m} ({far})' for m, far in found.left_out.items())}."


def _ranks_alone(found: Comparison, kind: str, more: dict[str, list[str]] | None = None) -> str:
    """Mean ranks of models among themselves, and further cells of each."""
    means = {title: ranks(found.errors(name)).mean(0) for name, title in MEASURES[kind].items()}
    cells = {title: [f"{value:.2f}" for value in values] for title, values in means.items()} | (more or {})
    order = np.argsort(next(iter(means.values())))
    rows = [[found.models[k], *(values[k] for values in cells.values())] for k in order]
    seeds = ", ".join(map(str, found.seeds))
    told = f"{_difference_told(found)} Seeds: {seeds}."
    return f"{markdown(['model', *cells], rows)}\n\n{told}{_left_out_told(found)}"


def single(results: Results, half: str, kind: str) -> str:
    """Our network without its ensemble among the others with default settings."""
    return _with_wins(results.comparison(half, kind, (ONE, *COMPARED[kind][1:])), kind, ONE)


def eightfold(results: Results, half: str, kind: str) -> str:
    """Our default among others of eight models each, and the forest."""
    return _with_wins(results.comparison(half, kind, (OURS, *EIGHTFOLD, "random forest")), kind, OURS)


def _with_wins(found: Comparison, kind: str, ours: str) -> str:
    return _ranks_alone(found, kind, _wins(found, kind, ours)) if found and ours in found.models else NOT_RUN


def _wins(found: Comparison, kind: str, ours: str) -> dict[str, list[str]]:
    """On how many tables one of the models is better than each by the first measure, and the p-value of that."""
    name, title = next(iter(MEASURES[kind].items()))
    wins = {model: _outcome(*outcome) for model, outcome in found.against(name, ours).items()} | {ours: ""}
    return {f"{ours} better by {title}": [wins[model] for model in found.models]}


def _outcome(wins: float, p: float) -> str:
    text = f"{wins:.0%} (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})"
    return f"**{text}**" if p < LEVEL else text


def memory(results: Results, half: str, kind: str) -> str:
    """The default's order, a learned one and order 1 among themselves, all else default."""
    found = results.comparison(half, kind, VARIANTS)
    return _ranks_alone(found, kind) if found else NOT_RUN


def recipe(results: Results, half: str, kind: str) -> str:
    """What each change of the recipe does to log-loss or RMSE: the mean of the logarithm of the ratio.

    On the tables of that change: the default ran on others too.
    """
    name, title = next(iter(MEASURES[kind].items()))
    rows = []
    for model in RECIPE:
        tables = {each["table"] for each in results.records if each["model"] == model}
        records = [each for each in results.records if each["table"] in tables]
        found = Comparison.of(records, half, kind, (OURS, model))
        if found:
            ratios = np.log(np.divide(*found.errors(name, [model, OURS]).T))
            low, high = bootstrap_interval(ratios)
            cells = [f"{ratios.mean():+.1%}", f"{low:+.1%} to {high:+.1%}", f"{np.median(ratios):+.1%}"]
            time = number(found.time_ratios("fit_seconds", OURS)[1])
            rows.append([model, *cells, f"{int((ratios > 0).sum())} of {len(ratios)}", time])
    headings = ["changed", f"{title}, mean", "95 % interval", "median", "worse on", "fit time"]
    return markdown(headings, rows) if rows else NOT_RUN


def tuned(results: Results, half: str, kind: str) -> str:
    """With the seconds of all tries, where they were taken: on a CPU."""
    found = results.comparison(half, kind, tuple(TUNED))
    if not found:
        return NOT_RUN
    seconds = [_median_seconds(found, model) for model in found.models]
    return _ranks_alone(found, kind, {"CPU seconds, median (tables)": seconds})


def _median_seconds(found: Comparison, model: str) -> str:
    runs = (found.records[Run(seed, table, model)] for seed in found.seeds for table in found.tables)
    seconds = [run["fit_seconds"] for run in runs if "fit_seconds" in run]
    return f"{number(float(np.median(seconds)))} ({len(seconds)})" if seconds else "-"


def order(results: Results, half: str, kind: str) -> str:
    """Learned order minus order 1 at equal numbers of settings: the mean with its interval."""
    found = results.comparison(half, kind, (LEARNT, PLAIN))
    if not found:
        return NOT_RUN
    name = next(iter(MEASURES[kind]))
    differences = found.differences(name, LEARNT, PLAIN)
    told = np.isfinite(differences)
    low, high = bootstrap_interval(differences[told])
    better = int((differences < 0).sum())
    what = "log-loss" if kind == "classes" else "logarithm of RMSE"
    return (
        f"{what}, learned order minus order 1: mean {differences[told].mean():+.4f}, 95 % interval {low:+.4f} to "
        f"{high:+.4f} over {int(told.sum())} tables; less, which is better, on {better}."
    )


def failures(results: Results) -> str:
    """Failed runs count as the worst on their table."""
    rows = [
        [run.model, run.table, str(run.seed), record["error"].replace("|", "\\|")]
        for record in results.records
        if record["status"] == "failed"
        for run in [Run.of(record)]
    ]
    return markdown(["model", "table", "seed", "what it said"], rows) if rows else "No run failed."


def made(results: Results) -> str:
    """What made the runs: packages, for ours the commit, and the models that they share."""
    models: dict[tuple[str, str], Counter[str]] = {}
    for each in results.records:
        models.setdefault((_made_with(each), each.get("device", CPU)), Counter())[each["model"]] += 1
    rows = [
        [*kind, "; ".join(f"{name} ({count:,})" for name, count in sorted(counts.items()))]
        for kind, counts in sorted(models.items())
    ]
    return markdown(["made with", "on", "models (runs)"], rows) if rows else NOT_RUN


def _made_with(record: Record) -> str:
    model, commit, versions = Run.of(record).base, record["made_with"]["commit"], record["made_with"]["versions"]
    text = ", ".join(f"{name} {versions[name]}" for name in model.packages if name in versions)
    return f"{text} at {commit[:8]}" if model.is_ours and commit else text


def picture(results: Results) -> str:
    there = any(results.compared("report", kind) for kind in KINDS)
    return "![Mean ranks with critical differences](images/study.png)" if there else NOT_RUN


PARTS: dict[str, Callable[..., str]] = {
    "size": size,
    "ranks": rank_table,
    "single": single,
    "eightfold": eightfold,
    "memory": memory,
    "recipe": recipe,
    "tuned": tuned,
    "order": order,
    "failures": failures,
    "made": made,
    "picture": picture,
}
