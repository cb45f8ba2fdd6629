"""Stability and exploding gradients: how changes grow through 70 random layers, also of larger weights."""

from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.datasets import Perfume
from fracdnn.training import normalize_batch
from reproduction.arms import networks
from reproduction.paper_training import paper_network, perfume_split
from reproduction.vanishing_gradient import norms_of, rounded


@dataclass(frozen=True)
class Stability:
    """Random starts on the perfumes with all K times a scale: 1 is the paper's start."""

    orders: tuple[float, ...] = (0.9, 0.5, 0.1)
    scales: tuple[float, ...] = (1.0, 3.0)
    n_layers: int = 70
    step_size: float = 0.2
    seeds: tuple[int, ...] = tuple(range(20))


def jobs(settings: Stability) -> list[dict[str, Any]]:
    arms = networks(settings.orders, settings.step_size, settings.n_layers)
    return [
        {"scale": scale, **arm, "seed": seed} for scale in settings.scales for arm in arms for seed in settings.seeds
    ]


def work(settings: Stability, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    """The largest ‖∂Y_N/∂Y_0‖₂ of the samples; the largest layer's gradient by itself, and over the last's."""
    assert perfume is not None
    X, _, y, _ = perfume_split(perfume, by_time=False)
    X = normalize_batch(X).requires_grad_(True)
    generator = torch.Generator().manual_seed(job["seed"])
    options = {"n_layers": settings.n_layers, "order": job["order"], "step_size": job["step_size"]}
    network = paper_network(X, y, generator, **options)
    with torch.no_grad():
        network.K.mul_(job["scale"])
    end = network(X, trajectory=True)[-1]
    rows = [torch.autograd.grad(end[:, i].sum(), X, retain_graph=True)[0] for i in range(end.shape[1])]
    growth = torch.linalg.matrix_norm(torch.stack(rows, 1), ord=2)
    norms = norms_of(network, X.detach(), y)
    return {
        "growth": rounded(float(growth.max())),
        "exploding": rounded(max(norms) / norms[-1]),
        "largest": rounded(max(norms)),
    }
