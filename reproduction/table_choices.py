"""Table 2 where the paper leaves something open: each choice taken the other way, with the exact gradient."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from fracdnn.datasets import Perfume
from fracdnn.training import accuracy
from reproduction.paper_training import Setting, level_set_split, normalized, perfume_split, trained
from reproduction.perfume_training import half_batches, perfume_network, train_perfumes
from reproduction.table import LEVEL_SETS, PERFUMES

CHOICES: dict[str, dict[str, Any]] = {
    "as elsewhere on this page": {},
    "one mean and deviation for all features": {"normalization": "global"},
    "mini-batch drawn class by class": {"by_class": True},
    "Laplacian over rows and columns of K": {"laplacian": "matrix"},
}
# On the perfumes, where the weight of the Laplacian is 0, it can't matter which.
FOR_PERFUMES = tuple(CHOICES)[:-1]


@dataclass(frozen=True)
class TableChoices:
    level_sets: Setting = LEVEL_SETS
    perfumes: Setting = PERFUMES
    n_points: int = 10_000
    seeds: tuple[int, ...] = tuple(range(10))


def jobs(settings: TableChoices) -> list[dict[str, Any]]:
    return [
        {"data": data, "choice": choice, "order": order, "seed": seed}
        for data, choices, orders in (("CLS", tuple(CHOICES), (1.0, 0.1)), ("PD", FOR_PERFUMES, (1.0, 0.9)))
        for choice in choices
        for order in orders
        for seed in settings.seeds
    ]


def work(settings: TableChoices, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    """Accuracy in percent: of level sets on the test points, of perfumes on all 560, which are those for training."""
    assert perfume is not None
    column = settings.level_sets if job["data"] == "CLS" else settings.perfumes
    setting = replace(column, order=job["order"], **CHOICES[job["choice"]])
    if job["data"] == "CLS":
        _, outcome = trained(setting, level_set_split(settings.n_points, job["seed"]), job["seed"])
        return {"accuracy": round(100 * outcome.test, 2)}
    split = perfume_split(perfume, by_time=False)
    network, generator = perfume_network(setting, split, job["seed"])
    draw = halves_of_classes if setting.by_class else _halves
    train_perfumes(setting, network, split, draw(setting, split[2], generator))
    return {"accuracy": round(100 * accuracy(network, normalized(setting, split[0]), split[2]), 2)}


def _halves(setting: Setting, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return half_batches(setting, len(labels), generator)


def halves_of_classes(setting: Setting, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """m1 random halves, of each class alike: those that `MiniBatchTraining(by_class=True)` draws."""
    found = []
    for _ in range(setting.n_batches):
        order = torch.randperm(len(labels), generator=generator)
        parts = [order[labels[order] == label] for label in labels.unique()]
        found.append(torch.cat([part[: round(len(part) / 2)] for part in parts]))
    return torch.stack(found)
