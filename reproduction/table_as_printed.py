"""Table 2 by the paper's own algorithm: printed gradient, both normalizations, both readings of its mini-batches."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from fracdnn.datasets import Perfume
from fracdnn.training import accuracy
from reproduction.paper_training import Setting, normalized, perfume_split
from reproduction.perfume_training import half_batches, perfume_network, train_perfumes
from reproduction.table import PERFUMES

# The gradient of each reading: at order 1 the adjoint of a residual network, below it the printed one.
GRADIENTS = {
    "exact": ("exact", "exact"),
    "printed": ("classical", "continuous"),
    "printed, transposed": ("classical-transposed", "continuous-transposed"),
}


@dataclass(frozen=True)
class AsPrinted:
    """`swapped` reads "repeated m2 times" as m2 mini-batches with m1 iterations each, where Alg. 3 has it reversed."""

    column: Setting = PERFUMES
    order: float = 0.9
    gradients: tuple[str, ...] = tuple(GRADIENTS)
    normalizations: tuple[str, ...] = ("feature", "global")
    swapped: bool = False
    with_plain: bool = True
    seeds: tuple[int, ...] = tuple(range(10))


def jobs(settings: AsPrinted) -> list[dict[str, Any]]:
    found = [
        {"network": f"order {order:g}", "order": order, "gradient": gradient, "normalization": normalization}
        for gradient in settings.gradients
        for normalization in settings.normalizations
        for order in (1.0, settings.order)
    ]
    if settings.with_plain:
        found += [
            {"network": "plain", "order": 1.0, "gradient": "exact", "normalization": normalization}
            for normalization in settings.normalizations
        ]
    return [{**each, "seed": seed} for each in found for seed in settings.seeds]


def work(settings: AsPrinted, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    """Right answers in percent: on the last mini-batch, as Alg. 3 counts, on all 560, and without each perfume once."""
    assert perfume is not None
    setting = replace(settings.column, order=job["order"], normalization=job["normalization"])
    if settings.swapped:
        setting = replace(setting, n_batches=setting.iterations, iterations=setting.n_batches)
    split = perfume_split(perfume, by_time=False)
    adjoint = GRADIENTS[job["gradient"]][job["order"] < 1]
    residual = job["network"] != "plain"
    network, generator = perfume_network(setting, split, job["seed"], adjoint=adjoint, residual=residual)
    fit = train_perfumes(setting, network, split, half_batches(setting, len(split[0]), generator))
    X, _, y, _ = split

    def right(rows: torch.Tensor) -> float:
        return round(100 * accuracy(network, normalized(setting, X[rows]), y[rows]), 2)

    return {
        "batch": round(100 * fit.batch_accuracy, 2),
        "all": right(torch.ones_like(y, dtype=torch.bool)),
        "without_one": [right(y != label) for label in range(int(y.max()) + 1)],
        "iterations": len(fit.losses),
        "trials": int(fit.trials.sum()),
        "status": fit.status,
    }
