"""The paper's remark on line searches: trials of Armijo's rule in BFGS, the library's and the textbook's."""

from dataclasses import dataclass, replace
from typing import Any

from fracdnn.datasets import Perfume
from reproduction.arms import networks
from reproduction.paper_training import Setting, level_set_split, perfume_split, task_of, training_of
from reproduction.perfume_training import half_batches, perfume_network, train_perfumes
from reproduction.table import LEVEL_SETS, PERFUMES

METHODS = ("bfgs", "textbook-bfgs")
SHORT_PERFUMES = PERFUMES.short(60)


@dataclass(frozen=True)
class LineSearch:
    """Table 2's columns; of the perfumes' 567 mini-batches the first 60, which is 900 iterations."""

    level_sets: Setting = LEVEL_SETS
    perfumes: Setting = SHORT_PERFUMES
    orders: tuple[float, float] = (0.1, 0.9)
    n_points: int = 10_000
    seeds: tuple[int, ...] = tuple(range(20))


def jobs(settings: LineSearch) -> list[dict[str, Any]]:
    found = []
    for column, order in zip((settings.level_sets, settings.perfumes), settings.orders, strict=True):
        found += [
            {"data": column.data, "method": method, **arm, "seed": seed}
            for method in METHODS
            for arm in networks((order,), column.step_size, column.n_layers)
            for seed in settings.seeds
        ]
    return found


def work(settings: LineSearch, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    assert perfume is not None
    column = settings.level_sets if job["data"] == "CLS" else settings.perfumes
    setting = replace(column, order=job["order"], step_size=job["step_size"])
    if job["data"] == "CLS":
        task = task_of(setting, level_set_split(settings.n_points, job["seed"]), job["seed"])
        history = replace(training_of(setting), optimizer=job["method"]).fit(task)
        return {"iterations": len(history.records), "trials": history.line_search_trials}
    split = perfume_split(perfume, by_time=False)
    network, generator = perfume_network(setting, split, job["seed"])
    batches = half_batches(setting, len(split[0]), generator)
    fit = train_perfumes(setting, network, split, batches, method=job["method"])
    return {"iterations": len(fit.losses), "trials": int(fit.trials.sum())}
