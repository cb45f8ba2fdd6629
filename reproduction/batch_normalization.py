"""The remark that normalizing each mini-batch speeds up learning: Alg. 3 with it, with fixed statistics, without it.

Speed is the loss on all training samples after a few mini-batches, so that every way has as many iterations.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from fracdnn.datasets import Perfume
from fracdnn.training import Objective, Task, accuracy, normalize_batch
from reproduction.paper_training import Setting, level_set_split, perfume_split, task_of, training_of
from reproduction.perfume_training import half_batches, perfume_network, train_perfumes
from reproduction.table import LEVEL_SETS, PERFUMES
from reproduction.vanishing_gradient import rounded

# Each mini-batch by its own mean and deviation, as the paper has it; by those of all training samples; as measured.
WAYS = ("mini-batch", "fixed", "none")


@dataclass(frozen=True)
class BatchNormalization:
    """Table 2's columns after each of these numbers of mini-batches."""

    level_sets: Setting = LEVEL_SETS
    perfumes: Setting = PERFUMES
    orders: tuple[float, float] = (0.1, 0.9)
    budgets: tuple[tuple[int, ...], tuple[int, ...]] = ((1, 6), (6, 60))
    n_points: int = 2000
    seeds: tuple[int, ...] = tuple(range(20))


def jobs(settings: BatchNormalization) -> list[dict[str, Any]]:
    found = []
    columns = (settings.level_sets, settings.perfumes)
    for column, order, budgets in zip(columns, settings.orders, settings.budgets, strict=True):
        found += [
            {"data": column.data, "order": each, "n_batches": budget, "normalization": way, "seed": seed}
            for each in (1.0, order)
            for budget in budgets
            for way in WAYS
            for seed in settings.seeds
        ]
    return found


def work(settings: BatchNormalization, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    """Loss and accuracy on all training samples, normalized by their own statistics unless they are as measured."""
    assert perfume is not None
    column = settings.level_sets if job["data"] == "CLS" else settings.perfumes
    way = "feature" if job["normalization"] == "mini-batch" else "none"
    setting = replace(column, order=job["order"], n_batches=job["n_batches"], normalization=way)
    split = (
        level_set_split(settings.n_points, job["seed"])
        if job["data"] == "CLS"
        else perfume_split(perfume, by_time=False)
    )
    seen = split[0] if job["normalization"] == "none" else normalize_batch(split[0])
    if job["normalization"] == "fixed":
        split = (seen, *split[1:])
    if job["data"] == "CLS":
        task = task_of(setting, split, job["seed"])
        training_of(setting).fit(task)
        network = task.network
    else:
        network, generator = perfume_network(setting, split, job["seed"])
        train_perfumes(setting, network, split, half_batches(setting, len(split[0]), generator))
    with torch.no_grad():
        loss = float(Task(network, Objective(), seen, split[2]).loss())
    return {"loss": rounded(loss), "accuracy": round(100 * accuracy(network, seen, split[2]), 2)}
