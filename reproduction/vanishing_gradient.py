"""Gradients over the layers: at a random start for many depths and widths, and during steepest descent on 70 layers."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.caputo.weights import memory_matrix
from fracdnn.datasets import Perfume
from fracdnn.nn import FractionalNetwork
from fracdnn.training import Objective, Task, normalize_batch
from fracdnn.training.records import layer_gradient_norms
from reproduction.arms import networks
from reproduction.fast_training import fit_all
from reproduction.paper_training import paper_network, perfume_split


@dataclass(frozen=True)
class VanishingGradient:
    """The perfumes, no regularization; 70 layers and steepest descent as in the paper, the number of steps is ours.

    `printed` are pairs of an order and an adjoint that is trained with; `depths` and `widths` are for the random start.
    """

    orders: tuple[float, ...] = (0.9, 0.5, 0.1)
    printed: tuple[tuple[float, str], ...] = (
        (1.0, "classical"),
        (1.0, "continuous"),
        (0.9, "continuous"),
        (0.5, "continuous"),
        (0.1, "continuous"),
    )
    n_layers: int = 70
    step_size: float = 0.2
    iterations: int = 100
    seeds: tuple[int, ...] = tuple(range(20))
    depths: tuple[int, ...] = (10, 70, 300)
    widths: tuple[int, ...] = (2, 16, 64)
    start_seeds: tuple[int, ...] = tuple(range(10))


def jobs(settings: VanishingGradient) -> list[dict[str, Any]]:
    plain = {"network": "plain", "order": 1.0, "step_size": settings.step_size, "adjoint": "exact"}
    trained = [plain]
    trained += [{**arm, "adjoint": "exact"} for arm in networks(settings.orders, settings.step_size, settings.n_layers)]
    trained += [
        {
            "network": f"order {order:g}, {'printed' if adjoint == 'continuous' else adjoint}",
            "order": order,
            "step_size": settings.step_size,
            "adjoint": adjoint,
        }
        for order, adjoint in settings.printed
    ]
    found = [{"kind": "trained", **each, "seed": seed} for each in trained for seed in settings.seeds]
    found += [
        {"kind": "start", "network": name, "order": order, "n_layers": depth, "width": width, "seed": seed}
        for name, order in (("plain", 1.0), *((f"order {order:g}", order) for order in (1.0, *settings.orders)))
        for width in settings.widths
        for depth in settings.depths
        for seed in settings.start_seeds
    ]
    return found


def work(settings: VanishingGradient, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    assert perfume is not None
    X, _, y, _ = perfume_split(perfume, by_time=False)
    generator = torch.Generator().manual_seed(job["seed"])
    return (_trained if job["kind"] == "trained" else _start)(settings, normalize_batch(X), y, generator, job)


def _trained(
    settings: VanishingGradient, X: torch.Tensor, y: torch.Tensor, generator: torch.Generator, job: dict[str, Any]
) -> dict[str, Any]:
    """Norms at the first and last layer at every step, the start among them, the loss, and all layers at both ends."""
    network = paper_network(
        X,
        y,
        generator,
        n_layers=settings.n_layers,
        order=job["order"],
        step_size=job["step_size"],
        residual=job["network"] != "plain",
        adjoint=job["adjoint"],
    )
    before = norms_of(network, X, y)
    loss = float(Task(network, Objective(), X, y).loss().detach())
    fit = fit_all(network, X, y, max_iter=settings.iterations, method="steepest", tolerance=0.0, with_norms=True)
    norms = [before, *fit.norms.tolist()]
    return {
        "first": [rounded(norm[0]) for norm in norms],
        "last": [rounded(norm[-1]) for norm in norms],
        "profile_start": profile(norms[0]),
        "profile_end": profile(norms[-1]),
        "loss": rounded(float(fit.losses[-1])) if len(fit.losses) else rounded(loss),
        "steps": len(fit.losses),
    }


def _start(
    settings: VanishingGradient, X: torch.Tensor, y: torch.Tensor, generator: torch.Generator, job: dict[str, Any]
) -> dict[str, Any]:
    """Norms over the layers of a random network of some depth and width, and what the resolvent predicts."""
    options = {"n_layers": job["n_layers"], "order": job["order"], "step_size": settings.step_size}
    width = None if job["width"] == X.shape[1] else job["width"]
    network = FractionalNetwork(
        X.shape[1], 20, width=width, residual=job["network"] != "plain", generator=generator, **options
    ).double()
    norms = norms_of(network, X, y)
    predicted = resolvent(job["order"], job["n_layers"] - 1)
    return {"first": rounded(norms[0]), "last": rounded(norms[-1]), "profile": profile(norms), "resolvent": predicted}


def norms_of(network: FractionalNetwork, X: torch.Tensor, y: torch.Tensor) -> list[float]:
    network.zero_grad()
    Task(network, Objective(), X, y).loss().backward()
    return layer_gradient_norms(network)


def profile(norms: list[float], n_points: int = 11) -> list[float]:
    """Norms at equal distances from the first layer to the last."""
    places = [round(k * (len(norms) - 1) / (n_points - 1)) for k in range(n_points)]
    return [rounded(norms[place]) for place in places]


def resolvent(order: float, lag: int) -> float:
    """How much of a change of a layer is left `lag` layers later where f does not depend on the state.

    R_0 = 1, R_m = Σ_k h_k R_{m−k}: about m^(order−1) / (Γ(order) Γ(2−order)).
    """
    if order == 1.0 or lag == 0:
        return 1.0
    weights = memory_matrix(order, lag + 1)[-1].flip(0)[:lag]  # h_1, …, h_lag
    found = [1.0]
    for m in range(1, lag + 1):
        found.append(float(weights[:m] @ torch.tensor(found[::-1], dtype=torch.float64)))
    return found[-1]


def asymptotic_resolvent(order: float, lag: int) -> float:
    return lag ** (order - 1) / (math.gamma(order) * math.gamma(2 - order))


def rounded(number: float) -> float:
    return float(f"{number:.4g}")
