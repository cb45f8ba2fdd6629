"""The paper's claim on non-smooth functions: kinks and jumps on a line and in the plane, against a smooth function."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fracdnn.datasets import Perfume
from fracdnn.nn import FractionalNetwork
from reproduction.arms import STEP_SIZES, grid, networks
from reproduction.fast_training import fit_all

Function = Callable[[torch.Tensor], torch.Tensor]
# The function, of how many variables, and how far a point is from where it is not smooth.
TARGETS: dict[str, tuple[Function, int, Function]] = {
    "|x|": (lambda x: x[:, 0].abs(), 1, lambda x: x[:, 0].abs()),
    "step": (lambda x: (x[:, 0] > 0).to(x.dtype), 1, lambda x: x[:, 0].abs()),
    "max(x, y)": (lambda x: x.amax(1), 2, lambda x: (x[:, 0] - x[:, 1]).abs() / math.sqrt(2)),
    "sin(πx)": (lambda x: torch.sin(torch.pi * x[:, 0]), 1, lambda x: torch.full_like(x[:, 0], torch.inf)),
}


@dataclass(frozen=True)
class NonSmooth:
    """BFGS on all samples, features filled up with zeros to the width: one feature cannot bend twice."""

    targets: tuple[str, ...] = tuple(TARGETS)
    orders: tuple[float, ...] = (0.5, 0.1)
    step_sizes: tuple[float, ...] = STEP_SIZES
    n_layers: int = 10
    width: int = 4
    step_size: float = 0.2
    n_points: int = 200
    n_validation: int = 200
    n_test: int = 2000
    max_iter: int = 1500
    decay: float = 1e-6
    seeds: tuple[int, ...] = tuple(range(20))


def jobs(settings: NonSmooth) -> list[dict[str, Any]]:
    arms = networks(settings.orders, settings.step_size, settings.n_layers)
    arms += grid(settings.orders, settings.step_size, settings.step_sizes)
    return [
        {"target": target, **arm, "seed": seed}
        for target in settings.targets
        for arm in arms
        for seed in settings.seeds
    ]


def work(settings: NonSmooth, perfume: Perfume | None, job: dict[str, Any]) -> dict[str, Any]:
    """Root mean square errors: on all test points, and on those away from the gap between samples about the kink."""
    function, n_variables, distance = TARGETS[job["target"]]
    generator = torch.Generator().manual_seed(job["seed"])
    network = FractionalNetwork(
        settings.width,
        1,
        n_layers=settings.n_layers,
        order=job["order"],
        step_size=job["step_size"],
        generator=generator,
    ).double()
    samples = [
        _points(settings, n_variables, n, generator)
        for n in (settings.n_points, settings.n_validation, settings.n_test)
    ]
    if n_variables == 1:  # evenly, with none at the kink
        samples[0][:, 0] = torch.linspace(-1, 1, settings.n_points, dtype=torch.float64)
    X, X_validation, X_test = samples
    y, decay = function(X).unsqueeze(1), settings.decay
    fit = fit_all(network, X, y, max_iter=settings.max_iter, decay=decay, decay_class_map=decay)
    gap = 2.0 / (settings.n_points - 1) if n_variables == 1 else 2.0 / math.sqrt(settings.n_points)

    def errors(points: torch.Tensor) -> tuple[float, float]:
        squares = (network(points)[:, 0] - function(points)).detach().square()
        away = distance(points) > gap
        return float(squares.mean().sqrt()), float(squares[away].mean().sqrt())

    error, away = errors(X_test)
    return {
        "error": error,
        "away": away,
        "validation": errors(X_validation)[1],
        "loss": float(fit.losses[-1]),
        "halfway": float(fit.losses[len(fit.losses) // 2]),
        "status": fit.status,
    }


def _points(settings: NonSmooth, n_variables: int, n: int, generator: torch.Generator) -> torch.Tensor:
    """Uniform on [−1, 1] in the function's variables, 0 in the others."""
    points = torch.zeros(n, settings.width, dtype=torch.float64)
    points[:, :n_variables].uniform_(-1, 1, generator=generator)
    return points
