"""The printed adjoint as the step shrinks: T = Nτ fixed, the same K(t) and b(t) at every depth."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from fracdnn.datasets import Perfume
from reproduction.arms import step_factor
from reproduction.printed_adjoint import network_with


@dataclass(frozen=True)
class Refinement:
    """Random trigonometric polynomials of degree two as K(t) and b(t), random samples and labels."""

    depths: tuple[int, ...] = (10, 20, 40, 80, 160, 320)
    orders: tuple[float, ...] = (1.0, 0.9, 0.5, 0.1)
    final_time: float = 1.0
    n_samples: int = 50
    n_features: int = 2
    n_classes: int = 3
    seeds: tuple[int, ...] = tuple(range(20))


def jobs(settings: Refinement) -> list[dict[str, Any]]:
    return [
        {"order": order, "adjoint": adjoint, "n_layers": n_layers, "seed": seed}
        for order in settings.orders
        for adjoint in (("continuous", "classical") if order == 1.0 else ("continuous",))
        for n_layers in settings.depths
        for seed in settings.seeds
    ]


def work(settings: Refinement, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    """The printed gradient of (K, b) times its missing factor against the network's own.

    `with_c` is the relative error of c times the printed one, c the factor that the paper leaves out, `with_step` that
    of τ times it, the measure of a layer in the integral over time; `cosine` needs neither.
    """
    step_size = settings.final_time / job["n_layers"]
    printed, exact = (_gradient(settings, job, step_size, adjoint) for adjoint in (job["adjoint"], "exact"))

    def error(factor: float) -> float:
        return float((factor * printed - exact).norm() / exact.norm())

    return {
        "with_c": error(step_factor(job["order"], step_size)),
        "with_step": error(step_size),
        "cosine": float(torch.cosine_similarity(printed, exact, dim=0)),
    }


def _gradient(settings: Refinement, job: dict[str, Any], step_size: float, adjoint: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(job["seed"])
    n, w = job["n_layers"], settings.n_features
    draw = partial(torch.randn, dtype=torch.float64, generator=generator)
    coefficients = draw(5, w * w + 1) / math.sqrt(5)
    X, W = draw(settings.n_samples, w), draw(settings.n_classes, w)
    y = torch.randint(settings.n_classes, (settings.n_samples,), generator=generator)
    network = network_with(
        adjoint, w, settings.n_classes, n_layers=n, order=job["order"], step_size=step_size, bias="scalar"
    ).double()
    assert network.b is not None
    t = torch.arange(n, dtype=torch.float64).unsqueeze(1) * step_size * 2 * math.pi
    curves = torch.cat([torch.ones_like(t), t.cos(), t.sin(), (2 * t).cos(), (2 * t).sin()], 1) @ coefficients
    with torch.no_grad():
        network.K.copy_(curves[:, :-1].view(n, w, w))
        network.b.copy_(curves[:, -1])
        network.W.copy_(W)
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(cross_entropy(network(X), y), [network.K, network.b])])
