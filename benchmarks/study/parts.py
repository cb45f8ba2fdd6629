"""The parts of docs/study.md that are made from results, by name."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from benchmarks.measures import markdown, number
from benchmarks.study.comparisons import Comparison
from benchmarks.study.measures import bootstrap_interval, critical_difference, improvability, ranks
from benchmarks.study.models import MODELS, RECIPE
from benchmarks.study.runs import CPU, Record, Run
from benchmarks.study.tuning import TUNED
from reproduction.statistics import LEVEL

NOT_RUN = "Not run yet."
OURS = "fractional"
VARIANTS = ("fractional", "fractional, learnt order", "fractional, order 1")
COMPARED = [name for name in MODELS if name not in VARIANTS[1:]]
NEURAL = [name for name in COMPARED if MODELS[name].is_neural]
LEARNT, PLAIN = (f"{name}, tuned" for name in VARIANTS[1:])
TIME_UNIT = "RealMLP-TD-S"
BEST_TREES = "CatBoost"
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
        return self.comparison(half, kind, tuple(COMPARED), by_most=True)

    def networks(self, half: str, kind: str) -> Comparison:
        """By the seeds that all have: some networks take so long that they have few."""
        return self.comparison(half, kind, tuple(NEURAL))


def size(results: Results, half: str) -> str:
    """How many tables, models and seeds, and who is left out."""
    lines = []
    for kind in KINDS:
        found = results.compared(half, kind)
        if not found:
            lines.append(f"- {kind}: {NOT_RUN.lower()}")
            continue
        seeds = ", ".join(map(str, found.seeds))
        counts = f"{len(found.tables)} tables, {len(found.models)} models, seeds {seeds}"
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


def neural(results: Results, half: str, kind: str) -> str:
    found = results.networks(half, kind)
    return _ranks_alone(found, kind) if found else NOT_RUN


def _ranks_alone(found: Comparison, kind: str) -> str:
    means = {title: ranks(found.errors(name)).mean(0) for name, title in MEASURES[kind].items()}
    order = np.argsort(next(iter(means.values())))
    rows = [[found.models[k], *(f"{values[k]:.2f}" for values in means.values())] for k in order]
    seeds = ", ".join(map(str, found.seeds))
    told = f"{_difference_told(found)} Seeds: {seeds}."
    return f"{markdown(['model', *means], rows)}\n\n{told}{_left_out_told(found)}"


def against(results: Results, half: str, kind: str) -> str:
    """Our win rate against each rival, with the p-value of a difference."""
    found = results.compared(half, kind)
    if not found or OURS not in found.models:
        return NOT_RUN
    outcomes = {title: found.against(name, OURS) for name, title in MEASURES[kind].items()}
    rivals = [name for name in found.models if name != OURS]
    rows = [[name, *(_outcome(*outcome[name]) for outcome in outcomes.values())] for name in rivals]
    return markdown(["against", *outcomes], rows)


def _outcome(wins: float, p: float) -> str:
    text = f"{wins:.0%} (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})"
    return f"**{text}**" if p < LEVEL else text


def aims(results: Results, half: str) -> str:
    """What was asked of the default, and whether it is so."""
    rows = []
    for kind in KINDS:
        found, networks = results.compared(half, kind), results.networks(half, kind)
        if found and networks and OURS in found.models:
            rows += _aims_of(found, networks, kind)
    headings = ["asked of the default", "measured", ""]
    return markdown(headings, rows) if rows else NOT_RUN


def _aims_of(found: Comparison, networks: Comparison, kind: str) -> list[list[str]]:
    rows = []
    for name, title in MEASURES[kind].items():
        if name == "accuracy":
            continue
        means = ranks(networks.errors(name)).mean(0)
        place = 1 + int((means < means[networks.models.index(OURS)]).sum())
        asked = f"first of {len(networks.models)} networks by mean rank of {title}"
        rows.append([asked, f"place {place}", _verdict(place == 1)])
        if BEST_TREES in found.models:
            wins, p = found.against(name, OURS)[BEST_TREES]
            behind = p < LEVEL and wins < 0.5
            asked = f"not significantly behind {BEST_TREES} by {title}"
            rows.append([asked, f"better on {wins:.0%} of the tables, p = {p:.2g}", _verdict(not behind)])
    if TIME_UNIT in found.models:
        ratio = found.time_ratios("fit_seconds", TIME_UNIT)[found.models.index(OURS)]
        asked = f"fit time at most that of {TIME_UNIT}, {kind}"
        rows.append([asked, f"{number(ratio)} of it", _verdict(ratio <= 1)] if np.isfinite(ratio) else [asked, "-", ""])
    return rows


def _verdict(reached: bool) -> str:
    return "reached" if reached else "MISS"


def values(results: Results, half: str, kind: str) -> str:
    """By table: log-loss, or R² in percent, the best in bold."""
    found = results.compared(half, kind)
    if not found:
        return NOT_RUN
    name = "log_loss" if kind == "classes" else "r2"
    errors, shown = found.errors(name), found.values(name)
    rows = []
    for table, row, lacks in zip(found.tables, shown, errors, strict=True):
        cells = [_value(value, name) for value in row]
        rows.append(
            [table, *(f"**{cell}**" if lack == lacks.min() else cell for cell, lack in zip(cells, lacks, strict=True))]
        )
    return markdown(["table", *found.models], rows)


def _value(value: float, name: str) -> str:
    if np.isnan(value):
        return "failed"
    return f"{value:.3f}" if name == "log_loss" else f"{100 * value:.1f}"


def memory(results: Results, half: str, kind: str) -> str:
    """The default's order, a learnt one and order 1 among themselves, all else default."""
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
    found = results.comparison(half, kind, tuple(TUNED))
    return _ranks_alone(found, kind) if found else NOT_RUN


def order(results: Results, half: str, kind: str) -> str:
    """Learnt order minus order 1 at equal budget: the mean with its interval, and by table."""
    found = results.comparison(half, kind, (LEARNT, PLAIN))
    if not found:
        return NOT_RUN
    name, title = next(iter(MEASURES[kind].items()))
    differences = found.differences(name, LEARNT, PLAIN)
    told = np.isfinite(differences)
    low, high = bootstrap_interval(differences[told])
    better = int((differences < 0).sum())
    what = "log-loss" if kind == "classes" else "logarithm of RMSE"
    summary = (
        f"{what}, learnt order minus order 1: mean {differences[told].mean():+.4f}, 95 % interval {low:+.4f} to "
        f"{high:+.4f} over {int(told.sum())} tables; less, which is better, on {better}."
    )
    pairs = found.errors(name, [LEARNT, PLAIN])
    rows = [
        [found.tables[k], *(f"{value:.4g}" for value in pairs[k]), f"{differences[k]:+.4f}"]
        for k in np.argsort(differences)
    ]
    headings = ["table", f"{title}, learnt order", f"{title}, order 1", f"difference of {what}"]
    return f"{summary}\n\n{markdown(headings, rows)}"


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
    """What made the runs of each model: its package, and for ours the commit."""
    counts = Counter((each["model"], _made_with(each), each.get("device", CPU)) for each in results.records)
    rows = [[*kind, f"{count:,}"] for kind, count in sorted(counts.items())]
    return markdown(["model", "made with", "on", "runs"], rows) if rows else NOT_RUN


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
    "neural": neural,
    "against": against,
    "aims": aims,
    "values": values,
    "memory": memory,
    "recipe": recipe,
    "tuned": tuned,
    "order": order,
    "failures": failures,
    "made": made,
    "picture": picture,
}
