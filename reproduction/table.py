"""The paper's Table 2: accuracy on level sets (CLS) and perfumes (PD), with the exact gradient."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from fracdnn.datasets import Perfume
from fracdnn.nn import FractionalNetwork
from fracdnn.training import accuracy
from reproduction.arms import STEP_SIZES, grid, networks
from reproduction.paper_training import Setting, level_set_split, normalized, perfume_split, trained
from reproduction.perfume_training import half_batches, perfume_network, train_perfumes

LEVEL_SETS = Setting("CLS", 1.0, n_layers=5, n_batches=6, iterations=30, class_map=1e-1, operator=1e2, bias=1e-2)
PERFUMES = Setting("PD", 1.0, n_layers=35, n_batches=567, iterations=15, class_map=1e-8, operator=0.0, bias=0.0)
# What the paper reports, in percent: (training, test) by data and order.
PAPER = {
    ("CLS", 1.0): ("99.76", "99.79"),
    ("CLS", 0.1): ("99.82", "99.79"),
    ("PD", 1.0): ("52.86", "45.49"),
    ("PD", 0.9): ("70.36", "84.21"),
}
# Data, and which samples are for training.
CLS, PD_ALL, PD_TIME = "CLS", "PD, all 560", "PD, first 14 s"


@dataclass(frozen=True)
class TableSettings:
    """Columns as printed. `rounding` is how often the first seed starts anew with W scaled by 1 + k · 1e-15."""

    columns: tuple[Setting, ...] = (
        LEVEL_SETS,
        LEVEL_SETS.with_order(0.1),
        PERFUMES,
        PERFUMES.with_order(0.9),
    )
    step_sizes: tuple[float, ...] = STEP_SIZES
    n_points: int = 10_000
    seeds: tuple[int, ...] = tuple(range(20))
    perfume_seeds: tuple[int, ...] = tuple(range(10))
    rounding: int = 10


def jobs(settings: TableSettings) -> list[dict[str, Any]]:
    level_sets, fractional, perfumes, fractional_perfumes = settings.columns
    found = []
    for data, column, order, seeds in (
        (CLS, level_sets, fractional.order, settings.seeds),
        (PD_ALL, perfumes, fractional_perfumes.order, settings.perfume_seeds),
        (PD_TIME, perfumes, fractional_perfumes.order, settings.perfume_seeds),
    ):
        arms = networks((order,), column.step_size, column.n_layers)
        if data != PD_ALL:  # which has no held-out data to tune on
            arms += grid((order,), column.step_size, settings.step_sizes)
        found += [{"data": data, **arm, "seed": seed, "rounding": 0} for arm in arms for seed in seeds]
    found += [
        {"data": PD_ALL, **arm, "seed": settings.perfume_seeds[0], "rounding": k}
        for arm in networks((fractional_perfumes.order,), perfumes.step_size, perfumes.n_layers)[:2]
        for k in range(1, settings.rounding + 1)
    ]
    return found


def work(settings: TableSettings, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    """Accuracies as shares; half of the test samples are for tuning ("validation")."""
    assert perfume is not None
    column = settings.columns[0 if job["data"] == CLS else 2]
    setting = replace(column, order=job["order"], step_size=job["step_size"])
    if job["data"] == CLS:
        split = level_set_split(settings.n_points, job["seed"])
        network, outcome = trained(setting, split, job["seed"])
        return {"train": outcome.train, "trials": outcome.line_search_trials, **_halves(setting, network, split)}
    split = perfume_split(perfume, by_time=job["data"] == PD_TIME)
    network, generator = perfume_network(setting, split, job["seed"])
    with torch.no_grad():
        network.W.mul_(1 + job["rounding"] * 1e-15)
    fit = train_perfumes(setting, network, split, half_batches(setting, len(split[0]), generator))
    return {
        "train": accuracy(network, normalized(setting, split[0]), split[2]),
        "batch": fit.batch_accuracy,
        "trials": int(fit.trials.sum()),
        **_halves(setting, network, split),
    }


def _halves(setting: Setting, network: FractionalNetwork, split: tuple[torch.Tensor, ...]) -> dict[str, float]:
    """Every second test sample for tuning; all are normalized together, as the paper does it."""
    X_test, y_test = normalized(setting, split[1]), split[3]
    return {
        "test": accuracy(network, X_test[1::2], y_test[1::2]),
        "validation": accuracy(network, X_test[::2], y_test[::2]),
    }
