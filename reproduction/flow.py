"""The paper's figure of the flow: how separable the perfumes are after the network, and whether that hints at N."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from fracdnn.datasets import Perfume
from fracdnn.nn import FractionalNetwork
from fracdnn.training import accuracy
from reproduction.arms import networks
from reproduction.fast_training import fit_all
from reproduction.paper_training import Setting, normalized, paper_network, perfume_split
from reproduction.perfume_training import half_batches, perfume_network, train_perfumes
from reproduction.table import PERFUMES


@dataclass(frozen=True)
class FlowSettings:
    """Table 2's networks, trained by Alg. 3 for the picture; and by BFGS on all samples at several depths."""

    column: Setting = PERFUMES
    order: float = 0.9
    depths: tuple[int, ...] = (1, 2, 5, 10, 20, 35)
    max_iter: int = 300
    class_map: float = 1e-4
    seeds: tuple[int, ...] = tuple(range(10))


def jobs(settings: FlowSettings) -> list[dict[str, Any]]:
    arms = networks((settings.order,), settings.column.step_size, settings.column.n_layers)
    found = [{"kind": "picture", **arm, "n_layers": settings.column.n_layers, "seed": 0} for arm in arms[:2]]
    found += [
        {"kind": "depth", **arm, "n_layers": depth, "seed": seed}
        for depth in settings.depths
        for arm in (arms if depth == settings.column.n_layers else arms[:2])
        for seed in settings.seeds
    ]
    return found


def work(settings: FlowSettings, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    assert perfume is not None
    split = perfume_split(perfume, by_time=False)
    setting = replace(settings.column, order=job["order"], step_size=job["step_size"], n_layers=job["n_layers"])
    X, y = normalized(setting, split[0]), split[2]
    if job["kind"] == "picture":
        network, generator = perfume_network(setting, split, job["seed"])
        train_perfumes(setting, network, split, half_batches(setting, len(X), generator))
    else:
        generator = torch.Generator().manual_seed(job["seed"])
        options = {"n_layers": job["n_layers"], "order": job["order"], "step_size": job["step_size"]}
        network = paper_network(X, y, generator, **options)
        fit_all(network, X, y, max_iter=settings.max_iter, decay_class_map=settings.class_map)
    end = _end(network, X)
    found: dict[str, Any] = {"accuracy": accuracy(network, X, y), "separability": separability(end, y.numpy())}
    if job["kind"] == "picture":
        found |= {
            "start": X.numpy().round(4).tolist(),
            "end": end.round(4).tolist(),
            "target": y.tolist(),
            "start_separability": separability(X.numpy(), y.numpy()),
        }
    return found


def _end(network: FractionalNetwork, X: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return network(X, trajectory=True)[-1].numpy()


def separability(states: np.ndarray, target: np.ndarray) -> float:
    """The share of samples that a linear classifier (logistic regression, nearly unregularized) gets right."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaled = StandardScaler().fit_transform(states)
    return float(LogisticRegression(C=1e4, max_iter=20_000).fit(scaled, target).score(scaled, target))
